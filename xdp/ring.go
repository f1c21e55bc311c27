package xdp

import "sync/atomic"

// A ring is shared by exactly two sides, one that produces entries and one that
// consumes them. There is one index for each side, free running modulo 2^32; each
// is written by its own side only. The entries between consumer and producer
// belong to the consuming side, the rest to the producing side.
//
// Ordering: a producer fills entries with plain stores and then stores its index
// with release order; the consumer loads that index with acquire order before it
// reads entries. The same holds the other way round for slots given back. Go's
// sync/atomic is sequentially consistent, which covers both and also the full
// barrier that the need-wakeup protocol asks for between publishing an index and
// reading the flags word.
//
// Both sides keep the other side's index cached and load it again only when what
// they know is not enough, because each load may pull a cache line over from the
// kernel's core.

// producer is our end of a ring that we fill and the kernel empties (fill, TX).
type producer struct {
	prod  *uint32 // written by us, read by the kernel
	cons  *uint32 // written by the kernel, read by us
	flags *uint32 // written by the kernel, read by us: XDP_RING_NEED_WAKEUP
	size  uint32  // number of entries, a power of two
	next  uint32  // our copy of *prod
	limit uint32  // *cons as last loaded, plus size: next may not pass it
}

// reserve returns how many of want entries can be written from next on.
func (p *producer) reserve(want int) uint32 {
	n := uint32(min(uint(want), uint(p.size)))
	if p.limit-p.next < n {
		p.limit = atomic.LoadUint32(p.cons) + p.size
		n = min(n, p.limit-p.next)
	}
	return n
}

// publish hands n written entries to the kernel.
func (p *producer) publish(n uint32) {
	p.next += n
	atomic.StoreUint32(p.prod, p.next)
}

// pending returns how many entries the kernel has not taken yet.
func (p *producer) pending() uint32 { return p.next - atomic.LoadUint32(p.cons) }

// needsWakeup loads the flags word. It is called after publish, whose store is
// sequentially consistent, so it cannot be ordered before it.
func (p *producer) needsWakeup() bool {
	return atomic.LoadUint32(p.flags)&ringNeedWakeup != 0
}

// consumer is our end of a ring that the kernel fills and we empty (RX, completion).
type consumer struct {
	prod  *uint32 // written by the kernel, read by us
	cons  *uint32 // written by us, read by the kernel
	size  uint32  // number of entries, a power of two
	next  uint32  // our copy of *cons
	limit uint32  // *prod as last loaded: next may not pass it
}

// available returns how many of want entries can be read from next on.
func (c *consumer) available(want int) uint32 {
	n := uint32(min(uint(want), uint(c.size)))
	if c.limit-c.next < n {
		c.limit = atomic.LoadUint32(c.prod)
		n = min(n, c.limit-c.next)
	}
	return n
}

// release gives n read entries back to the kernel.
func (c *consumer) release(n uint32) {
	c.next += n
	atomic.StoreUint32(c.cons, c.next)
}

// span splits n entries from index next on into the two runs of memory that they
// occupy: n1 entries from start on, and n2 entries from 0 on (0 when the ring
// does not wrap here).
func span(next, size, n uint32) (start, n1, n2 uint32) {
	start = next & (size - 1)
	n1 = min(n, size-start)
	return start, n1, n - n1
}
