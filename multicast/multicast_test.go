package multicast

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"gradnic/wire/inet"
	"gradnic/wire/switchml"
)

func member(rank, port int) Member {
	return Member{Rank: rank, Port: port, MAC: inet.MAC{2, 0, 0, 0, 1, byte(rank)}, IP: inet.Addr{10, 50, byte(rank >> 8), byte(rank)}}
}

func TestGroupByRankAndPort(t *testing.T) {
	g, err := NewGroup(5, member(3, 0), member(0, 1), member(4, Unknown), member(1, 1))
	if err != nil {
		t.Fatal(err)
	}
	if g.Size() != 5 || g.Present() != 4 || g.Unreachable() != 2 {
		t.Errorf("size %d, present %d, unreachable %d", g.Size(), g.Present(), g.Unreachable())
	}
	ranks := func(g *Group) (r []int) {
		for _, c := range g.Copies() {
			r = append(r, c.Rank)
		}
		return r
	}
	if got := ranks(g); !slices.Equal(got, []int{3, 0, 1}) {
		t.Errorf("copies to ranks %v, want those of port 0, then of port 1", got)
	}
	for rank, want := range []bool{true, true, false, true, true} {
		if m, ok := g.Member(rank); ok != want || ok && m != member(rank, m.Port) {
			t.Errorf("rank %d: %+v %v", rank, m, ok)
		}
	}
	for _, rank := range []int{-1, 5} {
		if _, ok := g.Member(rank); ok {
			t.Errorf("rank %d has a member", rank)
		}
	}

	// A learned port and a new member make new groups; the old one stays.
	h, err := g.With(member(4, 0))
	if err != nil {
		t.Fatal(err)
	}
	if h, err = h.With(member(2, 2)); err != nil {
		t.Fatal(err)
	}
	if got := ranks(h); !slices.Equal(got, []int{3, 4, 0, 1, 2}) || h.Unreachable() != 0 {
		t.Errorf("copies to ranks %v, %d unreachable", got, h.Unreachable())
	}
	if got := ranks(g); !slices.Equal(got, []int{3, 0, 1}) || g.Present() != 4 {
		t.Errorf("the old group changed: copies to ranks %v", got)
	}
}

func TestGroupRefused(t *testing.T) {
	with := func(f func(*Member)) []Member { m := member(0, 0); f(&m); return []Member{m} }
	for _, c := range []struct {
		size    int
		members []Member
		say     string
	}{
		{0, nil, "size 0"},
		{1025, nil, "size 1025"},
		{2, []Member{member(0, 0), member(0, 1)}, "rank 0 is given twice"},
		{2, with(func(m *Member) { m.Rank = 2 }), "rank 2"},
		{2, with(func(m *Member) { m.Rank = -1 }), "rank -1"},
		{2, with(func(m *Member) { m.Port = -2 }), "port -2"},
		{2, with(func(m *Member) { m.MAC = inet.MAC{} }), "MAC"},
		{2, with(func(m *Member) { m.MAC = inet.Broadcast }), "MAC"},
		{2, with(func(m *Member) { m.IP = inet.Addr{} }), "IP"},
		{2, with(func(m *Member) { m.IP = inet.Addr{224, 0, 0, 1} }), "IP"},
	} {
		if _, err := NewGroup(c.size, c.members...); err == nil || !strings.Contains(err.Error(), c.say) {
			t.Errorf("%+v: %v, want an error about %q", c, err, c.say)
		}
	}
	g, err := NewGroup(2)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.With(member(2, 0)); err == nil {
		t.Error("With took rank 2 of a group of 2")
	}
}

// Each copy has its own addresses and checksums, and one payload.
func TestSwitchMLCopies(t *testing.T) {
	for _, elements := range []int{64, 256} {
		const n = 300
		var members []Member
		for rank := range n {
			m := member(rank+1, rank%3)
			m.Rank = rank
			if rank%5 == 0 {
				m.UDPPort = uint16(5000 + rank)
			}
			members = append(members, m)
		}
		g, err := NewGroup(n, members...)
		if err != nil {
			t.Fatal(err)
		}
		r := switchml.Reply{
			Switch:   switchml.Endpoint{MAC: inet.MAC{6, 0, 0, 0, 0, 0xfe}, IP: inet.Addr{10, 50, 0, 254}, Port: switchml.PortBase + 1},
			Worker:   switchml.Endpoint{Port: 4003},
			Elements: elements, Job: 7, TSI: [4]byte{1, 2, 3, 4}, PoolIndex: switchml.PoolIndexOf(1, 99), E0: -4, E1: 3,
		}
		values := make([]byte, 4*elements)
		for i := range values {
			values[i] = byte(i * 31)
		}
		size := switchml.FrameLen(elements)
		frames := make([][]byte, n+1)
		for i := range frames {
			frames[i] = bytes.Repeat([]byte{0xa5}, size+8)
		}
		// The values may be in one of the frames already.
		copy(frames[17][switchml.ValuesOffset:], values)
		if got := SwitchML(frames, g.Copies(), r, frames[17][switchml.ValuesOffset:size]); got != size {
			t.Fatalf("length %d, want %d", got, size)
		}
		seen := map[inet.Addr]bool{}
		for i, c := range g.Copies() {
			m, _ := g.Member(c.Rank)
			var p inet.Packet
			if f := inet.Parse(frames[i][:size], &p); f != inet.OK {
				t.Fatalf("copy %d: %v", i, f)
			}
			port := m.UDPPort
			if port == 0 {
				port = 4003
			}
			if p.Dst != m.MAC || p.DstIP != m.IP || p.DstPort != port || p.Src != r.Switch.MAC || p.SrcIP != r.Switch.IP || p.SrcPort != r.Switch.Port {
				t.Errorf("copy for rank %d: %+v", c.Rank, p)
			}
			if sum := inet.Checksum(frames[i][14:34]); sum != 0 {
				t.Errorf("copy for rank %d: IPv4 header sums to %#x", c.Rank, sum)
			}
			r.Worker = switchml.Endpoint{MAC: m.MAC, IP: m.IP, Port: port}
			want := bytes.Repeat([]byte{0xa5}, size+8)
			copy(want[switchml.ValuesOffset:], values)
			switchml.PutReply(want, r)
			if !bytes.Equal(frames[i], want) {
				t.Fatalf("copy for rank %d is not the reply to it\n got %x\nwant %x", c.Rank, frames[i], want)
			}
			seen[p.DstIP] = true
		}
		if len(seen) != n {
			t.Errorf("%d destinations for %d members", len(seen), n)
		}
		if !bytes.Equal(frames[n], bytes.Repeat([]byte{0xa5}, size+8)) {
			t.Error("a frame without a copy was written to")
		}
	}
}

func TestSwitchMLRefuses(t *testing.T) {
	g, err := NewGroup(2, member(0, 0), member(1, 0))
	if err != nil {
		t.Fatal(err)
	}
	frames := func(sizes ...int) (f [][]byte) {
		for _, n := range sizes {
			f = append(f, make([]byte, n))
		}
		return f
	}
	for _, c := range []struct {
		name     string
		frames   [][]byte
		elements int
		values   int
	}{
		{"too few frames", frames(308), 64, 256},
		{"a frame too short", frames(308, 307), 64, 256},
		{"values too short", frames(308, 308), 64, 252},
		{"values too long", frames(308, 308), 64, 260},
		{"no size code", frames(4096, 4096), 128, 512},
	} {
		if n := SwitchML(c.frames, g.Copies(), switchml.Reply{Elements: c.elements}, make([]byte, c.values)); n != 0 {
			t.Errorf("%s: %d", c.name, n)
		}
		for _, f := range c.frames {
			if !bytes.Equal(f, make([]byte, len(f))) {
				t.Errorf("%s: a frame was written to", c.name)
			}
		}
	}
	if n := SwitchML(frames(308, 308), g.Copies(), switchml.Reply{Elements: 64}, make([]byte, 256)); n != 308 {
		t.Errorf("a good one: %d", n)
	}
}

func TestSwitchMLAllocatesNothing(t *testing.T) {
	g, err := NewGroup(2, member(0, 0), member(1, 0))
	if err != nil {
		t.Fatal(err)
	}
	frames, values := [][]byte{make([]byte, 308), make([]byte, 308)}, make([]byte, 256)
	if n := testing.AllocsPerRun(100, func() { SwitchML(frames, g.Copies(), switchml.Reply{Elements: 64}, values) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkSwitchML8(b *testing.B) {
	var members []Member
	var frames [][]byte
	for rank := range 8 {
		m := member(rank, 0)
		m.IP[0] = 10
		members = append(members, m)
		frames = append(frames, make([]byte, 308))
	}
	g, err := NewGroup(8, members...)
	if err != nil {
		b.Fatal(err)
	}
	values := make([]byte, 256)
	for b.Loop() {
		SwitchML(frames, g.Copies(), switchml.Reply{Elements: 64}, values)
	}
}
