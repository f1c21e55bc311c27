package native

import (
	"context"
	"fmt"
)

// start submits a call over n elements.
func (w *Worker) start(n int, fill, drain func(lo, hi int, b []byte), f *floats) (*Pending, error) {
	return w.startParts(n, &call{fill: fill, drain: drain, floats: f})
}

// startParts is start for a call that may have parts that it gives or takes.
func (w *Worker) startParts(n int, c *call) (*Pending, error) {
	c, err := w.e.submit(n, c)
	if err != nil {
		return nil, err
	}
	return &Pending{w: w, c: c}, nil
}

func wait(ctx context.Context, p *Pending, err error, what string) (Stats, error) {
	if err == nil {
		var s Stats
		if s, err = p.Wait(ctx); err == nil {
			return s, nil
		}
	}
	return Stats{}, fmt.Errorf("%s: %w", what, err)
}

// StartAllReduce starts to write the job's operation over all workers' src to dst: sum, mean, minimum or maximum, element
// by element. dst and src have the same length and are the same array or do not overlap; neither may be touched until
// Wait returns. Several may run at a time.
func StartAllReduce[T Element](w *Worker, dst, src []T) (*Pending, error) {
	if len(dst) != len(src) {
		return nil, fmt.Errorf("dst has %d elements, src %d", len(dst), len(src))
	}
	if err := fits[T](w.e.job.Type); err != nil {
		return nil, err
	}
	return w.start(len(src),
		func(lo, hi int, b []byte) { put(b, src[lo:hi]) },
		func(lo, hi int, b []byte) { get(dst[lo:hi], b) }, floatsOf(w, dst, src, nil))
}

// AllReduce is StartAllReduce and Wait.
func AllReduce[T Element](ctx context.Context, w *Worker, dst, src []T) (Stats, error) {
	p, err := StartAllReduce(w, dst, src)
	return wait(ctx, p, err, "all-reduce")
}

// ReduceScatter reduces src over all workers and gives each its part: dst of rank r gets the elements from r*len(dst) on.
// src is as long as all dst together. A worker sends what it sends in an all-reduce, and gets its part of the result; of packets
// without any of its elements only the header.
func ReduceScatter[T Element](ctx context.Context, w *Worker, dst, src []T) (Stats, error) {
	p, err := startReduceScatter(w, dst, src)
	return wait(ctx, p, err, "reduce-scatter")
}

func startReduceScatter[T Element](w *Worker, dst, src []T) (*Pending, error) {
	if n := len(dst) * w.e.job.Workers; n != len(src) {
		return nil, fmt.Errorf("src has %d elements: %d workers with %d each make %d", len(src), w.e.job.Workers, len(dst), n)
	}
	if err := fits[T](w.e.job.Type); err != nil {
		return nil, err
	}
	mine := w.Rank() * len(dst)
	size := w.e.job.elementBytes()
	return w.startParts(len(src), &call{
		takes: part{some: true, lo: mine, hi: mine + len(dst)},
		fill:  func(lo, hi int, b []byte) { put(b, src[lo:hi]) },
		drain: func(lo, hi int, b []byte) {
			from, to := max(lo, mine), min(hi, mine+len(dst))
			if from < to {
				get(dst[from-mine:to-mine], b[(from-lo)*size:])
			}
		},
	})
}

// AllGather gives every worker all workers' src: dst has the elements of rank r from r*len(src) on. Packets with none of a worker's
// elements it contributes to by a header alone; where it has some of a packet, the others contribute what changes nothing
// there, so the job's operation must be a sum, a minimum or a maximum. Values come out as they went
// in, but a NaN may come out as another NaN, what the job's policy saturates is saturated, and a codec loses what it loses.
// A worker sends its part, and gets what it gets in an all-reduce of dst.
func AllGather[T Element](ctx context.Context, w *Worker, dst, src []T) (Stats, error) {
	p, err := startAllGather(w, dst, src)
	return wait(ctx, p, err, "all-gather")
}

func startAllGather[T Element](w *Worker, dst, src []T) (*Pending, error) {
	if n := len(src) * w.e.job.Workers; n != len(dst) {
		return nil, fmt.Errorf("dst has %d elements: %d workers with %d each make %d", len(dst), w.e.job.Workers, len(src), n)
	}
	mine := w.Rank() * len(src)
	return place(w, dst, src, mine)
}

// Broadcast gives every worker root's array. All workers must name the same root, as they must make the same calls: the NIC sees
// lengths only, and of two roots everybody gets the sum. The rest is as for [AllGather].
func Broadcast[T Element](ctx context.Context, w *Worker, buf []T, root int) (Stats, error) {
	p, err := startBroadcast(w, buf, root)
	return wait(ctx, p, err, "broadcast")
}

func startBroadcast[T Element](w *Worker, buf []T, root int) (*Pending, error) {
	if root < 0 || root >= w.e.job.Workers {
		return nil, fmt.Errorf("root %d: legal are 0 to %d", root, w.e.job.Workers-1)
	}
	src := buf
	if w.Rank() != root {
		src = nil
	}
	return place(w, buf, src, 0)
}

// place contributes src at dst's element at, and what changes nothing elsewhere.
func place[T Element](w *Worker, dst, src []T, at int) (*Pending, error) {
	if err := fits[T](w.e.job.Type); err != nil {
		return nil, err
	}
	nothing, err := identity(&w.e.job)
	if err != nil {
		return nil, err
	}
	size := len(nothing)
	return w.startParts(len(dst), &call{
		gives: part{some: true, lo: at, hi: at + len(src)},
		fill: func(lo, hi int, b []byte) {
			from, to := max(lo, at), min(hi, at+len(src))
			if from > lo || to < hi {
				for i := 0; i < len(b); i += size {
					copy(b[i:], nothing)
				}
			}
			if from < to {
				put(b[(from-lo)*size:(to-lo)*size], src[from-at:to-at])
			}
		},
		drain: func(lo, hi int, b []byte) { get(dst[lo:hi], b) },
	})
}

// Barrier returns when all workers have called it, and with it every call before.
func Barrier(ctx context.Context, w *Worker) (Stats, error) {
	p, err := w.start(0, nil, nil, nil)
	return wait(ctx, p, err, "barrier")
}
