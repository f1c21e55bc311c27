package gen

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"gradnic/bench/flow"
)

// RunPaced sends at the options' rate for the duration d and returns what was sent. The calling thread does it, in the
// netdev's namespace, and should be pinned. When ctx ends the result so far is returned with its error.
//
// A live run cannot wait, so an attempt that is not due is dropped inside the kernel, and the run is cut short by a
// signal to its thread once everything was sent, or when it is a tenth behind: then the result is INVALID.
func (g *Generator) RunPaced(ctx context.Context, d time.Duration) (*Result, error) {
	if g.opts.Rate <= 0 {
		return nil, errors.New("generator: RunPaced needs a rate")
	}
	r := &Result{Kind: "kernel", Asked: uint64(g.opts.Rate*d.Seconds() + 0.5), Rate: g.opts.Rate, For: d}
	if r.Asked == 0 {
		return nil, fmt.Errorf("generator: %v frames a second for %v are none", g.opts.Rate, d)
	}
	var before uint64
	if err := errors.Join(g.objs.Sent.Get(&before), g.objs.First.Set(uint64(0)), g.objs.Origin.Set(before), g.objs.Most.Set(before+r.Asked)); err != nil {
		return nil, fmt.Errorf("generator: counters: %w", err)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var (
		stop  atomic.Bool
		ended = make(chan struct{})
		gone  = make(chan struct{})
		tid   = unix.Gettid()
	)
	go func() {
		defer close(gone)
		var first, sent uint64
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ended:
				return
			case <-tick.C:
			}
			if errors.Join(g.objs.First.Get(&first), g.objs.Sent.Get(&sent)) != nil {
				continue
			}
			late := first != 0 && Monotonic() > first+uint64(d+d/10)+uint64(10*time.Millisecond)
			if sent < before+r.Asked && !late && ctx.Err() == nil {
				continue
			}
			stop.Store(true)
			// The runtime's own signal for threads that should look up: it has a handler, and means no harm.
			if unix.Tgkill(unix.Getpid(), tid, unix.SIGURG) != nil {
				return
			}
		}
	}()
	var err error
	for err == nil && !stop.Load() {
		err = g.live(1<<31-1, stop.Load)
	}
	close(ended)
	<-gone
	var first, last, after uint64
	if err2 := errors.Join(g.objs.First.Get(&first), g.objs.Last.Get(&last), g.objs.Sent.Get(&after)); err2 != nil {
		return nil, errors.Join(err, fmt.Errorf("generator: counters: %w", err2))
	}
	r.Frames = after - before
	r.Bytes = r.Frames * uint64(len(g.frame))
	if last > first {
		r.Elapsed = time.Duration(last-first) + time.Duration(1e9/g.opts.Rate)
	}
	return r, errors.Join(err, g.impaired(&r.Counts), ctx.Err())
}

// impaired reads what was done to the flow since Open.
func (g *Generator) impaired(c *flow.Counts) error {
	if err := errors.Join(g.objs.Sequence.Get(&c.Numbers), g.objs.Skipped.Get(&c.Skipped), g.objs.Doubled.Get(&c.Duplicated),
		g.objs.Swapped.Get(&c.Reordered), g.objs.Damaged.Get(&c.Malformed)); err != nil {
		return fmt.Errorf("generator: counters: %w", err)
	}
	return nil
}
