package interop

import (
	"encoding/binary"
	"time"

	"gradnic/wire/inet"
	"gradnic/wire/native"
)

// refNative is the network's end of the native protocol once more, for two workers, written from docs/protocol.md: the
// smallest thing that passes the suite. Its time is its own: it passes where stall says so, before a frame of the kit's,
// and no test waits for it. A mutation breaks one rule, and the suite must notice.
type refNative struct {
	mutation string
	stall    func(frame int) time.Duration // before each frame that is sent to it; nil: none
	clock    time.Time
	sent     int
	notices  int // of code collecting
	o        Options

	state       native.Code // Waiting, Ready, Aborted or OutOfStep
	epoch, life uint32
	ranks       []byte // whom the state is about
	reports     [2]*native.ReportBody
	marks       [2]uint32
	slots       map[uint32]map[uint32]*refRound // by round

	out [][]byte
	at  []time.Time
	got []time.Time
}

type refRound struct {
	seen    [2]bool
	values  []byte
	wrapped bool
	since   time.Time
}

func (r *refRound) complete() bool { return r.seen[0] && r.seen[1] }

func newRefNative(o Options, mutation string, stall func(int) time.Duration) *refNative {
	return &refNative{mutation: mutation, stall: stall, o: o, clock: time.Unix(0, 0), epoch: 1, state: native.Waiting, slots: map[uint32]map[uint32]*refRound{}}
}

func (c *refNative) Send(frame []byte) error {
	if c.stall != nil {
		c.clock = c.clock.Add(c.stall(c.sent))
	}
	c.sent++
	c.clock = c.clock.Add(time.Microsecond)
	var p inet.Packet
	if inet.Parse(frame, &p) != inet.OK || p.Dst != c.o.NIC.MAC || p.DstIP != c.o.NIC.IP || p.Proto != inet.ProtoUDP || p.DstPort != native.Port {
		return nil
	}
	v, fault := native.Validate(p.Payload)
	if fault != native.OK || v.Kind().FromNetwork() || v.Job() != 1 || v.Rank() > 1 || v.Slot() >= uint32(c.o.Slots) || v.Flags()&native.FlagTagged != 0 {
		return nil
	}
	if w := c.o.worker(v.Rank()); w.MAC != p.Src || w.IP != p.SrcIP {
		return nil
	}
	c.take(v)
	return nil
}

// Collect gives what was sent, and when. The pause of a case is time too: it is told by the call before it.
func (c *refNative) Collect(int) ([][]byte, error) {
	out := c.out
	c.got, c.out, c.at = c.at, nil, nil
	return out, nil
}

func (c *refNative) now() time.Time    { return c.clock }
func (c *refNative) came() []time.Time { return c.got }
func (c *refNative) Limits() Limits    { return Limits{Clock: true} }
func (c *refNative) Close() error      { return nil }

func (c *refNative) take(v native.View) {
	rank := v.Rank()
	switch kind := v.Kind(); {
	case kind == native.Report:
		r, ok := native.ParseReport(v.Payload(), v.Flags())
		if !ok || r.Nonce == 0 {
			return
		}
		r.Have = nil
		c.report(rank, &r, v)
	case v.Epoch() != c.epoch:
		c.notice(rank, c.state, c.ranks, 0, nil)
	case kind == native.Leave:
		if nonce := binary.BigEndian.Uint32(v.Payload()); c.reports[rank] == nil || nonce != c.reports[rank].Nonce {
			c.notice(rank, c.state, c.ranks, 0, nil)
			return
		}
		c.tellAll(native.Aborted, []byte{1 << rank}, -1)
	case c.state != native.Ready:
		c.notice(rank, c.state, c.ranks, 0, nil)
	case kind == native.Contribution:
		c.contribute(rank, v)
	}
}

func (c *refNative) report(rank int, r *native.ReportBody, v native.View) {
	known := c.reports[rank] != nil && c.reports[rank].Nonce == r.Nonce
	switch {
	case c.state == native.Ready && known:
		c.notice(rank, native.Ready, nil, r.Nonce, nil)
		return
	case c.state == native.Ready && r.Life != 0:
		c.notice(rank, native.Aborted, nil, r.Nonce, nil)
		return
	case c.state == native.Ready || c.state == native.Aborted && r.Life == 0:
		c.epoch, c.state = c.epoch+7, native.Waiting
		c.slots = map[uint32]map[uint32]*refRound{}
		c.reports = [2]*native.ReportBody{}
		c.reports[rank], c.marks[rank] = r, 0
		c.tellAll(native.Waiting, []byte{3 &^ (1 << rank)}, rank)
		return
	case r.Life != 0 && v.Epoch() != c.epoch || c.state != native.Waiting && r.Life != 0:
		c.notice(rank, c.state, c.ranks, r.Nonce, nil)
		return
	}
	c.reports[rank], c.marks[rank] = r, v.Round()*uint32(c.o.Slots)+v.Slot()
	a, b := c.reports[0], c.reports[1]
	switch {
	case a == nil || b == nil:
		c.ranks = []byte{3 &^ (1 << rank)}
		c.notice(rank, native.Waiting, c.ranks, r.Nonce, nil)
	case a.Life == 0 && b.Life == 0:
		c.life = c.epoch
		c.tellAll(native.Ready, nil, rank)
	default: // no case has workers that go on in step
		var anew byte
		for k, x := range c.reports {
			if x.Life == 0 {
				anew |= 1 << k
			}
		}
		c.tellAll(native.OutOfStep, []byte{anew}, rank)
	}
}

func (c *refNative) contribute(rank int, v native.View) {
	if v.Type() != native.Int32 || v.Elements() > c.o.Elements || len(v.Payload()) != 4*c.o.Elements {
		return
	}
	rounds := c.slots[v.Slot()]
	if rounds == nil {
		rounds = map[uint32]*refRound{}
		c.slots[v.Slot()] = rounds
	}
	r := rounds[v.Round()]
	if r == nil {
		if before := rounds[v.Round()-1]; len(rounds) > 0 && (before == nil || !before.complete()) {
			return // early, or stale
		}
		delete(rounds, v.Round()-2)
		r = &refRound{values: make([]byte, len(v.Payload())), since: c.clock}
		rounds[v.Round()] = r
	}
	waited := c.clock.Sub(r.since)
	switch {
	case r.complete():
		c.result(rank, v, r, native.FlagResend)
		return
	case r.seen[rank]:
		c.repeated(rank, v, waited)
		return
	}
	r.seen[rank] = true
	for i := 0; i < len(r.values); i += 4 {
		x, y := int32(binary.LittleEndian.Uint32(r.values[i:])), int32(binary.LittleEndian.Uint32(v.Payload()[i:]))
		r.wrapped = r.wrapped || int64(x)+int64(y) != int64(x+y)
		binary.LittleEndian.PutUint32(r.values[i:], uint32(x+y))
	}
	if r.complete() {
		c.result(0, v, r, 0)
		c.result(1, v, r, 0)
	}
	if c.mutation == "tells-all-that-wait" && waited >= 50*time.Millisecond || c.mutation == "tells-the-first" && !r.complete() {
		c.notice(rank, native.Collecting, []byte{2 >> rank}, 0, &v)
	}
}

// repeated is a duplicate of a round that waits.
func (c *refNative) repeated(rank int, v native.View, waited time.Duration) {
	late, code, to, patience := []byte{2 >> rank}, native.Collecting, rank, 50*time.Millisecond
	switch c.mutation {
	case "never-tells":
		return
	case "impatient":
		patience = 0
	case "hasty":
		patience = 20 * time.Millisecond
	case "wrong-ranks":
		late = []byte{1 << rank}
	case "no-ranks":
		late = nil
	case "wrong-code":
		code = native.Waiting
	case "wrong-worker":
		to = 1 - rank
	case "twice":
		defer c.notice(to, code, late, 0, &v)
	}
	if waited >= patience {
		c.notice(to, code, late, 0, &v)
	}
}

func (c *refNative) result(rank int, v native.View, r *refRound, flags native.Flags) {
	h := v.Header()
	h.Kind, h.Rank, h.Flags = native.Result, 2, flags
	if r.wrapped {
		h.Flags |= native.FlagWrapped
	}
	c.put(rank, &h, r.values)
}

// tellAll takes a state and tells it to all, to the one that has just reported with its nonce.
func (c *refNative) tellAll(state native.Code, ranks []byte, reported int) {
	c.state, c.ranks = state, ranks
	for k := range c.reports {
		nonce := uint32(0)
		if k == reported {
			nonce = c.reports[k].Nonce
		}
		c.notice(k, state, ranks, nonce, nil)
	}
}

// notice sends one; about is the contribution that it is about.
func (c *refNative) notice(rank int, code native.Code, ranks []byte, nonce uint32, about *native.View) {
	h := native.Header{Kind: native.Notice, Job: 1, Rank: uint16(rank), Epoch: c.epoch}
	if about != nil {
		h.Slot, h.Round, h.Collective = about.Slot(), about.Round(), about.Collective()
		c.notices++
	}
	n := native.NoticeBody{Code: code, Workers: 2, Elements: uint16(c.o.Elements), Slots: uint32(c.o.Slots), Deadline: 60000, Nonce: nonce, Ranks: ranks}
	if code == native.Ready {
		n.Life = c.life
	}
	body := make([]byte, n.Len())
	n.Put(body)
	c.put(rank, &h, body)
}

func (c *refNative) put(rank int, h *native.Header, payload []byte) {
	w := native.Endpoint(c.o.worker(rank))
	f := make([]byte, native.FrameLen(len(payload)))
	copy(f[native.ValuesOffset:], payload)
	native.PutFrame(f, &native.Endpoint{MAC: c.o.NIC.MAC, IP: c.o.NIC.IP, Port: native.Port}, &w, h, len(payload))
	c.out, c.at = append(c.out, f), append(c.at, c.clock)
}
