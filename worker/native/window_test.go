package native

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"gradnic/worker/rtt"
)

func testTimer() rtt.Timer {
	return rtt.NewTimer(rtt.Bounds{First: 20 * time.Millisecond, Least: 5 * time.Millisecond, Most: 320 * time.Millisecond})
}

// A network that loses, doubles, delays and reorders: every chunk gets its result once, in the end, and the window's rule
// holds at every step.
func TestWindowOverBadNetwork(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		slots := rapid.IntRange(1, 40).Draw(t, "slots")
		most := rapid.IntRange(1, 40).Draw(t, "most in flight")
		chunks := rapid.IntRange(0, 300).Draw(t, "chunks")
		loss := rapid.IntRange(0, 40).Draw(t, "percent lost")
		w := newWindow(slots, most, testTimer())
		w.submit(chunks)
		type answer struct {
			at          int64
			slot, round uint32
		}
		var wire []answer
		got := make([]int, chunks)
		now, lost := int64(0), 0
		for steps := 0; w.low < uint64(chunks); steps++ {
			if steps > 200000 {
				t.Fatalf("stuck at %d of %d", w.low, chunks)
			}
			for {
				chunk, again, ok := w.take(now)
				if !ok {
					break
				}
				if chunk >= w.low+uint64(slots) || w.inFlight > min(most, slots) || again != (w.cell(chunk).first < now || w.cell(chunk).resent) {
					t.Fatalf("chunk %d sent with low %d, %d in flight, again %v", chunk, w.low, w.inFlight, again)
				}
				for range 1 + rapid.IntRange(0, 9).Draw(t, "doubled")/9 {
					if rapid.IntRange(0, 99).Draw(t, "fate") < loss {
						lost++
						continue
					}
					s, r := w.place(chunk)
					wire = append(wire, answer{now + int64(rapid.IntRange(1, 3000).Draw(t, "delay"))*1000, s, r})
				}
			}
			w.checkFlight(t)
			slices.SortFunc(wire, func(a, b answer) int { return int(a.at - b.at) })
			at, ok := w.deadline()
			if !ok && len(wire) == 0 {
				t.Fatalf("nothing in flight at %d of %d", w.low, chunks)
			}
			if len(wire) > 0 && (!ok || wire[0].at <= at) {
				a := wire[0]
				wire = wire[1:]
				now = max(now, a.at)
				if chunk, v, _ := w.result(now, a.slot, a.round); v == fresh {
					got[chunk]++
				}
				w.check(now)
				continue
			}
			now = max(now, at)
			w.check(now)
		}
		for c, n := range got {
			if n != 1 {
				t.Fatalf("chunk %d got %d results", c, n)
			}
		}
		if w.inFlight != 0 || w.lost != 0 {
			t.Fatalf("%d in flight, %d lost at the end", w.inFlight, w.lost)
		}
		if lost == 0 && loss == 0 && slots < gap && w.timeouts > 0 {
			t.Fatalf("%d timeouts without a loss", w.timeouts)
		}
	})
}

// checkFlight holds what is in flight against the cells.
func (w *window) checkFlight(t *rapid.T) {
	n := 0
	var last *cell
	for c := w.flight.oldest; c != nil; last, c = c, c.after {
		if n++; n > w.inFlight || c.state != flying || c.before != last || last != nil && (last.lastSending >= c.lastSending || last.last > c.last) {
			t.Fatalf("number %d of %d in flight: %+v after %+v", n, w.inFlight, c, last)
		}
	}
	if n != w.inFlight || w.flight.newest != last {
		t.Fatalf("%d of %d in flight", n, w.inFlight)
	}
}

func TestWindowTellsWhatItHas(t *testing.T) {
	w := newWindow(16, 16, testTimer())
	w.submit(40)
	for range 16 {
		w.take(0)
	}
	for _, c := range []uint32{0, 1, 3, 11} {
		if _, v, _ := w.result(1, c, 0); v != fresh {
			t.Fatalf("chunk %d: %v", c, v)
		}
	}
	if w.low != 2 || !slices.Equal(w.have(), []byte{0x02, 0x02}) {
		t.Errorf("low %d, have %x", w.low, w.have())
	}
	if _, v, _ := w.result(1, 3, 0); v != duplicate {
		t.Errorf("again: %v", v)
	}
	if _, v, _ := w.result(1, 0, 0); v != stale { // its slot is at round 1 now
		t.Errorf("an old round: %v", v)
	}
	if _, v, _ := w.result(1, 0, 1); v != stale { // not sent yet
		t.Errorf("a round that was not sent: %v", v)
	}
	if _, v, _ := w.result(1, 16, 0); v != stale {
		t.Errorf("no such slot: %v", v)
	}
	// Chunks 16 and 17 may follow, 18 not: the result of 2 is missing.
	for range 2 {
		if _, _, ok := w.take(2); !ok {
			t.Fatal("the window does not move")
		}
	}
	if c, _, ok := w.take(2); ok {
		t.Fatalf("chunk %d left the window", c)
	}
}

// After the network lost its memory all that lacks its result goes again, lowest first.
func TestWindowRestarts(t *testing.T) {
	w := newWindow(8, 8, testTimer())
	w.submit(8)
	for range 8 {
		w.take(0)
	}
	w.result(1, 0, 0)
	w.result(1, 4, 0)
	w.restart()
	var again []uint64
	for {
		c, resent, ok := w.take(2)
		if !ok {
			break
		}
		if !resent {
			t.Errorf("chunk %d is not marked", c)
		}
		again = append(again, c)
	}
	if !slices.Equal(again, []uint64{1, 2, 3, 5, 6, 7}) {
		t.Errorf("sent again: %v", again)
	}
}

// A chunk that many later results overtook goes again before the timer says so, once.
func TestWindowGap(t *testing.T) {
	w := newWindow(256, 256, testTimer())
	w.submit(256)
	w.pace.window = 256
	for range 200 {
		w.take(0)
	}
	for c := uint32(1); c < 1+gap; c++ {
		w.result(1000, c, 0)
		w.check(1000)
	}
	if w.lost != 1 {
		t.Fatalf("%d lost", w.lost)
	}
	if c, again, ok := w.take(1000); !ok || !again || c != 0 {
		t.Fatalf("chunk %d again %v", c, again)
	}
	for c := uint32(1 + gap); c < 100; c++ {
		w.result(2000, c, 0)
		w.check(2000)
	}
	if w.lost != 0 || w.resent != 1 {
		t.Errorf("%d lost, %d resent", w.lost, w.resent)
	}
}

// A straggler does not look like loss.
func TestWindowIsPatient(t *testing.T) {
	w := newWindow(8, 8, testTimer())
	w.submit(8)
	for range 8 {
		w.take(0)
	}
	before := w.pace.window
	for now := int64(0); now < int64(time.Second); now += int64(10 * time.Millisecond) {
		w.check(now)
		for {
			c, _, ok := w.take(now)
			if !ok {
				break
			}
			s, r := w.place(c)
			w.patient(now, s, r)
		}
	}
	for c := range uint32(8) {
		w.result(int64(time.Second), c, 0)
	}
	if w.pace.window < before {
		t.Errorf("the window fell from %v to %v", before, w.pace.window)
	}
}

func TestPace(t *testing.T) {
	p, now := newPace(512), int64(0)
	step := func() int64 { now += int64(50 * time.Microsecond); return now } // 20000 packets a second
	for range 2000 {
		p.delivered(step(), int64(time.Millisecond))
	}
	if p.limit() != 512 {
		t.Errorf("without loss the window is %d", p.limit())
	}
	// A tenth lost, round after round: it shrinks, and stays of use.
	for range 20000 {
		p.delivered(step(), int64(time.Millisecond))
		if p.got%10 == 5 {
			p.lost()
		}
	}
	if p.limit() < 3*paceLeast || p.limit() > 300 {
		t.Errorf("at 10 %% loss the window is %d", p.limit())
	}
	// All lost: the least.
	for range 2000 {
		for range 20 {
			p.lost()
		}
		p.delivered(step(), -1)
	}
	if p.limit() != paceLeast {
		t.Errorf("at heavy loss the window is %d", p.limit())
	}
	// A queue in front of the link: the round trip grows with the window, and the window stops at the target.
	p = newPace(4096)
	for range 100000 {
		p.delivered(step(), int64(time.Millisecond)+int64(p.window)*int64(50*time.Microsecond))
	}
	if queue := time.Duration(p.window) * 50 * time.Microsecond; queue > 2*time.Duration(paceTarget) || queue < time.Duration(paceTarget)/2 {
		t.Errorf("the queue is %v long, window %d", queue, p.limit())
	}
}
