package interop

import (
	"bufio"
	"encoding/binary"
	"io"
	"os"
	"testing"

	"gradnic/wire/inet"
	"gradnic/wire/switchml"
)

// refCard is SwitchML's switch once more, written from the protocol's page alone: the smallest thing that passes the
// suite. A mutation breaks one rule of it, and the suite must notice.
type refCard struct {
	mutation string
	slots    map[int]*refSlot
	out      [][]byte
}

type refSlot struct {
	seen   [2]uint32
	count  [2]int
	values [2][]int32
	exps   [2][2]int8
	first  []byte // the frame that came first
}

func newRefCard(mutation string) *refCard {
	return &refCard{mutation: mutation, slots: map[int]*refSlot{}}
}

func (c *refCard) Send(frame []byte) error { c.take(append([]byte(nil), frame...)); return nil }
func (c *refCard) Collect(int) ([][]byte, error) {
	out := c.out
	c.out = nil
	return out, nil
}
func (c *refCard) Limits() Limits { return Limits{} }
func (c *refCard) Close() error   { return nil }

func (c *refCard) is(m string) bool { return c.mutation == m }

func (c *refCard) take(f []byte) {
	o := Options{}
	_ = o.setDefaults()
	if len(f) >= 42 && binary.BigEndian.Uint16(f[12:]) == 0x0806 {
		c.arp(f, &o)
		return
	}
	if c.is("takes-vlan") && len(f) > 18 && binary.BigEndian.Uint16(f[12:]) == 0x8100 {
		f = append(f[:12:12], f[16:]...)
	}
	var p inet.Packet
	if inet.Parse(f, &p) != inet.OK || p.Proto != inet.ProtoUDP || !switchml.IsPort(p.DstPort) {
		return
	}
	if !c.is("takes-all") && (p.Dst != o.NIC.MAC || p.DstIP != o.NIC.IP) {
		return
	}
	if c.is("checks-checksum") && inet.Checksum(f[14:34]) != 0 {
		return
	}
	v, fault := switchml.Validate(p.Payload)
	if fault != switchml.OK {
		return
	}
	rank := -1
	for r := range o.Workers {
		if w := o.Workers[r]; w.MAC == p.Src && (w.IP == p.SrcIP || c.is("ignores-ip")) {
			rank = r
		}
	}
	if rank < 0 {
		return
	}
	c.contribute(f, v, rank, len(o.Workers), &o)
}

func (c *refCard) contribute(f []byte, v switchml.View, rank, n int, o *Options) {
	s := c.slots[v.Slot()]
	if s == nil {
		s = &refSlot{}
		for k := range s.values {
			s.values[k] = make([]int32, switchml.MaxElements)
		}
		c.slots[v.Slot()] = s
	}
	k := v.Set()
	before := s.seen[k]
	again := before>>rank&1 == 1 && !c.is("no-bitmap")
	s.seen[k] |= 1 << rank
	if !c.is("keeps-other-set") {
		s.seen[1-k] &^= 1 << rank
	}
	if !again {
		if s.count[k] == 0 {
			s.count[k] = n - 1
			s.first = f
		} else {
			s.count[k]--
		}
		e0, e1 := v.Exponents()
		for i := range v.Elements() {
			x := int32(binary.BigEndian.Uint32(v.Values()[4*i:]))
			switch sum := int64(s.values[k][i]) + int64(x); {
			case before == 0:
				s.values[k][i] = x
			case c.is("saturates") && sum != int64(int32(sum)):
				s.values[k][i] = int32(min(max(sum, -1<<31), 1<<31-1))
			default:
				s.values[k][i] += x
			}
		}
		switch {
		case before == 0:
			s.exps[k] = [2]int8{e0, e1}
		case c.is("unsigned-exponents"):
			s.exps[k] = [2]int8{int8(max(uint8(s.exps[k][0]), uint8(e0))), int8(max(uint8(s.exps[k][1]), uint8(e1)))}
		default:
			s.exps[k] = [2]int8{max(s.exps[k][0], e0), max(s.exps[k][1], e1)}
		}
	}
	switch complete := s.count[k] == 0; {
	case !again && complete:
		for r := range n {
			c.reply(f, v, s, k, r, o)
		}
	case again && complete && !c.is("never-answers"):
		c.reply(f, v, s, k, rank, o)
	case c.is("answers-early"):
		c.reply(f, v, s, k, rank, o)
	}
}

func (c *refCard) reply(f []byte, v switchml.View, s *refSlot, k, rank int, o *Options) {
	out := make([]byte, switchml.FrameLen(v.Elements()))
	from := f
	if c.is("echoes-first") {
		from = s.first
	}
	var p inet.Packet
	_ = inet.Parse(from, &p)
	x, _ := switchml.Validate(p.Payload)
	w := o.Workers[rank]
	w.Port = p.SrcPort
	switchml.PutReply(out, switchml.Reply{
		Switch: switchml.Endpoint{MAC: o.NIC.MAC, IP: o.NIC.IP, Port: p.DstPort}, Worker: switchml.Endpoint(w),
		Elements: v.Elements(), Job: x.Job(), TSI: x.TSI(), PoolIndex: x.PoolIndex(), E0: s.exps[k][0], E1: s.exps[k][1],
	})
	for i := range v.Elements() {
		binary.BigEndian.PutUint32(out[switchml.ValuesOffset+4*i:], uint32(s.values[k][i]))
	}
	switch {
	case c.is("keeps-ttl"):
		out[22] = f[22]
		inet.SetIPv4Checksum(out[14:])
	case c.is("keeps-bit14"):
		out[48] |= f[48] & 0x40
	case c.is("fixed-port"):
		binary.BigEndian.PutUint16(out[36:], 4000)
	case c.is("udp-checksum"):
		binary.BigEndian.PutUint16(out[40:], 0xbeef)
	case c.is("pads"):
		out = append(out, 0, 0)
	case c.is("bad-checksum"):
		out[24] ^= 1
	case c.is("little-endian"):
		for i := switchml.ValuesOffset; i < len(out); i += 4 {
			binary.BigEndian.PutUint32(out[i:], binary.LittleEndian.Uint32(out[i:]))
		}
	}
	c.out = append(c.out, out)
}

func (c *refCard) arp(f []byte, o *Options) {
	var a inet.ARP
	if inet.ParseARP(f, &a) == inet.OK && (a.Answerable(o.NIC.IP) || c.is("answers-any-arp")) {
		n := inet.ReplyARP(f, o.NIC.MAC, o.NIC.IP)
		c.out = append(c.out, f[:n])
	}
}

// serve plays the part of a simulator behind a pipe.
func (c *refCard) serve(in io.Reader, out io.Writer) error {
	r, w := bufio.NewReader(in), bufio.NewWriter(out)
	put := func(f []byte) {
		var h [4]byte
		binary.BigEndian.PutUint32(h[:], uint32(len(f)))
		_, _ = w.Write(h[:])
		_, _ = w.Write(f)
	}
	for {
		var h [4]byte
		if _, err := io.ReadFull(r, h[:]); err != nil {
			if err == io.EOF {
				return nil
			}
			return err
		}
		f := make([]byte, binary.BigEndian.Uint32(h[:]))
		if _, err := io.ReadFull(r, f); err != nil {
			return err
		}
		if len(f) > 0 {
			c.take(f)
			continue
		}
		for _, f := range c.out {
			put(f)
		}
		c.out = nil
		put(nil)
		if err := w.Flush(); err != nil {
			return err
		}
	}
}

// TestMain is the simulator when the test binary is run as one.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && len(os.Args[1]) > 5 && os.Args[1][:5] == "card:" {
		if err := newRefCard(os.Args[1][5:]).serve(os.Stdin, os.Stdout); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}
