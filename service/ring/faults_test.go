package ring

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	wire "gradnic/wire/ring"
)

// TestAnyNetwork: whatever a network loses, doubles and puts out of order, and whenever hosts come with their requests,
// every result is exact, and done in order.
func TestAnyNetwork(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 6).Draw(t, "nodes")
		w := newNetwork(t, rapid.Uint64().Draw(t, "seed"))
		w.loss = rapid.SampledFrom([]float64{0, 0.01, 0.1, 0.3}).Draw(t, "loss")
		w.duplicate = rapid.SampledFrom([]float64{0, 0.05}).Draw(t, "duplicate")
		w.reorder = rapid.SampledFrom([]float64{0, 0.2}).Draw(t, "reorder")
		w.room = rapid.SampledFrom([]int{8, outRoom}).Draw(t, "room")
		w.rate = rapid.SampledFrom([]float64{0, 0.025, 1}).Draw(t, "rate")
		window := rapid.IntRange(1, 5).Draw(t, "window")
		mtu := rapid.SampledFrom([]int{640, 1500, 9000}).Draw(t, "mtu")
		nodes := w.ringOf(n, func(c *Config) {
			c.Window, c.MTU, c.DeadAfter = window, mtu, 10*time.Second
		})
		var jobs []*job
		next := make([]int, n)
		for range rapid.IntRange(1, 8).Draw(t, "requests") {
			length := rapid.IntRange(0, 512*n*2).Draw(t, "length")
			jobs = append(jobs, w.job(n, length, rapid.SampledFrom(codecNames).Draw(t, "codec")))
		}
		pace := rapid.SampledFrom([]int64{1000, 3_000_000}).Draw(t, "pace")
		left := func() bool {
			for _, k := range next {
				if k < len(jobs) {
					return true
				}
			}
			return false
		}
		for left() {
			i := w.rng.IntN(n)
			if next[i] < len(jobs) && nodes[i].taken < Outstanding {
				j := jobs[next[i]]
				j.submit(t, nodes[i], i)
				next[i]++
			}
			at := w.now + w.rng.Int64N(pace)
			w.at(at, 0xfff, nil)
			w.until(pace, func() bool { return w.now >= at })
		}
		done := func() bool {
			for _, j := range jobs {
				if !j.over() {
					return false
				}
			}
			return true
		}
		if !w.until(600*second, done) {
			t.Fatalf("not done: %d of %d messages lost, node 0 %+v\nnode 1 %+v", w.lost, w.sent, nodes[0].Status(), nodes[1].Status())
		}
		for _, j := range jobs {
			j.check(t, 512)
		}
		for _, node := range nodes {
			c := node.eng.counters
			if c.Completed != uint64(len(jobs)) || c.Failed != 0 || c.Requests != c.Completed {
				t.Fatalf("counters %+v", c)
			}
			if w.loss == 0 && w.reorder == 0 && c.Resends > 0 && w.room == outRoom && w.rate != 0.025 {
				t.Fatalf("nothing was lost, and %d frames of %d were sent again", c.Resends, c.DataSent)
			}
		}
	})
}

// backToBack submits so many requests of random sizes, up to eight at a time, and checks each.
func backToBack(t *testing.T, requests int, loss float64) {
	const n = 4
	w := newNetwork(t, 7)
	w.loss = loss
	nodes := w.ringOf(n, nil)
	rng := rand.New(rand.NewPCG(3, 4))
	for done := 0; done < requests; {
		var batch []*job
		for range min(Outstanding, requests-done) {
			length := rng.IntN(1 << rng.IntN(15))
			batch = append(batch, w.job(n, length, codecNames[rng.IntN(len(codecNames))]))
		}
		for _, j := range batch {
			j.submitAll(t, nodes)
		}
		if !w.until(100*second, func() bool { return batch[len(batch)-1].over() }) {
			t.Fatalf("after %d requests: %+v", done, nodes[0].Status())
		}
		for _, j := range batch {
			j.check(t, 512)
		}
		done += len(batch)
	}
	if c := nodes[1].eng.counters; c.Completed != uint64(requests) {
		t.Fatalf("%+v", c)
	}
}

// TestBackToBack: GRADNIC_RING_REQUESTS=2000 for the long run.
func TestBackToBack(t *testing.T) {
	requests := 200
	if s := os.Getenv("GRADNIC_RING_REQUESTS"); s != "" {
		var err error
		if requests, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	for _, loss := range []float64{0, 0.01} {
		backToBack(t, requests, loss)
	}
}

// failed waits until every node that is left has ended its request with an error, and checks whom it names.
func failed(t *testing.T, w *network, j *job, alive []int, limit int64, node uint16, reason wire.Reason) {
	t.Helper()
	start := w.now
	if !w.until(limit, func() bool {
		for _, i := range alive {
			if j.done[i] == nil {
				return false
			}
		}
		return true
	}) {
		t.Fatalf("requests are not over after %v", time.Duration(w.now-start))
	}
	for _, i := range alive {
		var e *NodeError
		if !errors.As(j.done[i].Err, &e) || e.Node != node || e.Reason != reason {
			t.Fatalf("node %d: %v; want node %d: %v", i, j.done[i].Err, node, reason)
		}
	}
}

// TestDeath: a node dies in the middle of a request. All others end it with an error that names the node, within the
// deadline; the next generation goes on without it, and the one after that with it again.
func TestDeath(t *testing.T) {
	for _, c := range []struct {
		nodes int
		loss  float64
	}{{2, 0}, {3, 0}, {6, 0}, {8, 0.4}} {
		n := c.nodes
		for dead := range n {
			if c.loss > 0 && dead%4 != 0 {
				continue // it takes long
			}
			t.Run(fmt.Sprintf("%d-%d-%v", n, dead, c.loss), func(t *testing.T) {
				w := newNetwork(t, uint64(n+dead))
				w.rate, w.loss = 0.025, c.loss
				dead3 := func(c *Config) {
					if w.loss > 0.3 { // eight hellos in a row may be lost
						c.DeadAfter = 3 * time.Second
					}
				}
				nodes := w.ringOf(n, dead3)
				first := w.job(n, 5000, "bfp16")
				j := w.job(n, 512*n*50, "none")
				for i, node := range nodes {
					first.submit(t, node, i)
					j.submit(t, node, i)
				}
				w.until(100*second, first.over)
				first.check(t, 512)
				w.until(second/1000, func() bool { return false })
				w.kill(uint16(dead))
				var alive []int
				var left []uint16
				for i := range n {
					if i != dead {
						alive, left = append(alive, i), append(left, uint16(i))
					}
				}
				failed(t, w, j, alive, 5*second, uint16(dead), wire.Silent)
				if _, err := nodes[alive[0]].Submit(Request{Data: make([]float32, 1)}); !errors.As(err, new(*NodeError)) {
					t.Fatalf("a ring that has failed took a request: %v", err)
				}

				// Without it.
				for _, i := range alive {
					if err := nodes[i].Reform(left); err != nil {
						t.Fatal(err)
					}
				}
				k := w.job(len(alive), 4000, "bfp16")
				for at, i := range alive {
					k.submit(t, nodes[i], at)
				}
				if !w.until(50*second, k.over) {
					t.Fatalf("the ring without node %d: %+v", dead, nodes[alive[0]].Status())
				}
				if len(alive) > 1 {
					k.check(t, 512)
				}

				// With it.
				all := make([]uint16, n)
				for i := range all {
					all[i] = uint16(i)
				}
				again := Config{Node: uint16(dead), Peers: peers(n), SliceElements: 512, Boot: 1000}
				dead3(&again)
				nodes[dead] = w.add(again)
				for _, i := range alive {
					if err := nodes[i].Reform(all); err != nil {
						t.Fatal(err)
					}
				}
				m := w.job(n, 3000, "bfp16-intel")
				m.submitAll(t, nodes)
				if !w.until(50*second, m.over) {
					t.Fatalf("the ring with node %d again: %+v", dead, nodes[alive[0]].Status())
				}
				m.check(t, 512)
			})
		}
	}
}

// TestOneWay: a link that is dead in one direction only is noticed by whom it keeps silent to.
func TestOneWay(t *testing.T) {
	for from := range uint16(3) {
		for _, to := range []uint16{(from + 1) % 3, (from + 2) % 3} {
			w := newNetwork(t, 1)
			nodes := w.ringOf(3, nil)
			first := w.job(3, 2000, "bfp16")
			for i, n := range nodes {
				first.submit(t, n, i)
			}
			w.until(second, first.over)
			first.check(t, 512)
			w.cut[[2]uint16{from, to}] = true
			j := w.job(3, 512*3*100, "bfp16") // more than a window
			for i, n := range nodes {
				j.submit(t, n, i)
			}
			failed(t, w, j, []int{0, 1, 2}, 2*second, from, wire.Silent)
		}
	}
}

// TestLossIsCheap: at 1 % loss what was lost is found by what comes after it, not by timers: a request takes little longer.
func TestLossIsCheap(t *testing.T) {
	var took [2]int64
	for k, loss := range []float64{0, 0.01} {
		w := newNetwork(t, 3)
		w.rate, w.delay, w.loss = 0.025, 200_000, loss
		nodes := w.ringOf(4, func(c *Config) { c.SliceElements = DefaultSlice })
		j := w.job(4, 4*8*DefaultSlice, "none")
		for i, n := range nodes {
			j.submit(t, n, i)
		}
		if !w.until(60*second, j.over) {
			t.Fatal("not done")
		}
		j.check(t, DefaultSlice)
		took[k] = w.now
		c := nodes[0].eng.counters
		if loss > 0 && (c.Resends == 0 || c.Timeouts > c.Resends/4) {
			t.Errorf("%d frames sent again, %d timers ended", c.Resends, c.Timeouts)
		}
	}
	if took[1] > took[0]*3/2 {
		t.Errorf("%d ns without loss, %d with 1 %%", took[0], took[1])
	}
	// 2(N-1)/N of 1 MiB in frames of 1408 bytes and 82 more, at 25 bytes a us.
	if bound := int64(3<<19) * 1490 / 1408 * 40; took[0] < bound || took[0] > bound*115/100 {
		t.Errorf("without loss it took %d ns, the links' bound is %d", took[0], bound)
	}
}

// TestDeadline: a host that does not hand its request in is named, by all nodes, when the others' deadline has passed.
func TestDeadline(t *testing.T) {
	const n = 5
	w := newNetwork(t, 1)
	nodes := w.ringOf(n, func(c *Config) { c.Deadline = 700 * time.Millisecond })
	j := w.job(n, 9000, "bfp16")
	var alive []int
	for i, node := range nodes {
		if i != 3 {
			j.submit(t, node, i)
			alive = append(alive, i)
		}
	}
	failed(t, w, j, alive, second, 3, wire.Deadline)
	if d := nodes[3].eng.counters.HostStallIn; d < 600*time.Millisecond {
		t.Errorf("node 3 stalled for its host for %v", d)
	}
	// A node that never came.
	w = newNetwork(t, 1)
	nodes = w.ringOf(n, func(c *Config) { c.Deadline = 500 * time.Millisecond })
	w.kill(2)
	j = w.job(n, 9000, "bfp16")
	alive = alive[:0]
	for i, node := range nodes {
		if i != 2 {
			j.submit(t, node, i)
			alive = append(alive, i)
		}
	}
	failed(t, w, j, alive, second, 2, wire.Deadline)
}

// TestMismatch: hosts that disagree about a request are told so, nobody gets a sum.
func TestMismatch(t *testing.T) {
	for what, r := range map[string]Request{
		"length": {Data: make([]float32, 1001), Codec: "bfp16"},
		"blocks": {Data: make([]float32, 10000), Codec: "bfp16"},
		"codec":  {Data: make([]float32, 1000), Codec: "none"},
	} {
		for late := range 2 {
			w := newNetwork(t, 1)
			nodes := w.ringOf(3, nil)
			j := w.job(3, 1000, "bfp16")
			ended := 0
			r.Done = func(c Completion) {
				if !errors.As(c.Err, new(*NodeError)) {
					t.Errorf("%s: %v", what, c.Err)
				}
				ended++
			}
			if late == 0 {
				if _, err := nodes[2].Submit(r); err != nil {
					t.Fatal(err)
				}
			}
			for i := range 2 {
				j.submit(t, nodes[i], i)
			}
			if late == 1 {
				w.until(second/10, func() bool { return false })
				if _, err := nodes[2].Submit(r); err != nil {
					t.Fatal(err)
				}
			}
			if !w.until(second, func() bool { return j.done[0] != nil && j.done[1] != nil && ended == 1 }) {
				t.Fatalf("%s: %v %v %d", what, j.done[0], j.done[1], ended)
			}
			for i := range 2 {
				var e *NodeError
				if !errors.As(j.done[i].Err, &e) || e.Reason != wire.Mismatch {
					t.Fatalf("%s: node %d: %+v", what, i, j.done[i])
				}
			}
		}
	}
	// Settings.
	w := newNetwork(t, 1)
	nodes := w.ringOf(2, func(c *Config) { c.MTU = 1500 + int(c.Node) })
	if !w.until(second, func() bool { return nodes[0].Status().Phase == Failed && nodes[1].Status().Phase == Failed }) {
		t.Fatalf("%+v", nodes[0].Status())
	}
	// A node further away does not fail, it could be one that was started for the next generation, but it can say why nothing forms.
	w = newNetwork(t, 1)
	nodes = w.ringOf(4, func(c *Config) {
		if c.Node == 1 {
			c.MTU = 9000
		}
	})
	var e *NodeError
	if !w.until(second, func() bool { return errors.As(nodes[3].Status().Refused, &e) }) || e.Reason != wire.Mismatch {
		t.Fatalf("%+v", nodes[3].Status())
	}
	if s := nodes[3].Status(); s.Phase != Forming || s.Failure != nil || e.Node != 1 && e.At != 1 {
		t.Errorf("%+v: %v", s, e)
	}
}
