package xdp

// fillRing gives empty chunks to the kernel, which receives frames into them.
// We write entries and producer; the kernel writes consumer and, when it ran out
// of chunks, the need-wakeup flag. In copy mode the kernel makes a received frame
// visible in the RX ring before it releases the fill slot, so put may take fewer
// chunks than were received: the ring has twice the entries of the chunks that it
// has to hold, or the caller offers the rest again later.
type fillRing struct {
	producer
	entries []uint64 // chunk addresses, written by us
}

// put offers chunks. Bits below the chunk size are cleared by mask, so that an
// address as it was received (chunk start plus headroom) is as good as a chunk's.
func (r *fillRing) put(addrs []uint64, mask uint64) int {
	n := r.reserve(len(addrs))
	if n == 0 {
		return 0
	}
	start, n1, n2 := span(r.next, r.size, n)
	copyMasked(r.entries[start:start+n1], addrs[:n1], mask)
	if n2 != 0 {
		copyMasked(r.entries[:n2], addrs[n1:n], mask)
	}
	r.publish(n)
	return int(n)
}

// putDesc is put for the chunks of received descriptors.
func (r *fillRing) putDesc(d []Desc, mask uint64) int {
	n := r.reserve(len(d))
	if n == 0 {
		return 0
	}
	start, n1, n2 := span(r.next, r.size, n)
	copyAddrs(r.entries[start:start+n1], d[:n1], mask)
	if n2 != 0 {
		copyAddrs(r.entries[:n2], d[n1:n], mask)
	}
	r.publish(n)
	return int(n)
}

func copyMasked(dst, src []uint64, mask uint64) {
	src = src[:len(dst)]
	for i := range dst {
		dst[i] = src[i] & mask
	}
}

func copyAddrs(dst []uint64, src []Desc, mask uint64) {
	src = src[:len(dst)]
	for i := range dst {
		dst[i] = src[i].Addr & mask
	}
}
