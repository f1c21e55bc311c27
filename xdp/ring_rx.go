package xdp

// rxRing brings received frames. The kernel writes entries and producer; we write
// consumer. Descriptors are copied out and their slots given back at once, so the
// ring is free again while the lane works on the batch.
type rxRing struct {
	consumer
	entries []Desc // written by the kernel
}

// take copies up to len(out) descriptors.
func (r *rxRing) take(out []Desc) int {
	n := r.available(len(out))
	if n == 0 {
		return 0
	}
	start, n1, n2 := span(r.next, r.size, n)
	copy(out[:n1], r.entries[start:start+n1])
	if n2 != 0 {
		copy(out[n1:n], r.entries[:n2])
	}
	r.release(n)
	return int(n)
}
