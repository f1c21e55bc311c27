package interop

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"time"

	"gradnic/wire/inet"
	"gradnic/wire/native"
	"gradnic/wire/switchml"
)

// crossing is how long after its result a packet may still come that was sent before: it was on its way, or in a queue.
const crossing = time.Second

// address is whom a worker is known by; several may share a MAC.
type address struct {
	mac inet.MAC
	ip  inet.Addr
}

// message is what the judge reads of a frame with values: where it belongs, and what must stay the same when it is sent
// again.
type message struct {
	worker  address
	slot    uint32
	turn    uint32 // round, or set
	epoch   uint32 // native
	resend  bool   // native: the flag
	payload []byte
}

// use is the last packet of a worker on a slot.
type use struct {
	message
	delivered time.Time // when its result was sent to the worker; zero: not yet
}

// judge knows what a worker may send, by what it was given.
type judge struct {
	native bool
	uses   map[address]map[uint32]*use
	broken map[string]int    // rules
	first  map[string]string // what broke them first
	fresh  int               // packets that were not sent before
}

func newJudge(isNative bool) *judge {
	return &judge{native: isNative, uses: map[address]map[uint32]*use{}, broken: map[string]int{}, first: map[string]string{}}
}

func (j *judge) breaks(rule, format string, args ...any) {
	if j.broken[rule]++; j.broken[rule] == 1 {
		j.first[rule] = fmt.Sprintf(format, args...)
	}
}

// read is the message in a frame from a worker, or to one; ok is false when it carries no values of the protocol. wrong says
// why a frame from a worker to the protocol's port is no message.
func (j *judge) read(frame []byte, from bool) (m message, ok bool, wrong string) {
	var p inet.Packet
	if fault := inet.Parse(frame, &p); fault != inet.OK {
		if from && j.meant(frame) {
			wrong = fault.String()
		}
		return m, false, wrong
	}
	if p.Proto != inet.ProtoUDP {
		return m, false, ""
	}
	port := p.SrcPort
	m.worker = address{p.Dst, p.DstIP}
	if from {
		port, m.worker = p.DstPort, address{p.Src, p.SrcIP}
	}
	if j.native {
		if port != native.Port {
			return m, false, ""
		}
		v, f := native.Validate(p.Payload)
		if f != native.OK {
			return m, false, f.String()
		}
		want := native.Result
		if from {
			want = native.Contribution
		}
		m.slot, m.turn, m.epoch, m.resend, m.payload = v.Slot(), v.Round(), v.Epoch(), v.Flags()&native.FlagResend != 0, v.Payload()
		return m, v.Kind() == want, ""
	}
	if !switchml.IsPort(port) {
		return m, false, ""
	}
	v, f := switchml.Validate(p.Payload)
	if f != switchml.OK {
		return m, false, f.String()
	}
	m.slot, m.turn, m.payload = uint32(v.Slot()), uint32(v.Set()), p.Payload
	return m, true, ""
}

// meant tells whether a frame whose headers are wrong is to the protocol's port, as far as can be read: one that was cut, or whose
// lengths contradict each other.
func (j *judge) meant(frame []byte) bool {
	if len(frame) < inet.PayloadOffset || !isIPv4(frame) || frame[inet.L3Offset] != 0x45 || frame[23] != inet.ProtoUDP {
		return false
	}
	if f := binary.BigEndian.Uint16(frame[20:]); f&0x1fff != 0 { // a later fragment has no port
		return false
	}
	port := binary.BigEndian.Uint16(frame[36:])
	return j.native && port == native.Port || !j.native && switchml.IsPort(port)
}

// request notes what a worker has sent.
func (j *judge) request(frame []byte, now time.Time) (isMessage bool) {
	m, ok, wrong := j.read(frame, true)
	if wrong != "" {
		j.breaks("well-formed", "a packet to the protocol's port is no message: %s", wrong)
	}
	if !ok {
		return false
	}
	m.payload = bytes.Clone(m.payload)
	slots := j.uses[m.worker]
	if slots == nil {
		slots = map[uint32]*use{}
		j.uses[m.worker] = slots
	}
	last := slots[m.slot]
	where := fmt.Sprintf("worker %v, slot %d, %s %d", m.worker.ip, m.slot, map[bool]string{true: "round", false: "set"}[j.native], m.turn)
	switch {
	case last == nil:
		if j.native && m.resend {
			j.breaks("resend-flag", "%s: the first packet that came says that it was sent before; unless the link lost one", where)
		}
	case j.native && m.epoch != last.epoch && !m.resend:
		// The workers came together anew: rounds begin again, and a packet may be what the last epoch's was.
	case last.turn == m.turn && bytes.Equal(last.payload, m.payload):
		if late := now.Sub(last.delivered); !last.delivered.IsZero() && late > crossing && m.epoch == last.epoch {
			j.breaks("resend-after-result", "%s: sent again %v after its result was there", where, late.Round(time.Millisecond))
		}
		if j.native && !m.resend && m.epoch == last.epoch {
			j.breaks("resend-flag", "%s: sent again without the flag that says so", where)
		}
		last.epoch = m.epoch
		return true
	case last.turn == m.turn && last.delivered.IsZero():
		j.breaks("resend-same", "%s: sent again with other contents", where)
		return true
	case last.delivered.IsZero() && m.epoch == last.epoch:
		j.breaks("slot-free", "%s: the slot is used before the result of its last packet was there", where)
	case last.turn == m.turn:
		j.breaks("turns", "%s: a new packet, where the other set's turn is", where)
	case j.native && m.epoch == last.epoch && m.turn != last.turn+1:
		j.breaks("turns", "%s: after round %d", where, last.turn)
	}
	slots[m.slot] = &use{message: m}
	j.fresh++
	return true
}

// result notes what a worker is given.
func (j *judge) result(frame []byte, now time.Time) {
	m, ok, _ := j.read(frame, false)
	if !ok {
		return
	}
	if u := j.uses[m.worker][m.slot]; u != nil && u.turn == m.turn && u.delivered.IsZero() {
		u.delivered = now
	}
}

// waiting is how many packets have not had their result.
func (j *judge) waiting() (n int) {
	for _, slots := range j.uses {
		for _, u := range slots {
			if u.delivered.IsZero() {
				n++
			}
		}
	}
	return n
}
