package ring

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	wire "gradnic/wire/ring"
)

// names checks whom an error names.
func names(t tester, err error, node int) {
	t.Helper()
	var e *NodeError
	if !errors.As(err, &e) || int(e.Node) != node {
		t.Fatalf("%v; node %d was at fault", err, node)
	}
}

// allButOne waits until the jobs are over at all nodes but one.
func allButOne(w *network, limit int64, except int, jobs ...*job) bool {
	return w.until(limit, func() bool {
		for _, j := range jobs {
			for i, c := range j.done {
				if i != except && c == nil {
					return false
				}
			}
		}
		return true
	})
}

// TestRestart: a node is killed and started again at any moment, before its neighbours notice. What they submitted ends
// with an error or is exact; the node's own next request waits for the next generation.
func TestRestart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 5).Draw(t, "nodes")
		w := newNetwork(t, rapid.Uint64().Draw(t, "seed"))
		w.loss = rapid.SampledFrom([]float64{0, 0.01}).Draw(t, "loss")
		w.rate = rapid.SampledFrom([]float64{0, 0.025}).Draw(t, "rate")
		nodes := w.ringOf(n, nil)
		victim := rapid.IntRange(0, n-1).Draw(t, "victim")
		var jobs []*job
		for range rapid.IntRange(1, 4).Draw(t, "requests") {
			j := w.job(n, rapid.IntRange(1, 512*n*8).Draw(t, "length"), rapid.SampledFrom(codecNames).Draw(t, "codec"))
			jobs = append(jobs, j)
			j.submitAll(t, nodes)
		}
		// The ring needs about 60 us to form; a request takes some milliseconds.
		moment := w.now + rapid.Int64Range(0, 30_000_000).Draw(t, "moment")
		w.at(moment, 0xfff, nil)
		w.until(10*second, func() bool { return w.now >= moment })
		w.kill(uint16(victim))
		away := w.now + rapid.Int64Range(0, 3_000_000_000).Draw(t, "away")
		w.at(away, 0xfff, nil)
		w.until(10*second, func() bool { return w.now >= away })
		again := w.add(Config{Node: uint16(victim), Peers: peers(n), SliceElements: 512, Boot: 1000})
		// The new life hands in the first request once more, with other values.
		fresh := w.job(n, len(jobs[0].in[0]), jobs[0].codec)
		fresh.submit(t, again, victim)
		done := func() bool {
			for _, j := range jobs {
				for i, c := range j.done {
					if i != victim && c == nil {
						return false
					}
				}
			}
			return true
		}
		if !w.until(100*second, done) {
			t.Fatalf("hangs: %+v", nodes[(victim+1)%n].Status())
		}
		if c := fresh.done[victim]; c != nil && c.Err != nil {
			names(t, c.Err, victim)
		}
		mixed := *jobs[0] // when nothing had been done before, the ring may have formed with the new life
		mixed.in = append([][]float32(nil), jobs[0].in...)
		mixed.in[victim] = fresh.in[victim]
		for k, j := range jobs {
			want := j.want(t, 512)
			var other [][]float32
			if k == 0 {
				other = mixed.want(t, 512)
			}
			for i, c := range j.done {
				if i == victim {
					continue
				}
				if c.Err != nil {
					names(t, c.Err, victim)
					continue
				}
				if err := equal(j.data[i], want[i]); err != nil && (other == nil || equal(j.data[i], other[i]) != nil) {
					t.Fatalf("request %d, node %d says that it is right: %v", k, i, err)
				}
			}
		}
	})
}

// TestTwoViews: a node that is killed and comes back while the ring forms leaves some nodes with its first boot and some with
// its second. All end the generation with its name, soon, whoever lies between.
func TestTwoViews(t *testing.T) {
	for n := 2; n <= 6; n++ {
		for away := int64(1); away < 250_000; away += 9_000 {
			w := newNetwork(t, 0)
			w.rate = 0.025
			nodes := w.ringOf(n, nil)
			j := w.job(n, 100, "none")
			j.submitAll(t, nodes)
			w.until(1, func() bool { return false })
			w.kill(0)
			back := w.now + away
			w.at(back, 0xfff, nil)
			w.until(second, func() bool { return w.now >= back })
			again := w.add(Config{Node: 0, Peers: peers(n), SliceElements: 512, Boot: 1000})
			fresh := *j
			fresh.data = append([][]float32{append([]float32(nil), j.in[0]...)}, j.data[1:]...)
			fresh.submit(t, again, 0)
			if !allButOne(w, second/2, 0, j) {
				t.Fatalf("%d nodes, away for %d ns: not over: %+v", n, away, nodes[1].Status())
			}
			for _, c := range j.done[1:] {
				if c.Err != nil {
					names(t, c.Err, 0)
				}
			}
			if j.done[1].Err == nil {
				continue // all had seen the second life alone
			}
			// What the second life's host has handed in is for the next generation.
			if c := fresh.done[0]; c != nil {
				t.Fatalf("%d nodes, away for %d ns: at the node itself: %+v", n, away, c)
			}
			all := againstAll(n)
			for i := 1; i < n; i++ {
				if err := nodes[i].Reform(all); err != nil {
					t.Fatal(err)
				}
			}
			fresh.done = make([]*Completion, n)
			for i := 1; i < n; i++ {
				copy(fresh.data[i], j.in[i])
				fresh.submit(t, nodes[i], i)
			}
			if !w.until(second, fresh.over) {
				t.Fatalf("%d nodes, away for %d ns: not formed again: %+v", n, away, again.Status())
			}
			fresh.check(t, 512)
		}
	}
}

func againstAll(n int) (all []uint16) {
	for i := range n {
		all = append(all, uint16(i))
	}
	return all
}

// reformAll has every node's host form the ring of all again.
func reformAll(t tester, nodes []*Node) {
	t.Helper()
	for i, node := range nodes {
		if err := node.Reform(againstAll(len(nodes))); err != nil {
			t.Fatalf("node %d: %v", i, err)
		}
	}
}

// TestReformAtOnce: a node dies; the hosts of the others form the ring again without it as soon as they know, while others
// have not heard yet. All are told of the node that died, not of the neighbour that was quicker, and the new ring works.
func TestReformAtOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(3, 6).Draw(t, "nodes")
		w := newNetwork(t, rapid.Uint64().Draw(t, "seed"))
		w.loss = rapid.SampledFrom([]float64{0, 0.01, 0.1}).Draw(t, "loss")
		w.rate = rapid.SampledFrom([]float64{0, 0.025}).Draw(t, "rate")
		w.delay = rapid.Int64Range(1000, 3_000_000).Draw(t, "delay")
		nodes := w.ringOf(n, func(c *Config) {
			if w.loss > 0.05 { // eight hellos in a row may be lost
				c.DeadAfter = 3 * time.Second
			}
		})
		victim := rapid.IntRange(0, n-1).Draw(t, "victim")
		j := w.job(n, rapid.IntRange(1, 512*n*8).Draw(t, "length"), "bfp16")
		j.submitAll(t, nodes)
		first := w.now + rapid.Int64Range(0, 20_000_000).Draw(t, "moment")
		w.at(first, 0xfff, nil)
		w.until(10*second, func() bool { return w.now >= first })
		w.kill(uint16(victim))
		var rest []uint16
		for i := range n {
			if i != victim {
				rest = append(rest, uint16(i))
			}
		}
		next := w.job(n-1, 3000, "none")
		formed := make([]bool, n)
		over := func() bool {
			all := true
			for at, i := range rest {
				node := nodes[i]
				if !formed[i] && node.eng.ring.phase == Failed {
					formed[i] = true
					names(t, node.eng.ring.failure, victim)
					if err := node.Reform(rest); err != nil {
						t.Fatal(err)
					}
					next.submit(t, node, at)
				}
				all = all && formed[i] && next.done[at] != nil
			}
			return all
		}
		if !w.until(100*second, over) {
			t.Fatalf("hangs: %+v", nodes[rest[0]].Status())
		}
		for i, c := range j.done {
			if i != victim && (c == nil || c.Err != nil) {
				if c == nil {
					t.Fatalf("node %d: not over", i)
				}
				names(t, c.Err, victim)
			}
		}
		next.check(t, 512)
	})
}

// TestReformOfAWorkingRing: a host that forms the ring again for no reason that others see is the one they are told of.
func TestReformOfAWorkingRing(t *testing.T) {
	w := newNetwork(t, 1)
	nodes := w.ringOf(5, nil)
	j := w.job(5, 512*5*200, "none")
	j.submitAll(t, nodes)
	w.until(second/1000, func() bool { return false })
	if err := nodes[2].Reform(againstAll(5)); err != nil {
		t.Fatal(err)
	}
	failed(t, w, j, []int{0, 1, 2, 3, 4}, second/10, 2, wire.Superseded)
}

// TestDeadlineNames: a deadline that passes before a dead node counts as one names it all the same, at all nodes; and when the
// time was just too short, nobody else is named.
func TestDeadlineNames(t *testing.T) {
	const n = 6
	for dead := range n {
		w := newNetwork(t, uint64(dead))
		nodes := w.ringOf(n, func(c *Config) { c.DeadAfter = 2 * time.Second })
		first := w.job(n, 5000, "bfp16")
		var alive []int
		for i, node := range nodes {
			first.submit(t, node, i)
			if i != dead {
				alive = append(alive, i)
			}
		}
		if !w.until(second, first.over) {
			t.Fatal("not done")
		}
		w.kill(uint16(dead))
		j := w.job(n, 5000, "bfp16")
		for _, i := range alive {
			_, err := nodes[i].Submit(Request{Data: j.data[i], Deadline: 1300 * time.Millisecond, Done: func(c Completion) { j.done[i] = &c }})
			if err != nil {
				t.Fatal(err)
			}
		}
		failed(t, w, j, alive, 2*second, uint16(dead), wire.Deadline)
	}

	w := newNetwork(t, 1)
	w.rate = 0.0001 // 100 kB/s
	nodes := w.ringOf(3, func(c *Config) { c.Deadline = 900 * time.Millisecond })
	j := w.job(3, 512*3*200, "none")
	j.submitAll(t, nodes)
	if !w.until(10*second, j.over) {
		t.Fatal("hangs")
	}
	for i, c := range j.done {
		var e *NodeError
		if !errors.As(c.Err, &e) || e.Reason != wire.Deadline || e.Node != e.At {
			t.Errorf("node %d: %v", i, c.Err)
		}
	}

	// Two nodes that never came: each of the others names one of the two.
	w = newNetwork(t, 1)
	nodes = w.ringOf(n, func(c *Config) { c.Deadline = 500 * time.Millisecond })
	w.kill(1)
	w.kill(3)
	j = w.job(n, 9000, "bfp16")
	for _, i := range []int{0, 2, 4, 5} {
		j.submit(t, nodes[i], i)
	}
	w.until(second, func() bool { return false })
	for _, i := range []int{0, 2, 4, 5} {
		var e *NodeError
		if c := j.done[i]; c == nil || !errors.As(c.Err, &e) || e.Reason != wire.Deadline || e.Node != 1 && e.Node != 3 {
			t.Errorf("node %d: %+v", i, c)
		}
	}
}

// TestReformTogether: hosts that form the ring again at the same moment meet in one generation, whatever those before were numbered,
// and though messages of those before are still on their way.
func TestReformTogether(t *testing.T) {
	for n := 2; n <= 4; n++ {
		for _, first := range []uint32{1, math.MaxUint32 - 1, math.MaxUint32} {
			w := newNetwork(t, 1)
			nodes := w.ringOf(n, nil)
			for _, node := range nodes {
				node.eng.ring.generation = first
			}
			for round := range 6 {
				for i := range round { // one host is ahead by so many
					if err := nodes[1].Reform(againstAll(n)); err != nil {
						t.Fatal(i, err)
					}
					w.until(second/100, func() bool { return false })
				}
				said := false
				w.watch = func(from, _ uint16, b []byte) {
					v, _ := wire.Validate(b)
					said = said || from == 1 && v.Kind() == wire.Hello
				}
				w.until(second/2, func() bool { return said }) // it is on its way
				reformAll(t, nodes)
				j := w.job(n, 3000, "none")
				j.submitAll(t, nodes)
				if !w.until(second, j.over) {
					t.Fatalf("%d nodes, round %d: %+v", n, round, nodes[0].Status())
				}
				j.check(t, 512)
			}
		}
	}
}

// TestNewLifeWaits: a node that comes back to a ring of any generation ends it with its own name. What its host hands in waits; when
// nobody forms the ring again, the deadline's error says why it did not form, and blames no neighbour.
func TestNewLifeWaits(t *testing.T) {
	const n = 4
	for _, generations := range []int{1, 5} {
		for victim := range n {
			w := newNetwork(t, 1)
			nodes := w.ringOf(n, nil)
			for range generations - 1 {
				reformAll(t, nodes)
			}
			first := w.job(n, 3000, "none")
			first.submitAll(t, nodes)
			if !w.until(second, first.over) {
				t.Fatal("not done")
			}
			w.kill(uint16(victim))
			w.until(second/10, func() bool { return false })
			again := w.add(Config{Node: uint16(victim), Peers: peers(n), SliceElements: 512, Boot: 1000, Deadline: 700 * time.Millisecond})
			j := w.job(n, 3000, "none")
			j.submit(t, again, victim)
			w.until(second/2, func() bool { return false })
			for i, node := range nodes {
				if i == victim {
					continue
				}
				names(t, node.eng.ring.failure, victim)
			}
			if j.done[victim] != nil {
				t.Fatalf("generation %d, node %d: %+v", generations, victim, j.done[victim])
			}
			if !w.until(second, func() bool { return j.done[victim] != nil }) {
				t.Fatal("it waits beyond its deadline")
			}
			names(t, j.done[victim].Err, victim)
		}
	}
}

// TestRemedies: an error says what to do next, which is not the same after each failure.
func TestRemedies(t *testing.T) {
	for _, c := range []struct {
		e    NodeError
		want string
	}{
		{NodeError{Node: 2, At: 1, Reason: wire.Silent}, "without the node, or with it when it is back"},
		{NodeError{Node: 2, At: 1, Reason: wire.Mismatch}, "all nodes must hand in the same requests"},
		{NodeError{Node: 2, At: 1, Reason: wire.Superseded}, "form it again here too, of the same nodes"},
		{NodeError{Node: 1, At: 1, Reason: wire.Deadline}, "knows of no node that holds the request up; form the ring again"},
	} {
		if got := c.e.Error(); !strings.Contains(got, c.want) {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
