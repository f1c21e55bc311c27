// Package calm tells whether CPUs are left to those who measure on them. A virtual CPU is often one of two hardware threads of
// a core, and what the other one does is somebody else's: while it is busy, code that keeps a core's units full takes up to
// twice as long, for a tenth of a second or for minutes, and nothing in the guest says so (steal time does not). Rounds in which one contestant had the core for itself
// and another half of it say nothing about the contestants.
//
// A [Watch] runs a loop of independent additions, which is bound by how many a core can do at once, and compares the time
// with the best that it has seen. Who measures waits until the CPUs are calm, measures, and looks again.
package calm

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"gradnic/bench/gen"
)

// Tolerance is how much longer than its best time the loop may take on a calm CPU.
const Tolerance = 1.15

const (
	// additions of a loop: some 100 us on a machine of 2023.
	additions = 1 << 20
	// looks is how many loops a look takes; the best counts, since the scheduler may take the CPU away in one.
	looks = 4
	// settle is between two looks of a wait.
	settle = 10 * time.Millisecond
	// calibration is how many looks the first best time is of.
	calibration = 10
)

// Watch looks after some CPUs. It is used by one goroutine at a time.
type Watch struct {
	cpus  []int
	best  time.Duration
	probe func(cpu int) (time.Duration, error)
}

// New begins to look after CPUs, which the process must be allowed to run on. It takes some 10 ms each.
func New(cpus ...int) (*Watch, error) {
	if len(cpus) == 0 {
		return nil, errors.New("calm: no CPUs")
	}
	w := &Watch{cpus: cpus, probe: look}
	for range calibration {
		if _, err := w.Calm(); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// Best is the shortest time that the loop has taken so far, on any of the CPUs.
func (w *Watch) Best() time.Duration { return w.best }

// Calm takes a look at each CPU, some 400 us, and tells whether all of them were about as fast as the fastest was at any time.
func (w *Watch) Calm() (bool, error) {
	calm := true
	for _, cpu := range w.cpus {
		d, err := w.probe(cpu)
		if err != nil {
			return false, err
		}
		if w.best == 0 || d < w.best {
			w.best = d
		}
		calm = calm && float64(d) <= Tolerance*float64(w.best)
	}
	return calm, nil
}

// Wait looks until all CPUs are calm, for at most d, and tells whether they are.
func (w *Watch) Wait(ctx context.Context, d time.Duration) (bool, error) {
	for until := time.Now().Add(d); ; {
		calm, err := w.Calm()
		if calm || err != nil || time.Now().After(until) {
			return calm, err
		}
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-time.After(settle):
		}
	}
}

// look is how long the loop takes on a CPU, at best.
func look(cpu int) (best time.Duration, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	restore, err := gen.Pin(cpu)
	if err != nil {
		return 0, fmt.Errorf("calm: %w", err)
	}
	defer restore()
	var sums [8]uint64
	for range looks {
		start := time.Now()
		add(additions, &sums)
		if d := time.Since(start); best == 0 || d < best {
			best = d
		}
	}
	return best, nil
}

// add makes n additions of which eight do not wait for each other. The sums begin at what the compiler cannot know, so that it
// has to make all of them.
func add(n int, sums *[8]uint64) {
	a, b, c, d, e, f, g, h := sums[0], sums[1], sums[2], sums[3], sums[4], sums[5], sums[6], sums[7]
	m := uint64(n) / 8
	for i := uint64(0); i < m; i++ {
		a += i
		b += i
		c += i
		d += i
		e += i
		f += i
		g += i
		h += i
	}
	*sums = [8]uint64{a, b, c, d, e, f, g, h}
}
