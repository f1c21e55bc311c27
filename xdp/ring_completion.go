package xdp

// completionRing brings back the chunks of transmitted frames. The kernel writes
// entries and producer; we write consumer. It reserves a slot here before it takes
// a descriptor from the TX ring: a completion ring that nobody reads stops
// transmission, it never overflows.
type completionRing struct {
	consumer
	entries []uint64 // written by the kernel: the addresses that were transmitted
}

// take returns up to len(out) chunk addresses, one for each descriptor sent. The
// kernel gives back the address as it was posted; mask makes it the chunk's start.
func (r *completionRing) take(out []uint64, mask uint64) int {
	n := r.available(len(out))
	if n == 0 {
		return 0
	}
	start, n1, n2 := span(r.next, r.size, n)
	copyMasked(out[:n1], r.entries[start:start+n1], mask)
	if n2 != 0 {
		copyMasked(out[n1:n], r.entries[:n2], mask)
	}
	r.release(n)
	return int(n)
}
