package native

import (
	"math/rand/v2"
	"testing"
	"time"
)

// What packets lost by chance cost, over links of 200 Mbit/s and faster ones, in virtual time: a loss must not cost a timeout, neither
// in the middle of a call nor at its end, and neither must that of what was sent again.
func TestWindowOverLoss(t *testing.T) {
	const fast, slow = 5 * time.Microsecond, 58 * time.Microsecond // for a packet
	for _, c := range []struct {
		tick     time.Duration
		chunks   int
		loss     float64 // each way
		most     float64 // times what the link needs
		timeouts float64 // of a worker, at most
	}{
		{fast, 500, 0, 1.2, 0},
		{fast, 500, 0.001, 1.3, 0},
		{fast, 500, 0.01, 6, 0.3},
		{fast, 500, 0.1, 13, 0.5},
		{fast, 5000, 0.001, 1.2, 0},
		{fast, 5000, 0.01, 1.4, 0.3},
		{fast, 5000, 0.1, 4, 0.5},
		{slow, 500, 0.01, 1.6, 0.3},
		{slow, 5000, 0.1, 2, 1},
	} {
		const seeds, workers = 3, 4
		var took time.Duration
		timeouts, again := 0.0, 0.0
		for seed := range uint64(seeds) {
			l := &lab{rnd: rand.New(rand.NewPCG(2, seed)), tick: int64(c.tick), room: int(20 * time.Millisecond / c.tick), loss: c.loss}
			took += l.run(c.chunks, 512, workers, func(*rand.Rand) (every, long int64) { return 0, 0 })
			for _, x := range l.workers {
				timeouts += float64(x.w.timeouts) / (workers * seeds)
				again += float64(x.w.resent) / float64(workers*seeds*c.chunks)
			}
		}
		times := float64(took) / float64(time.Duration(seeds*c.chunks)*c.tick)
		t.Logf("%d chunks of %v, %g lost: %.2f times the link's time, %.2f timeouts, %.3f again", c.chunks, c.tick, c.loss, times, timeouts, again)
		if times > c.most || timeouts > c.timeouts {
			t.Errorf("%d chunks of %v, %g lost: %.2f times the link's time, want %.2f; %.2f timeouts, want %.2f", c.chunks, c.tick, c.loss, times, c.most, timeouts, c.timeouts)
		}
		// A chunk goes again when any of the workers' packets, or its result, was lost, and hardly else.
		if due := (workers + 1) * c.loss; again > 1.5*due+0.002 {
			t.Errorf("%d chunks of %v, %g lost: %.3f of them again, want about %.3f", c.chunks, c.tick, c.loss, again, due)
		}
	}
}

// A chunk that was lost once more is missed as early, by what was sent after it was sent again.
func TestWindowGapOfResend(t *testing.T) {
	w := newWindow(256, 256, testTimer())
	w.submit(256)
	w.pace.window = 256
	sent := func(n int, now int64) (chunks []uint32) {
		for range n {
			c, _, ok := w.take(now)
			if !ok {
				t.Fatal("nothing may go")
			}
			chunks = append(chunks, uint32(c))
		}
		return chunks
	}
	sent(1, 0)
	for round := range 3 {
		// The last of as many as may overtake it tells.
		now := int64(1 + round)
		for i, c := range sent(gap, now) {
			if w.lost != 0 {
				t.Fatalf("round %d: lost after %d", round, i)
			}
			w.result(now, c, 0)
			w.check(now)
		}
		if w.lost != 1 {
			t.Fatalf("round %d: %d lost", round, w.lost)
		}
		if c, again, ok := w.take(now); !ok || !again || c != 0 {
			t.Fatalf("round %d: chunk %d again %v", round, c, again)
		}
	}
	if w.timeouts != 0 {
		t.Errorf("%d timeouts", w.timeouts)
	}
	// Its result says that its first sending got through and nothing of the last, so what was sent since is not overtaken.
	last := sent(gap+1, 9)
	w.result(10, 0, 0)
	if w.check(10); w.lost != 0 {
		t.Errorf("%d of %v lost", w.lost, last)
	}
}

// What comes last in a call is overtaken by nothing: a few are sent again after two round trips, once in a silence, and pace and
// timer do not take it for loss.
func TestWindowProbes(t *testing.T) {
	const ms = int64(time.Millisecond)
	w := newWindow(64, 64, testTimer()) // timeouts of 5 ms and more, so probes after 1.25 ms and more
	w.submit(21)
	for range 16 {
		w.take(0)
	}
	w.result(ms, 0, 0) // the round trip
	for range 5 {
		w.take(ms)
	}
	before := w.pace
	at, ok := w.deadline()
	if !ok || at != 3*ms {
		t.Fatalf("the deadline is %v, %v", time.Duration(at), ok)
	}
	w.check(at - 1)
	if w.lost != 0 {
		t.Fatalf("%d lost before", w.lost)
	}
	w.check(at)
	if w.lost != probes || w.timeouts != 0 || w.pace != before {
		t.Fatalf("%d to be sent again, %d timeouts, pace %+v after %+v", w.lost, w.timeouts, w.pace, before)
	}
	for i := range probes {
		if c, again, ok := w.take(at); !ok || !again || c != uint64(1+i) {
			t.Fatalf("chunk %d again %v", c, again)
		}
	}
	if next, _ := w.deadline(); next != w.timeout() {
		t.Errorf("after the probes the deadline is %v, not the timeout of what was sent first, %v", time.Duration(next), time.Duration(w.timeout()))
	}
	w.result(at+ms/10, 1, 0)
	if next, _ := w.deadline(); next > at+ms/10+w.timer.Probe() {
		t.Errorf("after a result the deadline is %v", time.Duration(next))
	}
}
