package dataplane

import "sync/atomic"

// spsc is a ring between one producer and one consumer. Each side keeps a copy of the other's index, so that
// the shared lines move only when the copy runs out. Capacity is a power of two.
type spsc[T any] struct {
	buf  []T
	mask uint64
	_    [64]byte
	prod struct { // the producer's line
		head atomic.Uint64
		tail uint64 // as last seen
		_    [48]byte
	}
	cons struct { // the consumer's line
		tail atomic.Uint64
		head uint64 // as last seen
		_    [48]byte
	}
}

// newSPSC returns a ring that holds at least n.
func newSPSC[T any](n int) *spsc[T] {
	c := 1
	for c < n {
		c <<= 1
	}
	return &spsc[T]{buf: make([]T, c), mask: uint64(c - 1)}
}

// push appends as many of v as there is room for and returns how many.
func (r *spsc[T]) push(v []T) int {
	head := r.prod.head.Load()
	free := uint64(len(r.buf)) - (head - r.prod.tail)
	if free < uint64(len(v)) {
		r.prod.tail = r.cons.tail.Load()
		free = uint64(len(r.buf)) - (head - r.prod.tail)
	}
	n := min(len(v), int(free))
	for i, x := range v[:n] {
		r.buf[(head+uint64(i))&r.mask] = x
	}
	if n > 0 {
		r.prod.head.Store(head + uint64(n))
	}
	return n
}

// pop takes up to len(out) and returns how many.
func (r *spsc[T]) pop(out []T) int {
	tail := r.cons.tail.Load()
	have := r.cons.head - tail
	if have < uint64(len(out)) {
		r.cons.head = r.prod.head.Load()
		have = r.cons.head - tail
	}
	n := min(len(out), int(have))
	for i := range out[:n] {
		out[i] = r.buf[(tail+uint64(i))&r.mask]
	}
	if n > 0 {
		r.cons.tail.Store(tail + uint64(n))
	}
	return n
}

// len may be called from anywhere; it was right at some time during the call when one side is at rest.
func (r *spsc[T]) len() int {
	tail := r.cons.tail.Load()
	head := r.prod.head.Load()
	if head < tail { // the two loads straddled a pop
		return 0
	}
	return int(head - tail)
}

// free is how much of n the producer could push.
func (r *spsc[T]) free(n int) int {
	head := r.prod.head.Load()
	if uint64(len(r.buf))-(head-r.prod.tail) < uint64(n) {
		r.prod.tail = r.cons.tail.Load()
	}
	return int(uint64(len(r.buf)) - (head - r.prod.tail))
}

// walk visits what is in the ring, while both sides are at rest.
func (r *spsc[T]) walk(visit func(T)) {
	for i := r.cons.tail.Load(); i != r.prod.head.Load(); i++ {
		visit(r.buf[i&r.mask])
	}
}

// empty is true when there is nothing to pop.
func (r *spsc[T]) empty() bool { return r.prod.head.Load() == r.cons.tail.Load() }

// full is true when the producer has no room.
func (r *spsc[T]) full() bool {
	head := r.prod.head.Load()
	if head-r.prod.tail < uint64(len(r.buf)) {
		return false
	}
	r.prod.tail = r.cons.tail.Load()
	return head-r.prod.tail >= uint64(len(r.buf))
}
