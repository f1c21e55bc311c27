package worker

import "gradnic/worker/rtt"

// window decides which packet of a job slice goes when, and which results
// count. It has no clock and no socket: times come in, as nanoseconds of any
// monotonic clock, and packet numbers come out.
//
// Invariant: of the packets on one slot, at most one is in flight, and all
// before it have their result. So a slot's newest packet tells everything about
// the older ones.
type window struct {
	m     int // packets in flight, at most; slots of this thread
	base  int // the first slot
	shift int // (packet + shift) mod 2m is the place of a packet

	total  int // packets of the job
	stride int // packet k needs the result of k-stride; 0 when it needs none
	done   int // results in

	slots []slotState // by place mod m
	ready []int       // packets that may go for the first time, in order
	head  int         // of ready

	timer   rtt.Timer
	heard   int   // round trips since the timer's last sample
	longest int64 // of them

	sent   uint64 // sendings, first ones and resends
	passed uint64 // the latest sending that is known to have been answered
	gap    uint64 // how many sendings later an answer must be to call a packet lost
}

// slotState is what a slot's newest packet is up to.
type slotState struct {
	packet int // -1 when this job did not use the slot yet
	flying bool
	resent bool
	first  int64 // when it was sent first and last
	last   int64

	firstSending, lastSending uint64 // the same as numbers of window.sent

	// Of the newest packet with a result, if it was resent: its number and the
	// time to its result; -1 if there is none or it taught the timer already.
	doubtful    int
	doubtfulRTT int64
}

// verdict is what a result is to the window.
type verdict uint8

const (
	fresh     verdict = iota // the result of a packet in flight
	duplicate                // of a packet that has its result
	stale                    // of no packet that this job sent
)

func newWindow(m, base int, timer rtt.Timer) *window {
	return &window{m: m, base: base, slots: make([]slotState, m), ready: make([]int, 0, 2*m), timer: timer, gap: uint64(max(3, m/4))}
}

// begin starts a job of total packets. With stride > 0 packet k also waits for
// the result of k-stride; stride must not exceed m.
func (w *window) begin(total, stride int) {
	w.total, w.stride, w.done = total, stride, 0
	for i := range w.slots {
		w.slots[i] = slotState{packet: -1, doubtful: -1}
	}
	w.ready, w.head = w.ready[:0], 0
	first := min(w.m, total)
	if stride > 0 {
		first = min(stride, total)
	}
	for k := range first {
		w.ready = append(w.ready, k)
	}
	w.timer.Calm()
}

// end leaves the slots where the next job goes on.
func (w *window) end() {
	w.shift = (w.shift + w.total) % (2 * w.m)
	w.learn()
}

// finished reports whether every packet has its result.
func (w *window) finished() bool { return w.done == w.total }

// place gives the slot and set of a packet.
func (w *window) place(packet int) (slot, set int) {
	i := (packet + w.shift) % (2 * w.m)
	if i >= w.m {
		return w.base + i - w.m, 1
	}
	return w.base + i, 0
}

// cell is the index into slots, and of the packet's buffer: 0 to m-1.
func (w *window) cell(packet int) int { return (packet + w.shift) % w.m }

// next returns a packet that is to be sent for the first time and counts it as
// sent at now. Ok is false when none may go.
func (w *window) next(now int64) (packet int, ok bool) {
	if w.head == len(w.ready) {
		return 0, false
	}
	packet = w.ready[w.head]
	if w.head++; w.head == len(w.ready) {
		w.ready, w.head = w.ready[:0], 0
	}
	s := &w.slots[w.cell(packet)]
	s.packet, s.flying, s.resent, s.first, s.last = packet, true, false, now, now
	w.sent++
	s.firstSending, s.lastSending = w.sent, w.sent
	return packet, true
}

// result takes in a result by its packet number and place on the wire. rtt is
// the round trip of a fresh result, or -1 when the packet was sent more than once.
func (w *window) result(now int64, packet uint32, slot, set int) (v verdict, rtt int64) {
	if uint64(packet) >= uint64(w.total) {
		return stale, -1
	}
	k := int(packet)
	if wantSlot, wantSet := w.place(k); slot != wantSlot || set != wantSet {
		return stale, -1
	}
	s := &w.slots[w.cell(k)]
	switch {
	case s.packet < k:
		return stale, -1
	case s.packet > k || !s.flying:
		if s.doubtful == k {
			// The switch answered a resend of a packet whose result was on
			// its way: the timer was too short (the idea of Eifel, RFC 3522).
			s.doubtful = -1
			w.hear(s.doubtfulRTT)
		}
		return duplicate, -1
	}
	s.flying = false
	w.done++
	// Of a resent packet the first sending may be what was answered.
	w.passed = max(w.passed, s.firstSending)
	if s.resent { // it is not known which sending the result answers (Karn)
		s.doubtful, s.doubtfulRTT, rtt = k, now-s.first, -1
	} else {
		s.doubtful, rtt = -1, max(now-s.first, 0)
		w.hear(rtt)
	}
	w.timer.Calm()
	if w.stride > 0 {
		w.offer(k + w.stride)
	}
	if w.stride != w.m {
		w.offer(k + w.m)
	}
	return fresh, rtt
}

// hear takes a round trip. The timer learns the longest of as many as are in
// flight together: one sample a round, as RFC 6298 means its gains. Results come in
// bursts, and if each were a sample the variance would be that inside a burst.
func (w *window) hear(rtt int64) {
	w.longest = max(w.longest, rtt)
	if w.heard++; w.heard >= w.m || !w.timer.Sampled() {
		w.learn()
	}
}

func (w *window) learn() {
	if w.heard > 0 {
		w.timer.Sample(w.longest)
	}
	w.heard, w.longest = 0, 0
}

// offer puts a packet in the queue if the result that just came in was the
// last it waited for.
func (w *window) offer(k int) {
	if k >= w.total || !w.has(k-w.m) || (w.stride > 0 && !w.has(k-w.stride)) {
		return
	}
	if w.head > 0 && len(w.ready) == cap(w.ready) {
		w.ready = w.ready[:copy(w.ready, w.ready[w.head:])]
		w.head = 0
	}
	w.ready = append(w.ready, k) // at most m wait, one a slot
}

// has reports whether packet k has its result; those before the first have.
func (w *window) has(k int) bool {
	if k < 0 {
		return true
	}
	s := &w.slots[w.cell(k)]
	return s.packet > k || s.packet == k && !s.flying
}

// expired appends to out the packets that are to be sent again now and counts
// them as sent at now. Early of them, because packets that were sent gap or more
// sendings later have their result: all workers send in nearly one order, and the
// path keeps each one's, so somebody's frame of this packet is lost. (In TCP this is
// forward acknowledgement.) Such resends are driven by results that come in, so they
// never add to what a network carries that delivers nothing. The others
// waited for the timer, which becomes more patient.
func (w *window) expired(now int64, out []int) (again []int, early int) {
	limit := w.timer.Timeout()
	late := false
	for i := range w.slots {
		s := &w.slots[i]
		if !s.flying {
			continue
		}
		switch {
		case w.passed >= s.lastSending+w.gap:
			early++
		case now-s.last >= limit:
			late = true
		default:
			continue
		}
		w.sent++
		s.last, s.lastSending, s.resent = now, w.sent, true
		out = append(out, s.packet)
	}
	if late {
		w.timer.Expire(now)
	}
	return out, early
}

// deadline is when a packet expires next; ok is false when none is in flight.
func (w *window) deadline() (at int64, ok bool) {
	for i := range w.slots {
		if s := &w.slots[i]; s.flying && (!ok || s.last < at) {
			at, ok = s.last, true
		}
	}
	return at + w.timer.Timeout(), ok
}

// oldest returns the packet in flight with the lowest number, for messages.
func (w *window) oldest() (packet int, ok bool) {
	for i := range w.slots {
		if s := &w.slots[i]; s.flying && (!ok || s.packet < packet) {
			packet, ok = s.packet, true
		}
	}
	return packet, ok
}
