package ring

import (
	"errors"
	"testing"

	"pgregory.net/rapid"

	wire "gradnic/wire/ring"
)

// TestPart: nodes that leave as soon as their own requests are done, and what the next node lacks of them is sent, take
// nothing from the others: all requests end well, whatever is lost, and then all know that a node has left.
func TestPart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 6).Draw(t, "nodes")
		w := newNetwork(t, rapid.Uint64().Draw(t, "seed"))
		w.loss = rapid.SampledFrom([]float64{0, 0.01, 0.05}).Draw(t, "loss")
		w.rate = rapid.SampledFrom([]float64{0, 0.025}).Draw(t, "rate")
		nodes := w.ringOf(n, nil)
		var jobs []*job
		for range rapid.IntRange(1, 3).Draw(t, "requests") {
			jobs = append(jobs, w.job(n, rapid.IntRange(1, 512*n*8).Draw(t, "length"), "bfp16"))
		}
		for i, node := range nodes {
			for _, j := range jobs {
				j.submit(t, node, i)
			}
		}
		last := jobs[len(jobs)-1]
		parted := make([]bool, n)
		over := func() bool {
			all := true
			for i, node := range nodes {
				if last.done[i] != nil && !node.eng.passing() && !parted[i] {
					parted[i] = true
					node.part()
					node.wake()
				}
				all = all && parted[i] && node.eng.ring.phase == Failed
			}
			return all
		}
		if !w.until(10*second, over) {
			t.Fatalf("hangs: %+v", nodes[0].Status())
		}
		for _, j := range jobs {
			j.check(t, 512)
		}
	})
}

// TestPartOpen: a node that leaves with requests open ends those of the others soon, with its name, and not those before.
func TestPartOpen(t *testing.T) {
	w := newNetwork(t, 1)
	nodes := w.ringOf(4, nil)
	first, later := w.job(4, 5000, "none"), w.job(4, 5000, "none")
	for i, node := range nodes {
		first.submit(t, node, i)
		if i != 3 { // whose host does not come
			later.submit(t, node, i)
		}
	}
	if !w.until(second, first.over) {
		t.Fatal("not done")
	}
	first.check(t, 512)
	w.until(second/100, func() bool { return false })
	start := w.now
	nodes[2].part()
	nodes[2].wake()
	failed(t, w, later, []int{0, 1}, second/10, 2, wire.Left)
	if c := later.done[2]; c == nil || !errors.Is(c.Err, ErrClosed) {
		t.Errorf("at the node itself: %+v", c)
	}
	if d := w.now - start; d > second/20 {
		t.Errorf("it took %d ns", d)
	}
	if _, err := nodes[0].Submit(Request{}); !errors.As(err, new(*NodeError)) {
		t.Errorf("a ring that a node has left took a request: %v", err)
	}
}
