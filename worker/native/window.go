package native

import (
	"math"

	"gradnic/worker/rtt"
)

// window decides which chunk goes when, and which results count. It has no clock and no socket: times come in, as
// nanoseconds of any monotonic clock, and chunk numbers come out.
//
// Invariant: low <= chunk < low+slots for every chunk that was sent and lacks its result, and all chunks below low have
// theirs. So every slot has at most one chunk without a result, and what docs/protocol.md says about the window holds.
type window struct {
	slots uint64
	low   uint64 // the first chunk without a result
	next  uint64 // the first chunk that was never sent
	end   uint64 // the first chunk that nobody has submitted yet

	cells    []cell // by slot
	inFlight int
	oldest   int64  // no chunk in flight was sent last before
	lost     int    // chunks that are to be sent again
	lostFrom uint64 // no chunk below it is
	heard    uint64 // one more than the highest chunk with a result
	fast     uint64 // below it, gaps have been looked at

	// redo is, by slot, what again asked for, redos how many there are and redoLost how many of them are to be sent.
	redo            []cell
	redos, redoLost int

	pace    pace
	timer   timer
	heardAt int64 // when the last result came
	trip    int64 // the last round trip that was measured

	resent, timeouts uint64
}

// cell is what a slot's newest chunk is up to.
type cell struct {
	chunk  uint64
	state  cellState
	resent bool
	first  int64 // when it was sent first and last
	last   int64
}

type cellState uint8

const (
	idle   cellState = iota
	flying           // sent, no result yet
	missed           // to be sent again
	done             // its result is there
)

// verdict is what a result is to the window.
type verdict uint8

const (
	fresh     verdict = iota // of a chunk that waits for it
	duplicate                // of a chunk that has it
	stale                    // of no chunk that could have been sent
	redone                   // of a chunk that was contributed to once more after its result
)

// gap is how many chunks a result may be overtaken by before its contribution is sent again.
const gap = 32

// probes is how many chunks are sent again when nothing comes.
const probes = 8

func newWindow(slots int, cap int, rto rtt.Timer) *window {
	return &window{slots: uint64(slots), cells: make([]cell, slots), pace: newPace(min(cap, slots)), timer: timer{Timer: rto}}
}

func (w *window) cell(chunk uint64) *cell { return &w.cells[chunk%w.slots] }

// submit makes n more chunks.
func (w *window) submit(n int) { w.end += uint64(n) }

// take returns a chunk that is to be sent at now; again says that it was sent before. Ok is false when none may go.
func (w *window) take(now int64) (chunk uint64, again, ok bool) {
	if w.inFlight >= w.pace.limit() {
		return 0, false, false
	}
	if w.redoLost > 0 {
		for i := range w.redo {
			if c := &w.redo[i]; c.state == missed {
				w.redoLost--
				w.resend(c, now)
				return c.chunk, true, true
			}
		}
		panic("native: a chunk that is to be contributed to once more is in no slot")
	}
	if w.lost > 0 {
		held := false
		for g := max(w.lostFrom, w.low); g < w.next; g++ {
			c := w.cell(g)
			if c.chunk != g || c.state != missed {
				continue
			}
			if w.held(g) {
				held = true
				continue
			}
			w.lost--
			if !held {
				w.lostFrom = g + 1
			}
			w.resend(c, now)
			return g, true, true
		}
		if !held {
			panic("native: a chunk that is to be sent again is not in the window")
		}
	}
	if w.next >= w.end || w.next >= w.low+w.slots || w.held(w.next) {
		return 0, false, false
	}
	chunk = w.next
	w.next++
	*w.cell(chunk) = cell{chunk: chunk, state: flying, first: now, last: now}
	w.flies(now)
	return chunk, false, true
}

func (w *window) resend(c *cell, now int64) {
	w.flies(now)
	c.state, c.resent, c.last = flying, true, now
	w.resent++
}

// held reports whether a chunk must wait because an earlier one of its slot is to be contributed to once more: the network
// would begin the slot with the later round.
func (w *window) held(chunk uint64) bool { return w.redos > 0 && w.redo[chunk%w.slots].state != idle }

// redoing reports whether a chunk that take returned is one of those.
func (w *window) redoing(chunk uint64) bool {
	return w.held(chunk) && w.redo[chunk%w.slots].chunk == chunk
}

// again has a chunk whose result is there contributed to once more, because the network lost the result and the worker that
// has use for its values has not got them. The chunk is the last one of its slot with a result.
func (w *window) again(chunk uint64) {
	if w.redo == nil {
		w.redo = make([]cell, w.slots)
	}
	w.redo[chunk%w.slots] = cell{chunk: chunk, state: missed}
	w.redos++
	w.redoLost++
}

// chunkOf is the chunk that a slot and a round mean to this worker: the one in the window. ok is false when the round is
// another's.
func (w *window) chunkOf(slot, round uint32) (chunk uint64, ok bool) {
	if uint64(slot) >= w.slots {
		return 0, false
	}
	chunk = w.low - w.low%w.slots + uint64(slot)
	if chunk < w.low {
		chunk += w.slots
	}
	return chunk, uint32(chunk/w.slots) == round
}

func (w *window) place(chunk uint64) (slot, round uint32) {
	return uint32(chunk % w.slots), uint32(chunk / w.slots)
}

// result takes in the result of a slot's round. rtt is the round trip of a fresh one, -1 when it was sent more than once.
func (w *window) result(now int64, slot, round uint32) (chunk uint64, v verdict, rtt int64) {
	if w.redos > 0 && uint64(slot) < w.slots {
		if c := &w.redo[slot]; c.state != idle && uint32(c.chunk/w.slots) == round {
			if c.state == missed {
				w.redoLost--
			} else {
				w.inFlight--
			}
			c.state = idle
			w.redos--
			w.timer.hear(-1, w.inFlight+1)
			w.pace.delivered(now, -1)
			w.heardAt = now
			return c.chunk, redone, -1
		}
	}
	chunk, ok := w.chunkOf(slot, round)
	if !ok {
		return 0, stale, -1
	}
	c := w.cell(chunk)
	switch {
	case chunk >= w.next || c.chunk != chunk:
		return 0, stale, -1
	case c.state == done:
		return chunk, duplicate, -1
	case c.state == missed:
		w.lost--
	default:
		w.inFlight--
	}
	c.state, rtt = done, -1
	if !c.resent {
		rtt = max(now-c.first, 0)
	}
	w.heard = max(w.heard, chunk+1)
	for w.low < w.next && w.cell(w.low).state == done {
		w.low++
	}
	w.timer.hear(rtt, w.inFlight+1)
	w.pace.delivered(now, rtt)
	w.heardAt = now
	if rtt >= 0 {
		w.trip = rtt
	}
	return chunk, fresh, rtt
}

// has reports whether the result of a chunk is there.
func (w *window) has(chunk uint64) bool {
	if chunk < w.low {
		return true
	}
	c := w.cell(chunk)
	return chunk < w.next && c.chunk == chunk && c.state == done
}

// have is the bitmap of chunks from low on that have their result, least significant bit first.
func (w *window) have() []byte {
	var b []byte
	for g := w.low; g < w.heard; g++ {
		if w.has(g) {
			i := g - w.low
			for uint64(len(b)) <= i/8 {
				b = append(b, 0)
			}
			b[i/8] |= 1 << (i % 8)
		}
	}
	return b
}

// check marks what is to be sent again at now: what has waited too long, and what many later results overtook.
func (w *window) check(now int64) {
	for ; w.fast+gap < w.heard; w.fast++ {
		if c := w.cell(w.fast); w.fast >= w.low && c.chunk == w.fast && c.state == flying && !c.resent {
			w.miss(c)
		}
	}
	if at, ok := w.deadline(); !ok || at > now {
		return
	}
	defer w.findOldest()
	limit := w.timeout()
	// When nothing comes at all, someone does not run or the network is gone, and what is in flight is not lost one by one:
	// a few are sent again to find out, and the others get another timeout.
	silent, tried := now-w.heardAt >= limit, 0
	expired := false
	for g := w.low; g < w.next; g++ {
		c := w.cell(g)
		if c.state != flying || now-c.last < limit {
			continue
		}
		expired = true
		switch {
		case !silent:
			w.miss(c)
		case tried < probes:
			tried++
			w.due(c)
		default:
			c.last = now
		}
	}
	for i := range w.redoers() {
		if c := &w.redo[i]; c.state == flying && now-c.last >= limit {
			c.state = missed
			w.redoLost++
			w.inFlight--
			expired = true
		}
	}
	if expired {
		w.timeouts++
		w.timer.Expire(now)
	}
}

func (w *window) miss(c *cell) {
	w.due(c)
	w.pace.lost()
}

// due has a chunk in flight sent again.
func (w *window) due(c *cell) {
	c.state = missed
	w.lostFrom = min(w.lostFrom, c.chunk)
	w.lost++
	w.inFlight--
}

// timeout is how long a chunk waits for its result: the timer's, or somewhat longer than the last round trip took, when all of
// a sudden they take longer.
func (w *window) timeout() int64 {
	t := w.timer.Timeout()
	return max(t, min(w.trip+t/2, 8*t))
}

// redoers is redo, if there is something in it.
func (w *window) redoers() []cell {
	if w.redos == 0 {
		return nil
	}
	return w.redo
}

// patient says that the network has the contribution and waits for others: it is not lost.
func (w *window) patient(now int64, slot, round uint32) {
	if uint64(slot) < w.slots && w.redos > 0 {
		if c := &w.redo[slot]; c.state == flying && uint32(c.chunk/w.slots) == round {
			c.last = now
		}
	}
	if chunk, ok := w.chunkOf(slot, round); ok && chunk < w.next {
		if c := w.cell(chunk); c.chunk == chunk && c.state == flying {
			c.last = now
			w.pace.bad = max(w.pace.bad-1, 0)
		}
	}
}

// restart makes every chunk without a result due, as after the network lost its memory. What is to be contributed to once more is
// forgotten.
func (w *window) restart() {
	for i := range w.redoers() {
		if c := &w.redo[i]; c.state == flying {
			w.inFlight--
		}
		w.redo[i].state = idle
	}
	w.redos, w.redoLost = 0, 0
	for g := w.low; g < w.next; g++ {
		if c := w.cell(g); c.state == flying {
			c.state = missed
			w.lost++
			w.inFlight--
		}
	}
	w.lostFrom = w.low
	w.fast = w.next
	w.pace.restart()
	w.timer.Calm()
}

// deadline is when a chunk may expire next: none does before, and check knows whether one has. ok is false when none is in flight.
func (w *window) deadline() (at int64, ok bool) { return w.oldest + w.timeout(), w.inFlight > 0 }

// findOldest makes oldest exact. It looks at the whole window, so only check does it, and only when a chunk may have expired.
func (w *window) findOldest() {
	w.oldest = math.MaxInt64 / 2
	for g := w.low; g < w.next; g++ {
		if c := w.cell(g); c.state == flying {
			w.oldest = min(w.oldest, c.last)
		}
	}
	for i := range w.redoers() {
		if c := &w.redo[i]; c.state == flying {
			w.oldest = min(w.oldest, c.last)
		}
	}
}

// flies counts a chunk that is sent at now.
func (w *window) flies(now int64) {
	if w.inFlight == 0 || now < w.oldest {
		w.oldest = now
	}
	w.inFlight++
}

// timer is the retransmission timer, which takes one sample a round.
type timer struct {
	rtt.Timer
	longest int64
	heard   int
}

// hear takes a round trip, or -1 when only something came in. The longest of as many as are in flight together is a sample.
func (r *timer) hear(rtt int64, round int) {
	r.Calm()
	if rtt < 0 {
		return
	}
	r.longest = max(r.longest, rtt)
	if r.heard++; r.heard < round && r.Sampled() {
		return
	}
	r.Sample(r.longest)
	r.heard, r.longest = 0, 0
}
