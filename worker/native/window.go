package native

import "gradnic/worker/rtt"

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
	flight   flight
	lost     int    // chunks that are to be sent again
	lostFrom uint64 // no chunk below it is
	heard    uint64 // one more than the highest chunk with a result
	passed   uint64 // the latest sending that was certainly answered

	// redo is, by slot, what again asked for, redos how many there are and redoLost how many of them are to be sent.
	redo            []cell
	redos, redoLost int

	pace    pace
	timer   timer
	heardAt int64 // when the last result came
	probed  bool  // chunks were sent again since, to find out
	trip    int64 // the last round trip that was measured

	resent, timeouts uint64
}

// cell is what a slot's newest chunk is up to.
type cell struct {
	chunk  uint64
	state  cellState
	resent bool
	redo   bool  // it is in window.redo
	first  int64 // when it was sent first and last
	last   int64

	firstSending, lastSending uint64 // the same as numbers of flight
	before, after             *cell  // in flight, by lastSending
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

// gap is how many sendings later something must have been sent whose result is there, for a contribution to be sent again before
// its timeout: all workers send in nearly one order and the network keeps it, so one of theirs was lost, or a result. (In TCP this is
// forward acknowledgement.) A contribution that was sent again has a number of its own, so that its next loss is
// seen as early. Such resends are driven by results, so they add nothing to what a network carries that delivers nothing.
const gap = 32

// probes is how many chunks are sent again when nothing comes, to find out why.
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
	c := w.cell(chunk)
	*c = cell{chunk: chunk, first: now}
	w.flies(c, now)
	c.firstSending = c.lastSending
	return chunk, false, true
}

func (w *window) resend(c *cell, now int64) {
	w.flies(c, now)
	if c.resent = true; c.firstSending == 0 {
		c.firstSending = c.lastSending
	}
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
	w.redo[chunk%w.slots] = cell{chunk: chunk, state: missed, redo: true}
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
				w.lands(c)
			}
			c.state = idle
			w.redos--
			w.passed = max(w.passed, c.firstSending)
			w.timer.hear(-1, w.inFlight+1)
			w.pace.delivered(now, -1)
			w.heardAt, w.probed = now, false
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
		w.lands(c)
	}
	c.state, rtt = done, -1
	w.passed = max(w.passed, c.firstSending) // of a resent chunk the first sending may be what was answered
	if !c.resent {
		rtt = max(now-c.first, 0)
	}
	w.heard = max(w.heard, chunk+1)
	for w.low < w.next && w.cell(w.low).state == done {
		w.low++
	}
	w.timer.hear(rtt, w.inFlight+1)
	w.pace.delivered(now, rtt)
	w.heardAt, w.probed = now, false
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
	for c := w.flight.oldest; c != nil && c.lastSending+gap <= w.passed; c = w.flight.oldest {
		w.miss(c)
	}
	if at, ok := w.deadline(); !ok || at > now {
		return
	}
	limit := w.timeout()
	if now-w.flight.oldest.last < limit {
		w.probe()
		return
	}
	// When nothing comes at all, someone does not run or the network is gone, and what is in flight is not lost one by one:
	// a few are sent again to find out, and the others get another timeout.
	silent, tried := now-w.heardAt >= limit, 0
	w.probed = w.probed || silent
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
			w.flight.again(c, now)
		}
	}
	for i := range w.redoers() {
		if c := &w.redo[i]; c.state == flying && now-c.last >= limit {
			expired = true
			w.due(c)
		}
	}
	if expired {
		w.timeouts++
		w.timer.Expire(now)
	}
}

// probe has a few chunks sent again, once, when for two round trips nothing came. The last chunks of a call are overtaken by
// nothing, and those that wait for a slot neither; without a probe each of their losses would cost a timeout. That is long, as a
// machine that is busy makes everything late by 10 ms and more, and then all that was in flight would be sent again in vain. Probes
// are few and say nothing of loss, so neither timer nor pace take note (the tail loss probe of RFC 8985).
func (w *window) probe() {
	w.probed = true
	n := 0
	for g := w.low; g < w.next && n < probes; g++ {
		if c := w.cell(g); c.state == flying {
			w.due(c)
			n++
		}
	}
}

// probeAt is when probe is due, if something is in flight.
func (w *window) probeAt() int64 {
	return max(w.heardAt, w.flight.newest.last) + w.timer.Probe()
}

func (w *window) miss(c *cell) {
	w.due(c)
	w.pace.lost()
}

// due has a chunk in flight sent again.
func (w *window) due(c *cell) {
	w.lands(c)
	c.state = missed
	if c.redo {
		w.redoLost++
		return
	}
	w.lostFrom = min(w.lostFrom, c.chunk)
	w.lost++
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
			w.flight.again(c, now)
		}
	}
	if chunk, ok := w.chunkOf(slot, round); ok && chunk < w.next {
		if c := w.cell(chunk); c.chunk == chunk && c.state == flying {
			w.flight.again(c, now)
			w.pace.bad = max(w.pace.bad-1, 0)
		}
	}
}

// restart makes every chunk without a result due, as after the network lost its memory. What is to be contributed to once more is
// forgotten.
func (w *window) restart() {
	for i := range w.redoers() {
		if c := &w.redo[i]; c.state == flying {
			w.lands(c)
		}
		w.redo[i].state = idle
	}
	w.redos, w.redoLost = 0, 0
	for g := w.low; g < w.next; g++ {
		if c := w.cell(g); c.state == flying {
			w.lands(c)
			c.state = missed
			w.lost++
		}
	}
	w.lostFrom = w.low
	w.pace.restart()
	w.timer.Calm()
}

// deadline is when a chunk expires next, or a probe is due; ok is false when none is in flight.
func (w *window) deadline() (at int64, ok bool) {
	if w.flight.oldest == nil {
		return 0, false
	}
	at = w.flight.oldest.last + w.timeout()
	if !w.probed {
		at = min(at, w.probeAt())
	}
	return at, true
}

// flies counts a chunk that is sent at now.
func (w *window) flies(c *cell, now int64) {
	c.state = flying
	w.flight.add(c, now)
	w.inFlight++
}

// lands takes a chunk out of what is in flight.
func (w *window) lands(c *cell) {
	w.flight.remove(c)
	w.inFlight--
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
