package bump

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"gradnic/codec"
	wire "gradnic/wire/bump"
	"gradnic/wire/inet"
)

var (
	hostMAC = [2]inet.MAC{{2, 0, 0, 0, 0, 1}, {2, 0, 0, 0, 0, 2}}
	hostIP  = [2]inet.Addr{{10, 70, 0, 1}, {10, 70, 0, 2}}
)

// tester is what testing.T and rapid.T have in common.
type tester interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

func mustRule(t tester, s string) Rule {
	t.Helper()
	r, err := ParseRule(s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// datagram is a UDP frame of host side to the other one, with a right checksum.
func datagram(side int, sport, dport uint16, id uint16, payload []byte) []byte {
	b := make([]byte, inet.PayloadOffset+len(payload))
	inet.PutEthernet(b, hostMAC[1-side], hostMAC[side], inet.EtherTypeIPv4)
	inet.PutIPv4(b[14:], inet.IPv4{ID: id, DontFragment: true, Proto: inet.ProtoUDP, Src: hostIP[side], Dst: hostIP[1-side], PayloadLen: 8 + len(payload)})
	inet.PutUDP(b[34:], inet.UDP{Src: sport, Dst: dport, PayloadLen: len(payload)})
	copy(b[inet.PayloadOffset:], payload)
	binary.BigEndian.PutUint16(b[40:], inet.UDPChecksum(hostIP[side], hostIP[1-side], b[34:]))
	return b
}

// segment is a TCP frame with timestamps in its header, and a right checksum.
func segment(side int, sport, dport uint16, id uint16, seq uint32, payload []byte) []byte {
	const head = 32
	b := make([]byte, inet.L4Offset+head+len(payload))
	inet.PutEthernet(b, hostMAC[1-side], hostMAC[side], inet.EtherTypeIPv4)
	inet.PutIPv4(b[14:], inet.IPv4{ID: id, Proto: protoTCP, Src: hostIP[side], Dst: hostIP[1-side], PayloadLen: head + len(payload)})
	t := b[34:]
	binary.BigEndian.PutUint16(t, sport)
	binary.BigEndian.PutUint16(t[2:], dport)
	binary.BigEndian.PutUint32(t[4:], seq)
	t[12], t[13] = head/4<<4, 0x18
	copy(t[20:], []byte{1, 1, 8, 10, 0, 0, 1, 2, 0, 0, 3, 4})
	copy(t[head:], payload)
	s := uint32(inet.PseudoHeaderSum(hostIP[side], hostIP[1-side], protoTCP, len(t)))
	binary.BigEndian.PutUint16(t[16:], ^uint16(inet.Sum(s, t)))
	return b
}

// gradient fills n float32 the way gradients are: normal, over a few orders of magnitude.
func gradient(r *rand.Rand, n int, bigEndian bool) []byte {
	b := make([]byte, 4*n)
	scale := math.Pow(10, float64(r.IntN(6))-6)
	for i := range n {
		w := math.Float32bits(float32(r.NormFloat64() * scale))
		if bigEndian {
			binary.BigEndian.PutUint32(b[4*i:], w)
		} else {
			binary.LittleEndian.PutUint32(b[4*i:], w)
		}
	}
	return b
}

// pair is two engines with a wire between them and a clock.
type pair struct {
	t       tester
	e       [2]*Engine
	o       [2]Options
	now     int64
	onWire  [2][][]byte // what side i has sent on the wire and the other has not taken yet
	toHost  [2][][]byte // what side i has given to its host
	events  [2][]Event
	without [2]bool // no NIC at this side: the wire ends at the host
}

func newPair(t tester, rules ...string) *pair {
	p := &pair{t: t, now: 1}
	for side := range 2 {
		for _, r := range rules {
			p.o[side].Rules = append(p.o[side].Rules, mustRule(t, r))
		}
		p.o[side].Emit = func(to Side, length int) []byte {
			b := bytes.Repeat([]byte{0xa5}, length)
			if to == Wire {
				p.onWire[side] = append(p.onWire[side], b)
			} else {
				p.toHost[side] = append(p.toHost[side], b)
			}
			return b
		}
		p.o[side].Event = func(e Event) { p.events[side] = append(p.events[side], e) }
		p.start(side)
	}
	return p
}

// start gives a side a new engine: the old one's life is over.
func (p *pair) start(side int) {
	var err error
	if p.e[side], err = New(p.o[side]); err != nil {
		p.t.Fatal(err)
	}
}

// host sends a batch of frames from the host of a side.
func (p *pair) host(side int, frames ...[]byte) {
	for _, f := range frames {
		f = bytes.Clone(f)
		if p.without[side] || p.e[side].FromHost(f, p.now) == Pass {
			p.onWire[side] = append(p.onWire[side], f)
		}
	}
	if !p.without[side] {
		p.e[side].Flush(p.now)
	}
}

// carry takes what is on the wire across; way, if not nil, decides what becomes of the frames of a side.
func (p *pair) carry(way func(side int, frames [][]byte) [][]byte) {
	for len(p.onWire[0])+len(p.onWire[1]) > 0 {
		for side := range 2 {
			frames := p.onWire[side]
			p.onWire[side] = nil
			if way != nil {
				frames = way(side, frames)
			}
			for _, f := range frames {
				p.arrive(1-side, f)
			}
		}
	}
}

func (p *pair) arrive(side int, f []byte) {
	f = bytes.Clone(f)
	if p.without[side] {
		p.toHost[side] = append(p.toHost[side], f)
		return
	}
	if v, _ := p.e[side].FromWire(f, p.now); v == Pass {
		p.toHost[side] = append(p.toHost[side], f)
	}
}

// pass lets time pass, in steps, with perfect wires unless way says otherwise.
func (p *pair) pass(d time.Duration, way func(side int, frames [][]byte) [][]byte) {
	for end := p.now + int64(d); p.now < end; {
		p.now += int64(5 * time.Millisecond)
		for side := range 2 {
			if !p.without[side] {
				p.e[side].Tick(p.now)
			}
		}
		p.carry(way)
	}
}

// meet has both hosts say something and side 0 find its far end.
func (p *pair) meet() {
	p.t.Helper()
	p.host(1, arpFrom(1))
	p.host(0, arpFrom(0))
	p.e[0].touch(p.e[0].pathOf(hostMAC[0], hostMAC[1]), hostIP[1])
	p.pass(10*time.Millisecond, nil)
	if s := p.e[0].Status(); len(s.Peers) != 1 || s.Peers[0].State != Present {
		p.t.Fatalf("they do not find each other: %+v", s)
	}
	p.toHost = [2][][]byte{}
}

func arpFrom(side int) []byte {
	b := make([]byte, 60)
	inet.PutARP(b, inet.ARP{Op: inet.ARPRequest, SenderMAC: hostMAC[side], SenderIP: hostIP[side], TargetIP: hostIP[1-side]})
	return b
}

// near says how got differs from the frame that was sent, beyond what the rule's codec may change: "" for not at all.
func near(sent, got []byte, r *Rule) string {
	if bytes.Equal(sent, got) {
		return ""
	}
	if len(sent) != len(got) {
		return fmt.Sprintf("%d bytes, sent were %d", len(got), len(sent))
	}
	if r == nil || r.Codec == nil || r.Codec.Info().Lossless {
		return "it differs"
	}
	at := inet.PayloadOffset + r.Offset
	n := (len(sent) - at) / r.Type.Size()
	end := at + n*r.Type.Size()
	exact := func(b []byte) []byte {
		c := bytes.Clone(b)
		clear(c[at:end])
		clear(c[40:42]) // the checksum is the payload's
		return c
	}
	if !bytes.Equal(exact(sent), exact(got)) {
		return "something other than the elements differs"
	}
	want := uint16(0)
	if sent[40]|sent[41] != 0 {
		want = inet.UDPChecksum(inet.Addr(got[26:30]), inet.Addr(got[30:34]), got[34:])
	}
	if sum := binary.BigEndian.Uint16(got[40:]); sum != want {
		return fmt.Sprintf("its checksum %#x is wrong", sum)
	}
	x, y := valuesOf(sent[at:end], r), valuesOf(got[at:end], r)
	bound := make([]float64, n)
	r.Codec.Bound(bound, x)
	for i := range x {
		d := math.Abs(float64(x[i]) - float64(y[i]))
		slack := 0.0
		switch r.Type {
		case wire.Float16:
			slack = math.Max(math.Abs(float64(y[i]))*0x1p-10, 0x1p-24)
		case wire.BFloat16:
			slack = math.Abs(float64(y[i])) * 0x1p-7
		}
		bothNaN := x[i] != x[i] && y[i] != y[i]
		if d > bound[i]+slack || d != d && !bothNaN && x[i] != y[i] && !math.IsInf(bound[i], 1) {
			return fmt.Sprintf("element %d is %v, was %v: more than %v", i, y[i], x[i], bound[i])
		}
	}
	return ""
}

func valuesOf(b []byte, r *Rule) []float32 {
	x := make([]float32, len(b)/r.Type.Size())
	c := map[wire.Type]codec.ID{wire.Float32: codec.IDNone, wire.Float16: codec.IDFP16, wire.BFloat16: codec.IDBF16}[r.Type]
	little := make([]byte, len(b))
	put(little, b, r.Type.Size(), r.BigEndian)
	plain, err := codec.ByID(c)
	if err == nil {
		err = plain.Decode(x, little, nil)
	}
	if err != nil {
		panic(err)
	}
	return x
}

// alone is an engine without a far end, and what it sends to its host.
func alone(t tester) (e *Engine, toHost *[][]byte) {
	t.Helper()
	toHost = new([][]byte)
	e, err := New(Options{Emit: func(side Side, length int) []byte {
		b := make([]byte, length)
		if side == Host {
			*toHost = append(*toHost, b)
		}
		return b
	}})
	if err != nil {
		t.Fatal(err)
	}
	return e, toHost
}
