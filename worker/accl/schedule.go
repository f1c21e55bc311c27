package accl

// move is one step of the engine, as the card's firmware gives them to its data path: elements of this rank, elements of
// a peer, or both combined, go to memory or to a peer. Moves are done one after the other, each to its end.
type move struct {
	own  []byte // elements of this rank, or nil
	from int    // the rank whose elements are waited for, or none
	to   int    // the rank that gets the result, or none: dst does
	dst  []byte
	n    int // elements
	// passed: own came from a peer and goes on. The card reads it through its other port (see Engine.word).
	passed bool
}

// none is no rank.
const none = -1

// schedule makes the moves of a call, part by part. Parts are what the firmware loops over: the segments of send, recv,
// bcast and allreduce. The other collectives have one part, whose moves are longer than a segment where the call is;
// messages are cut at the segment then.
//
// Source: the eager paths of kernels/cclo/fw in ACCL at commit 723d8ec. Where the firmware adds or relays, it reads the
// peer's message and its own elements at once, so "own + received" is the order of operands at every hop.
type schedule struct {
	moves []move

	call          *Call
	ranks, rank   int
	segment, size int // bytes
	begin, end    int // elements of the part
	bulk          int // elements of a chunk of an allreduce
}

func (s *schedule) send(own []byte, to int) {
	s.moves = append(s.moves, move{own: own, from: none, to: to, n: len(own) / s.size})
}

func (s *schedule) pass(own []byte, to int) {
	s.moves = append(s.moves, move{own: own, from: none, to: to, n: len(own) / s.size, passed: true})
}

func (s *schedule) recv(from int, dst []byte) {
	s.moves = append(s.moves, move{from: from, to: none, dst: dst, n: len(dst) / s.size})
}

func (s *schedule) keep(own, dst []byte) {
	s.moves = append(s.moves, move{own: own, from: none, to: none, dst: dst, n: len(own) / s.size})
}

func (s *schedule) relay(n int) {
	s.moves = append(s.moves, move{from: s.prev(), to: s.next(), n: n})
}

func (s *schedule) foldSend(own []byte) {
	s.moves = append(s.moves, move{own: own, from: s.prev(), to: s.next(), n: len(own) / s.size})
}

func (s *schedule) foldKeep(own, dst []byte) {
	s.moves = append(s.moves, move{own: own, from: s.prev(), to: none, dst: dst, n: len(own) / s.size})
}

func (s *schedule) next() int { return s.mod(s.rank + 1) }
func (s *schedule) prev() int { return s.mod(s.rank - 1) }

// mod is a rank that is counted from another one: i is at least -ranks.
func (s *schedule) mod(i int) int { return (i + s.ranks) % s.ranks }

// cut is elements i to j of b.
func (s *schedule) cut(b []byte, i, j int) []byte { return b[i*s.size : j*s.size] }

// now is the part's elements of b.
func (s *schedule) now(b []byte) []byte { return s.cut(b, s.begin, s.end) }

// chunk is the i-th Count elements of b.
func (s *schedule) chunk(b []byte, i int) []byte {
	return s.cut(b, i*s.call.Count, (i+1)*s.call.Count)
}

// piece is chunk i of an allreduce's segment in b: all of equal size, the last one shorter. The firmware takes what is
// left for the last one, which is less than nothing when there are so few elements that more chunks than one stay empty,
// and then it loses its way. Here those chunks are empty too, and an empty chunk is no message, as it is with the firmware
// where only one is.
func (s *schedule) piece(b []byte, i int) []byte {
	i = s.mod(i)
	return s.cut(b, min(s.begin+i*s.bulk, s.end), min(s.begin+(i+1)*s.bulk, s.end))
}

// part replaces moves by those of the k-th part, and reports whether there is one.
func (s *schedule) part(c *Call, cfg *Config, k int) bool {
	s.call, s.ranks, s.rank, s.segment, s.size = c, len(cfg.Ranks), cfg.Rank, cfg.Segment, c.Type.Size()
	s.moves = s.moves[:0]
	step := max(c.Count, 1)
	switch c.Collective {
	case Send, Recv, Bcast:
		step = s.segment / s.size
	case AllReduce:
		step = s.segment / s.size
		step -= step % s.ranks
	}
	s.begin = k * step
	if s.begin >= c.Count {
		return false
	}
	s.end = min(s.begin+step, c.Count)
	root := s.rank == c.Root
	switch c.Collective {
	case Send:
		s.send(s.now(c.Src), c.Root)
	case Recv:
		s.recv(c.Root, s.now(c.Dst))
	case Bcast:
		s.bcast(root)
	case Scatter:
		s.scatter(root)
	case Gather:
		s.gather(root)
	case Reduce:
		s.reduce(root)
	case AllGather:
		s.allGather()
	case ReduceScatter:
		s.reduceScatter()
	case AllReduce:
		s.bulk = (s.end - s.begin + s.ranks - 1) / s.ranks
		s.allReduce()
	}
	return true
}

func (s *schedule) bcast(root bool) {
	if !root {
		s.recv(s.call.Root, s.now(s.call.Dst))
		return
	}
	for i := range s.ranks {
		if i != s.rank {
			s.send(s.now(s.call.Src), i)
		}
	}
}

func (s *schedule) scatter(root bool) {
	c := s.call
	if !root {
		s.recv(c.Root, c.Dst)
		return
	}
	for i := range s.ranks {
		if i == s.rank {
			s.keep(s.chunk(c.Src, i), c.Dst)
		} else {
			s.send(s.chunk(c.Src, i), i)
		}
	}
}

func (s *schedule) gather(root bool) {
	c := s.call
	if !root {
		s.send(c.Src, s.next())
		for range s.mod(s.rank-c.Root) - 1 {
			s.relay(c.Count)
		}
		return
	}
	s.keep(c.Src, s.chunk(c.Dst, s.rank))
	for i := 1; i < s.ranks; i++ {
		s.recv(s.prev(), s.chunk(c.Dst, s.mod(s.rank-i)))
	}
}

func (s *schedule) reduce(root bool) {
	c := s.call
	switch {
	case s.ranks == 1:
		s.keep(c.Src, c.Dst)
	case root:
		s.foldKeep(c.Src, c.Dst)
	case s.prev() == c.Root:
		// The firmware's send: cut by elements in memory, which is half a buffer where the wire is half as wide.
		step := s.segment / s.size
		for i := 0; i < c.Count; i += step {
			s.send(s.cut(c.Src, i, min(i+step, c.Count)), s.next())
		}
	default:
		s.foldSend(c.Src)
	}
}

func (s *schedule) allGather() {
	c := s.call
	s.keep(c.Src, s.chunk(c.Dst, s.rank))
	if s.ranks == 1 {
		return
	}
	s.send(c.Src, s.next())
	for i := 1; i < s.ranks; i++ {
		got := s.chunk(c.Dst, s.mod(s.rank-i))
		s.recv(s.prev(), got)
		if i < s.ranks-1 {
			s.pass(got, s.next())
		}
	}
}

func (s *schedule) reduceScatter() {
	c := s.call
	if s.ranks == 1 {
		s.keep(c.Src, c.Dst)
		return
	}
	s.send(s.chunk(c.Src, s.prev()), s.next())
	for i := 2; i < s.ranks; i++ {
		s.foldSend(s.chunk(c.Src, s.mod(s.rank-i)))
	}
	s.foldKeep(s.chunk(c.Src, s.rank), c.Dst)
}

func (s *schedule) allReduce() {
	c, r := s.call, s.rank
	if s.ranks == 1 {
		s.keep(s.now(c.Src), s.now(c.Dst))
		return
	}
	s.send(s.piece(c.Src, r), s.next())
	for i := 1; i < s.ranks-1; i++ {
		s.foldSend(s.piece(c.Src, r-i))
	}
	s.foldKeep(s.piece(c.Src, r+1), s.piece(c.Dst, r+1))
	s.send(s.piece(c.Dst, r+1), s.next())
	for i := range s.ranks - 1 {
		s.recv(s.prev(), s.piece(c.Dst, r-i))
		if i < s.ranks-2 {
			s.pass(s.piece(c.Dst, r-i), s.next())
		}
	}
}
