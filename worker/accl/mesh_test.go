package accl_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"gradnic/internal/acclcheck"
	wire "gradnic/wire/accl"
	"gradnic/wire/inet"
	. "gradnic/worker/accl"
)

// memConfig is a rank of a communicator in memory.
func memConfig(ranks, rank int) Config {
	c := Config{Rank: rank}
	for i := range ranks {
		c.Ranks = append(c.Ranks, Peer{IP: inet.Addr{10, 10, 10, byte(i + 1)}, MAC: inet.MAC{2, 0, 0, 0, 10, byte(i + 1)}})
	}
	return c
}

// mesh is ranks in memory with an ordered way between each two of them, as a wire is.
type mesh struct {
	ranks []*Responder
	ways  map[[2]int][][]byte
	trace []message
	// change may drop, double or hold back what goes into a way; nil passes all.
	change func(from, to int, payload []byte) [][]byte
	random *rand.Rand
}

// message is one entry of the list of messages that docs and the firmware agree on.
type message struct {
	from, to, bytes int
	seq             uint32
}

func (m message) String() string { return fmt.Sprintf("%d>%d:%d", m.from, m.to, m.bytes) }

// newMesh makes ranks with their calls; calls(rank) are that rank's.
func newMesh(t testing.TB, ranks int, change func(*Config), calls func(rank int) []Call) *mesh {
	t.Helper()
	m := &mesh{ways: map[[2]int][][]byte{}, random: rand.New(rand.NewPCG(1, 2))}
	for r := range ranks {
		cfg := memConfig(ranks, r)
		if change != nil {
			change(&cfg)
		}
		p, err := NewResponder(cfg, calls(r)...)
		if err != nil {
			t.Fatal(err)
		}
		m.ranks = append(m.ranks, p)
	}
	return m
}

// post puts what a rank sends on its ways, and notes the messages.
func (m *mesh) post(from int, ds []Datagram) {
	for _, d := range ds {
		var h wire.Header
		if wire.ParseHeader(d.Payload, &h) == wire.OK && h.Src == uint32(from) && h.Type == wire.Eager && h.Count > 0 {
			m.trace = append(m.trace, message{from, d.To, int(h.Count), h.Seq})
		}
		out := [][]byte{d.Payload}
		if m.change != nil {
			out = m.change(from, d.To, d.Payload)
		}
		k := [2]int{from, d.To}
		m.ways[k] = append(m.ways[k], out...)
	}
}

// run delivers until nothing is on its way, from a random way each time.
func (m *mesh) run() {
	for r, p := range m.ranks {
		m.post(r, p.Start())
	}
	m.drain()
}

func (m *mesh) drain() {
	for {
		var ready [][2]int
		for k, q := range m.ways {
			if len(q) > 0 {
				ready = append(ready, k)
			}
		}
		if len(ready) == 0 {
			return
		}
		slices.SortFunc(ready, func(a, b [2]int) int { return slices.Compare(a[:], b[:]) })
		k := ready[m.random.IntN(len(ready))]
		b := m.ways[k][0]
		m.ways[k] = m.ways[k][1:]
		out, _ := m.ranks[k[1]].Datagram(k[0], b)
		m.post(k[1], out)
	}
}

func (m *mesh) check(t testing.TB, j *acclcheck.Job) {
	t.Helper()
	for r, p := range m.ranks {
		if !p.Done() {
			t.Fatalf("%v of %d: rank %d is not done", j.Calls[r].Collective, j.Calls[r].Count, r)
		}
		for _, err := range p.Results() {
			if err != nil {
				t.Fatal(err)
			}
		}
		if _, err := j.Wrong(r); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCollectivesInMemory: every collective, type, operation and root on many sizes, by one to five ranks, equal to a
// reference that was written from the documentation alone, bit for bit.
func TestCollectivesInMemory(t *testing.T) {
	for ranks := 1; ranks <= 5; ranks++ {
		for root := range ranks {
			if !*full && (ranks == 5 || root != ranks-1 && root != 0 || ranks == 4 && root == 0) {
				continue
			}
			for _, c := range acclcheck.Kinds(root) {
				if c.Collective == Send && ranks == 1 {
					continue
				}
				var jobs []*acclcheck.Job
				for _, n := range append([]int{0}, acclcheck.Sizes(c.Type, DefaultSegment, !*full)...) {
					if underRace && n%7 != 1 && n > 3 {
						continue
					}
					if *full || n <= 9 || ranks == 3 || n%ranks == 1 {
						c.Count = n
						jobs = append(jobs, acclcheck.New(c, ranks, DefaultSegment, uint64(n)))
					}
				}
				m := newMesh(t, ranks, nil, func(r int) (cs []Call) {
					for _, j := range jobs {
						cs = append(cs, j.Of(r)...)
					}
					return cs
				})
				m.run()
				for _, j := range jobs {
					m.check(t, j)
				}
			}
		}
	}
}

// TestLongMessages: segments of several datagrams.
func TestLongMessages(t *testing.T) {
	const segment = 3*wire.MaxDatagram - 64
	for _, c := range acclcheck.Kinds(1) {
		for _, n := range []int{1007, 1008, 1009, 2048, 3000, 6200} {
			c.Count = n
			if c.Collective == AllReduce {
				continue // the reference cuts at the default segment
			}
			j := acclcheck.New(c, 3, DefaultSegment, 5)
			m := newMesh(t, 3, func(cfg *Config) { cfg.Segment, cfg.LongMessages = segment, true }, j.Of)
			m.run()
			m.check(t, j)
		}
	}
}

// TestOverlap: a rank that is quicker begins the next calls while others are in the first; nothing gets mixed up.
func TestOverlap(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		ranks := rapid.IntRange(2, 4).Draw(rt, "ranks")
		all := acclcheck.Kinds(rapid.IntRange(0, ranks-1).Draw(rt, "root"))
		var jobs []*acclcheck.Job
		for range rapid.IntRange(1, 6).Draw(rt, "calls") {
			c := rapid.SampledFrom(all).Draw(rt, "call")
			c.Count = rapid.IntRange(0, 2500).Draw(rt, "count")
			jobs = append(jobs, acclcheck.New(c, ranks, DefaultSegment, 3))
		}
		m := newMesh(t, ranks, nil, func(r int) (cs []Call) {
			for _, j := range jobs {
				cs = append(cs, j.Of(r)...)
			}
			return cs
		})
		m.random = rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "order"), 1))
		m.run()
		for _, j := range jobs {
			m.check(t, j)
		}
	})
}

// TestAnyAccident: datagrams are lost, doubled, or overtaken at random. Either all is right, or ranks end with an error
// that names what happened, once time has passed: never a wrong result, never a call without an end.
func TestAnyAccident(t *testing.T) {
	ended := map[string]int{}
	rapid.Check(t, func(rt *rapid.T) {
		ranks := rapid.IntRange(2, 4).Draw(rt, "ranks")
		c := rapid.SampledFrom(acclcheck.Kinds(0)).Draw(rt, "call")
		c.Count = rapid.IntRange(1, 3000).Draw(rt, "count")
		first, second := acclcheck.New(c, ranks, DefaultSegment, 3), acclcheck.New(c, ranks, DefaultSegment, 4)
		m := newMesh(t, ranks, nil, func(r int) []Call { return slices.Concat(first.Of(r), second.Of(r)) })
		m.random = rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "order"), 1))
		at := rapid.IntRange(0, 12).Draw(rt, "at")
		kind := rapid.SampledFrom([]string{"lost", "doubled", "overtaken", "cut", "flipped"}).Draw(rt, "kind")
		var held []byte
		var way [2]int
		k := 0
		m.change = func(from, to int, b []byte) [][]byte {
			k++
			switch {
			case held != nil && way == [2]int{from, to}:
				out := [][]byte{b, held}
				held = nil
				return out
			case k != at+1:
				return [][]byte{b}
			}
			switch kind {
			case "lost":
				return nil
			case "doubled":
				return [][]byte{b, b}
			case "overtaken":
				held, way = b, [2]int{from, to}
				return nil
			case "cut":
				return [][]byte{b[:len(b)-64]}
			}
			bad := bytes.Clone(b)
			bad[12] ^= 1 // the sequence number
			return [][]byte{bad}
		}
		m.run()
		happened := k > at
		for range 3 * ranks {
			for r, p := range m.ranks {
				m.post(r, p.Pass(DefaultTimeout))
			}
			m.drain()
		}
		wrong := 0
		for r, p := range m.ranks {
			if !p.Done() {
				rt.Fatalf("rank %d does not end", r)
			}
			for i, err := range p.Results() {
				if err == nil {
					if _, err := []*acclcheck.Job{first, second}[i].Wrong(r); err != nil {
						rt.Fatalf("%s: %v", kind, err)
					}
					continue
				}
				wrong++
				var pe *PeerError
				if !errors.As(err, &pe) || (pe.Why != ErrLost && pe.Why != ErrTimeout) {
					rt.Fatalf("rank %d: %v", r, err)
				}
				ended[pe.Why.Error()]++
			}
		}
		if happened && kind != "doubled" && held == nil && wrong == 0 && !(kind == "overtaken") {
			rt.Fatalf("%s datagram %d, and nobody noticed", kind, at)
		}
		if kind == "doubled" && wrong > 0 {
			rt.Fatal("a doubled datagram did harm")
		}
	})
	if len(ended) != 2 {
		t.Errorf("not all ends were met: %v", ended)
	}
}

// TestNamed: one datagram of an allreduce of three ranks is lost, or two change places. The rank that should get them
// names it at once where the next message shows it; the others have a timeout that names whom they wait for; all calls
// after that are refused with the first reason.
func TestNamed(t *testing.T) {
	for _, c := range []struct {
		name      string
		change    func(k int, b []byte, hold *[]byte) [][]byte
		atOnce    string
		afterTime string
	}{
		{"lost", func(k int, b []byte, _ *[]byte) [][]byte {
			if k == 1 {
				return nil
			}
			return [][]byte{b}
		}, "allreduce at rank 1: message 0 from rank 0: a datagram is missing (accl-ahead)", "no message in time"},
		{"overtaken", func(k int, b []byte, hold *[]byte) [][]byte {
			if k == 1 {
				*hold = b
				return nil
			}
			out := [][]byte{b}
			if *hold != nil {
				out, *hold = append(out, *hold), nil
			}
			return out
		}, "allreduce at rank 1: message 0 from rank 0: a datagram is missing (accl-ahead)", "no message in time"},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := acclcheck.New(Call{Collective: AllReduce, Type: Int32, Count: 300}, 3, DefaultSegment, 1)
			m := newMesh(t, 3, nil, func(r int) []Call { return append(j.Of(r), j.Of(r)...) })
			k := 0
			var hold []byte
			m.change = func(from, to int, b []byte) [][]byte {
				if from != 0 || to != 1 {
					return [][]byte{b}
				}
				k++
				return c.change(k, b, &hold)
			}
			m.run()
			if got := m.ranks[1].Results(); len(got) != 2 || got[0].Error() != c.atOnce || !errors.Is(got[0], ErrLost) || !errors.Is(got[1], ErrEnded) || !errors.Is(got[1], ErrLost) {
				t.Errorf("rank 1: %v", got)
			}
			for _, r := range []int{0, 2} {
				if got := m.ranks[r].Results(); len(got) != 0 {
					t.Errorf("rank %d: %v before its time", r, got)
				}
				m.ranks[r].Pass(DefaultTimeout - time.Nanosecond)
				if got := m.ranks[r].Results(); len(got) != 0 {
					t.Errorf("rank %d: %v before its time", r, got)
				}
				m.ranks[r].Pass(time.Nanosecond)
				got := m.ranks[r].Results()
				if len(got) != 2 || !errors.Is(got[0], ErrTimeout) || !strings.Contains(got[0].Error(), c.afterTime) || !errors.Is(got[1], ErrEnded) {
					t.Errorf("rank %d: %v", r, got)
				}
			}
		})
	}
}
