package accl

// move is one step of the engine, as the card's firmware gives them to its data path: elements of this rank, elements of
// a peer, or both combined, go to memory or to a peer. Moves are done one after the other, each to its end.
type move struct {
	own  []byte // elements of this rank, or nil
	from int    // the rank whose elements are waited for, or -1
	to   int    // the rank that gets the result, or -1: dst does
	dst  []byte
	n    int // elements
	// passed: own came from a peer and goes on. The card reads it through its other port (see word).
	passed bool
}

// schedule writes the moves of the k-th part of a call to out, and reports whether there is such a part. Parts are what
// the firmware loops over: the segments of send, recv, bcast and allreduce. The other collectives have one part, whose
// moves are longer than a segment where the call is; messages are cut at the segment then.
//
// Source: accl's kernels/cclo/fw at commit 723d8ec, eager paths. Where the firmware adds or relays, it reads the peer's
// message and its own elements at once, so "own + received" is the order of operands at every hop.
func schedule(c *Call, cfg *Config, k int, out []move) ([]move, bool) {
	w, r := len(cfg.Ranks), cfg.Rank
	size := c.Type.Size()
	next, prev := (r+1)%w, (r+w-1)%w
	send := func(own []byte, to int) { out = append(out, move{own: own, from: -1, to: to, n: len(own) / size}) }
	pass := func(own []byte, to int) {
		out = append(out, move{own: own, from: -1, to: to, n: len(own) / size, passed: true})
	}
	recv := func(from int, dst []byte) { out = append(out, move{from: from, to: -1, dst: dst, n: len(dst) / size}) }
	keep := func(own, dst []byte) {
		out = append(out, move{own: own, from: -1, to: -1, dst: dst, n: len(own) / size})
	}
	relay := func(n int) { out = append(out, move{from: prev, to: next, n: n}) }
	foldSend := func(own []byte, to int) { out = append(out, move{own: own, from: prev, to: to, n: len(own) / size}) }
	foldKeep := func(own, dst []byte) {
		out = append(out, move{own: own, from: prev, to: -1, dst: dst, n: len(own) / size})
	}

	// The parts of what is cut into segments.
	part := cfg.Segment / size
	if c.Collective == AllReduce {
		part -= part % w
	}
	switch c.Collective {
	case Send, Recv, Bcast, AllReduce:
	default:
		part = max(c.Count, 1)
	}
	begin := k * part
	if begin >= c.Count {
		return out, false
	}
	end := min(begin+part, c.Count)
	// elements i to j of b
	cut := func(b []byte, i, j int) []byte { return b[i*size : j*size] }
	// chunk i of b, of Count elements
	chunk := func(b []byte, i int) []byte { return cut(b, i*c.Count, (i+1)*c.Count) }
	behind := func(i int) int { return ((i % w) + w) % w }

	switch c.Collective {
	case Send:
		send(cut(c.Src, begin, end), c.Root)
	case Recv:
		recv(c.Root, cut(c.Dst, begin, end))
	case Bcast:
		if r != c.Root {
			recv(c.Root, cut(c.Dst, begin, end))
			break
		}
		for i := range w {
			if i != r {
				send(cut(c.Src, begin, end), i)
			}
		}
	case Scatter:
		if r != c.Root {
			recv(c.Root, c.Dst)
			break
		}
		for i := range w {
			if i == r {
				keep(chunk(c.Src, i), c.Dst)
			} else {
				send(chunk(c.Src, i), i)
			}
		}
	case Gather:
		if r != c.Root {
			send(c.Src, next)
			for range behind(r-c.Root) - 1 {
				relay(c.Count)
			}
			break
		}
		keep(c.Src, chunk(c.Dst, r))
		for i := 1; i < w; i++ {
			recv(prev, chunk(c.Dst, behind(r-i)))
		}
	case Reduce:
		switch {
		case w == 1:
			keep(c.Src, c.Dst)
		case r == c.Root:
			foldKeep(c.Src, c.Dst)
		case prev == c.Root:
			// The firmware's send: cut by elements in memory, which is half a buffer where the wire is half as wide.
			for step := cfg.Segment / size; begin < end; begin += step {
				send(cut(c.Src, begin, min(begin+step, end)), next)
			}
		default:
			foldSend(c.Src, next)
		}
	case AllGather:
		keep(c.Src, chunk(c.Dst, r))
		if w == 1 {
			break
		}
		send(c.Src, next)
		for i := 1; i < w; i++ {
			got := chunk(c.Dst, behind(r-i))
			recv(prev, got)
			if i < w-1 {
				pass(got, next)
			}
		}
	case ReduceScatter:
		if w == 1 {
			keep(c.Src, c.Dst)
			break
		}
		send(chunk(c.Src, prev), next)
		for i := 1; i < w-1; i++ {
			foldSend(chunk(c.Src, behind(prev-i)), next)
		}
		foldKeep(chunk(c.Src, r), c.Dst)
	case AllReduce:
		if w == 1 {
			keep(cut(c.Src, begin, end), cut(c.Dst, begin, end))
			break
		}
		// Chunks of equal size, the last one shorter. The firmware takes what is left for the last one, which is less than
		// nothing when there are so few elements that more chunks than one stay empty, and then it loses its way. Here
		// those chunks are empty too, and an empty chunk is no message, as it is with the firmware where only one is.
		bulk := (end - begin + w - 1) / w
		piece := func(b []byte, i int) []byte {
			i = behind(i)
			return cut(b, min(begin+i*bulk, end), min(begin+(i+1)*bulk, end))
		}
		send(piece(c.Src, r), next)
		for i := 1; i < w-1; i++ {
			foldSend(piece(c.Src, r-i), next)
		}
		foldKeep(piece(c.Src, r+1), piece(c.Dst, r+1))
		send(piece(c.Dst, r+1), next)
		for i := range w - 1 {
			recv(prev, piece(c.Dst, r-i))
			if i < w-2 {
				pass(piece(c.Dst, r-i), next)
			}
		}
	}
	return out, true
}
