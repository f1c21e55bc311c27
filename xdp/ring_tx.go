package xdp

// txRing brings frames to the kernel. We write entries and producer; the kernel
// writes consumer and the need-wakeup flag. A slot is free again once the kernel
// has taken the descriptor; the chunk is free only after its completion.
type txRing struct {
	producer
	entries []Desc // written by us
}

// put posts up to len(d) descriptors.
func (r *txRing) put(d []Desc) int {
	n := r.reserve(len(d))
	if n == 0 {
		return 0
	}
	start, n1, n2 := span(r.next, r.size, n)
	copy(r.entries[start:start+n1], d[:n1])
	if n2 != 0 {
		copy(r.entries[:n2], d[n1:n])
	}
	r.publish(n)
	return int(n)
}
