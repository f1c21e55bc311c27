package gen

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"gradnic/bench/flow"
	"gradnic/bench/rate"
)

// MaxQueues is how many queues (of an XDP generator) or sockets (of a UDP one) may send at once.
const MaxQueues = 64

// QueueOptions describe a generator that makes its frames in user space.
type QueueOptions struct {
	Flow    flow.Options
	Queues  int           // 0 means 1; each makes its own numbered stream
	First   int           // the first queue of the netdev
	Rate    float64       // frames a second over all queues; 0: as fast as it goes
	For     time.Duration // 0 means a second
	CPUs    []int         // queue i is bound to CPU i of these; nil: the scheduler's choice
	Slowed  time.Duration // how long a queue dawdles before each burst: a generator that cannot keep up, for tests
	Started func()        // called when all queues are about to send; nil: nobody asks
}

// sender sends one queue's frames.
type sender interface {
	// send makes up to n frames and hands them to the kernel; it returns how many there was room for.
	send(n int) (int, error)
	// finish waits, a bounded time, until the kernel has taken what was handed to it.
	finish() error
	close() error
}

// run sends on all queues at once until each has sent its share. open is called for every queue, in the caller's
// namespace. When ctx ends the result so far is returned with its error.
func (o QueueOptions) run(ctx context.Context, kind string, open func(queue int, s *flow.Stream) (sender, error)) (_ *Result, err error) {
	if o.Queues == 0 {
		o.Queues = 1
	}
	if o.For == 0 {
		o.For = time.Second
	}
	if o.Queues < 1 || o.Queues > MaxQueues {
		return nil, fmt.Errorf("generator: %d queues: legal are 1 to %d", o.Queues, MaxQueues)
	}
	if o.Rate < 0 || o.For < 0 {
		return nil, fmt.Errorf("generator: rate %v for %v", o.Rate, o.For)
	}
	asked := uint64(o.Rate*o.For.Seconds() + 0.5)
	if o.Rate > 0 && asked < uint64(o.Queues) {
		return nil, fmt.Errorf("generator: %v frames a second for %v are %d frames for %d queues", o.Rate, o.For, asked, o.Queues)
	}
	var (
		shares  = rate.Split(asked, o.Queues)
		streams = make([]*flow.Stream, o.Queues)
		senders = make([]sender, o.Queues)
	)
	defer func() {
		for _, s := range senders {
			if s != nil {
				err = errors.Join(err, s.close())
			}
		}
	}()
	for i := range o.Queues {
		f := o.Flow
		f.Stream = uint8(i)
		if streams[i], err = flow.New(f); err != nil {
			return nil, err
		}
		if senders[i], err = open(o.First+i, streams[i]); err != nil {
			return nil, fmt.Errorf("%s generator, queue %d: %w", kind, o.First+i, err)
		}
	}
	r := &Result{Kind: kind, Asked: asked, Rate: o.Rate, For: o.For, Queues: make([]QueueResult, o.Queues)}
	if o.Started != nil {
		o.Started()
	}
	var (
		wg   sync.WaitGroup
		errs = make([]error, o.Queues)
		// All queues begin together, when every thread has had time to come up.
		start = time.Now().Add(2 * time.Millisecond)
	)
	for i := range o.Queues {
		q := &r.Queues[i]
		q.Queue, q.Asked = o.First+i, shares[i]
		p := pacer{rate: o.Rate / float64(o.Queues), total: shares[i], start: start, end: start.Add(o.For)}
		wg.Add(1)
		go func() {
			defer wg.Done()
			errs[i] = o.drive(ctx, i, senders[i], p, q)
		}()
	}
	wg.Wait()
	for i := range r.Queues {
		r.Elapsed = max(r.Elapsed, r.Queues[i].Elapsed)
		r.Counts.Add(streams[i].Counts())
	}
	return r, errors.Join(errs...)
}

// drive is the life of one queue's thread.
func (o QueueOptions) drive(ctx context.Context, i int, s sender, p pacer, q *QueueResult) error {
	runtime.LockOSThread()
	if len(o.CPUs) > 0 {
		// The thread is not unlocked, so it ends with the goroutine.
		if _, err := Pin(o.CPUs[i%len(o.CPUs)]); err != nil {
			return err
		}
	} else {
		defer runtime.UnlockOSThread()
	}
	if wait := time.Until(p.start); wait > 0 {
		time.Sleep(wait)
	}
	var last time.Time
	for round := 0; ; round++ {
		now := time.Now()
		n, done := p.due(now, q.Frames)
		if done || (round%64 == 0 && ctx.Err() != nil) {
			break
		}
		if n == 0 {
			p.pause(now, q.Frames)
			continue
		}
		if o.Slowed > 0 {
			time.Sleep(o.Slowed)
		}
		sent, err := s.send(n)
		q.Frames += uint64(sent)
		if err != nil {
			return err
		}
		if sent > 0 {
			last = time.Now()
		}
	}
	if q.Frames > 0 {
		q.Elapsed = last.Sub(p.start)
		if p.rate > 0 && q.Frames == p.total {
			// The last frame is due one gap before the end of the time that was asked.
			q.Elapsed += time.Duration(1e9 / p.rate)
		}
	}
	return errors.Join(s.finish(), ctx.Err())
}
