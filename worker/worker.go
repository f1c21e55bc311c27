package worker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"gradnic/wire/inet"
	"gradnic/wire/switchml"
)

// ErrClosed is returned by the calls of a worker that was closed.
var ErrClosed = errors.New("worker is closed")

// Worker is one rank of a session. Its all-reduces run one after the other, in
// the order of the calls; calls from several goroutines wait for each other,
// and then their order, which must be the same at all workers, is up to chance.
type Worker struct {
	cfg     Config
	nicMAC  inet.MAC
	nicIP   inet.Addr
	threads []*thread

	closed atomic.Bool
	halt   atomic.Bool

	mu     sync.Mutex // held by an all-reduce
	jobs   uint64     // started in this session
	broken error      // why the session cannot go on
}

// Join registers with the controller, waits until all workers have, and opens
// the way to the NIC. ctx bounds the waiting and has no meaning afterwards.
func Join(ctx context.Context, cfg Config) (*Worker, error) {
	w, err := join(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("join: %w", err)
	}
	return w, nil
}

func join(ctx context.Context, cfg Config) (w *Worker, err error) {
	// A socket that was handed in is ours from now on.
	var conns []*net.UDPConn
	var made []*transport
	defer func() {
		if err != nil {
			for _, c := range conns {
				c.Close()
			}
			for _, t := range made {
				_ = t.close() // the first error says it
			}
		}
	}()
	if cfg.Conn != nil {
		conns = append(conns, cfg.Conn)
	}
	if err := cfg.setDefaults(); err != nil {
		return nil, err
	}
	if cfg.MAC.IsZero() && (cfg.Controller != "" || cfg.Link != nil) {
		if cfg.Link != nil || cfg.Conn != nil {
			return nil, errors.New("a frame link or an open socket needs the worker's MAC")
		}
		if cfg.MAC, err = findMAC(cfg.IP); err != nil {
			return nil, err
		}
	}
	// Sockets first: nobody waits for a worker that cannot have its port.
	if cfg.Link == nil && cfg.Conn == nil {
		listen := cfg.Listen
		if listen == nil {
			listen = func(a *net.UDPAddr) (*net.UDPConn, error) { return net.ListenUDP("udp4", a) }
		}
		for i := range cfg.Threads {
			a := &net.UDPAddr{IP: cfg.IP[:], Port: cfg.Port + i}
			c, err := listen(a)
			if err != nil {
				return nil, fmt.Errorf("UDP socket at %v: %w", a, err)
			}
			conns = append(conns, c)
		}
	}
	w = &Worker{cfg: cfg, nicMAC: cfg.NICMAC, nicIP: cfg.NICIP}
	if cfg.Controller != "" {
		if w.nicMAC, w.nicIP, err = joinSession(ctx, &cfg); err != nil {
			return nil, err
		}
	}
	for i := range cfg.Threads {
		r := route{
			worker:   switchml.Endpoint{MAC: cfg.MAC, IP: cfg.IP, Port: uint16(cfg.Port + i)},
			nic:      switchml.Endpoint{MAC: w.nicMAC, IP: w.nicIP, Port: switchml.PortBase},
			elements: cfg.Elements,
		}
		var tr *transport
		if cfg.Link != nil {
			tr = newLinkTransport(cfg.Link, r)
		} else if tr, err = newUDPTransport(conns[i], r); err != nil {
			return nil, err
		}
		made = append(made, tr)
		if !cfg.Group.IsZero() {
			if err := tr.hear(&cfg, r); err != nil {
				return nil, err
			}
		}
		w.threads = append(w.threads, newThread(i, &cfg, tr, r, &w.halt))
	}
	return w, nil
}

// NIC returns the addresses of the NIC that the worker talks to.
func (w *Worker) NIC() (inet.MAC, inet.Addr) { return w.nicMAC, w.nicIP }

// Config returns the worker's configuration with defaults filled in.
func (w *Worker) Config() Config { return w.cfg }

// Close ends a running all-reduce with [ErrClosed], waits for it, and closes
// the sockets. The protocol has no word to leave a session, so the others are
// not told. Close may be called more than once.
func (w *Worker) Close() error {
	if w.closed.Swap(true) {
		w.mu.Lock() // until the first call is done
		defer w.mu.Unlock()
		return nil
	}
	w.interrupt()
	w.mu.Lock()
	defer w.mu.Unlock()
	var errs []error
	for _, t := range w.threads {
		errs = append(errs, t.tr.close())
	}
	return errors.Join(errs...)
}

func (w *Worker) interrupt() {
	w.halt.Store(true)
	for _, t := range w.threads {
		t.tr.interrupt()
	}
}

// AllReduceInt32 writes the sum over all workers of src to dst, by wrapping
// int32 addition. dst and src have the same length and are the same array or do
// not overlap. It returns when the whole sum is there, or with an error when ctx
// ends or the worker is closed; dst is then undefined and the session over,
// since this worker is no longer in step with the others: [Join] again, all workers.
// SwitchML itself has no deadline: with a ctx that never ends, a missing
// worker is waited for. An empty array counts as a job and sends nothing.
func (w *Worker) AllReduceInt32(ctx context.Context, dst, src []int32) (Stats, error) {
	if len(dst) != len(src) {
		return Stats{}, fmt.Errorf("all-reduce: dst has %d elements, src %d", len(dst), len(src))
	}
	return w.allReduce(ctx, len(src), func(t *thread, job uint8, lo, hi int) error {
		t.ints.dst, t.ints.src = dst[lo:hi], src[lo:hi]
		defer func() { t.ints.dst, t.ints.src = nil, nil }()
		return t.run(job, blocksOf(hi-lo, w.cfg.Elements), 0, &t.ints)
	})
}

// AllReduceFloat32 writes the sum over all workers of src to dst, through
// SwitchML's int32 format: each element within the bound that [SumBound] gives.
// The rest is as with AllReduceInt32. A *[NonFiniteError] means that all
// is done but the blocks it tells of, and that the session goes on.
func (w *Worker) AllReduceFloat32(ctx context.Context, dst, src []float32) (Stats, error) {
	if len(dst) != len(src) {
		return Stats{}, fmt.Errorf("all-reduce: dst has %d elements, src %d", len(dst), len(src))
	}
	lost := make([]*NonFiniteError, len(w.threads))
	stats, err := w.allReduce(ctx, len(src), func(t *thread, job uint8, lo, hi int) error {
		p := &t.floats
		p.reset(dst[lo:hi], src[lo:hi], t.win.m)
		defer func() { p.dst, p.src = nil, nil }()
		if err := t.run(job, p.packets(), p.batch, p); err != nil {
			return err
		}
		t.counts.Saturated = p.saturated
		if p.poisoned >= 0 {
			first := p.poisoned * p.elements
			e := &NonFiniteError{Index: -1, First: lo + first, Last: lo + min(first+p.elements, hi-lo)}
			if p.own >= 0 {
				e.Index, e.Value = lo+p.own, p.ownValue
			}
			lost[t.win.base/(2*t.win.m)] = e
		}
		return nil
	})
	if err != nil {
		return stats, err
	}
	if e := merge(lost); e != nil {
		return stats, fmt.Errorf("all-reduce: %w", e)
	}
	return stats, nil
}

// merge reports the first of each: of lost blocks, and of own elements.
func merge(lost []*NonFiniteError) *NonFiniteError {
	var out *NonFiniteError
	for _, e := range lost {
		switch {
		case e == nil:
		case out == nil:
			out = e
		case out.Index < 0:
			out.Index, out.Value = e.Index, e.Value
		}
	}
	return out
}

// allReduce splits n elements over the threads as the public client does,
// the first n mod T one element more, and runs them.
func (w *Worker) allReduce(ctx context.Context, n int, slice func(t *thread, job uint8, lo, hi int) error) (Stats, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.closed.Load():
		return Stats{}, fmt.Errorf("all-reduce: %w", ErrClosed)
	case w.broken != nil:
		return Stats{}, fmt.Errorf("all-reduce: the session ended with an earlier error, join again: %w", w.broken)
	case ctx.Err() != nil:
		return Stats{}, fmt.Errorf("all-reduce: %w", context.Cause(ctx))
	}
	job := uint8(w.jobs)
	w.jobs++
	start := time.Now()

	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { w.interrupt(); close(interrupted) })
	errs := make([]error, len(w.threads))
	run := func(i int) {
		lo, hi := share(n, len(w.threads), i)
		if errs[i] = slice(w.threads[i], job, lo, hi); errs[i] != nil && !errors.Is(errs[i], errHalted) {
			w.interrupt()
		}
	}
	var group sync.WaitGroup
	for i := 1; i < len(w.threads); i++ {
		group.Go(func() { run(i) })
	}
	run(0)
	group.Wait()
	if !stop() {
		<-interrupted
	}

	stats := w.stats(n, time.Since(start))
	var failed error
	var where *thread
	for i, err := range errs {
		if err != nil && (failed == nil || errors.Is(failed, errHalted)) {
			failed, where = err, w.threads[i]
		}
	}
	if failed == nil {
		if !w.closed.Load() { // a ctx that ended too late to matter
			w.halt.Store(false)
			for _, t := range w.threads {
				t.tr.resume()
			}
		}
		return stats, nil
	}
	if errors.Is(failed, errHalted) {
		if failed = context.Cause(ctx); failed == nil {
			failed = ErrClosed
		}
	}
	w.broken = fmt.Errorf("job %d of %d elements: %s: %w", job, n, where.state(), failed)
	return stats, fmt.Errorf("all-reduce: %w", w.broken)
}

// share gives thread i of t its part [lo, hi) of n elements.
func share(n, t, i int) (lo, hi int) {
	size, more := n/t, n%t
	lo = i*size + min(i, more)
	hi = lo + size
	if i < more {
		hi++
	}
	return lo, hi
}

func (w *Worker) stats(n int, elapsed time.Duration) Stats {
	s := Stats{Elements: n, Elapsed: elapsed}
	all := w.threads[0].rtt
	for i, t := range w.threads {
		s.Add(&t.counts)
		if i > 0 {
			all.Merge(t.rtt)
		}
	}
	s.RTT = latencyOf(all)
	return s
}
