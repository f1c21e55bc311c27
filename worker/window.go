package worker

import "time"

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

	timer   rto
	heard   int   // round trips since the timer's last sample
	longest int64 // of them
}

// slotState is what a slot's newest packet is up to.
type slotState struct {
	packet int // -1 when this job did not use the slot yet
	flying bool
	resent bool
	first  int64 // when it was sent first and last
	last   int64

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

func newWindow(m, base int, timer rto) *window {
	return &window{m: m, base: base, slots: make([]slotState, m), ready: make([]int, 0, 2*m), timer: timer}
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
	w.timer.calm()
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
	if s.resent { // it is not known which sending the result answers (Karn)
		s.doubtful, s.doubtfulRTT, rtt = k, now-s.first, -1
	} else {
		s.doubtful, rtt = -1, max(now-s.first, 0)
		w.hear(rtt)
	}
	w.timer.calm()
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
	if w.heard++; w.heard >= w.m || !w.timer.sampled {
		w.learn()
	}
}

func (w *window) learn() {
	if w.heard > 0 {
		w.timer.sample(w.longest)
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

// expired appends to out the packets that are to be sent again now, counts them
// as sent at now, and makes the timer more patient.
func (w *window) expired(now int64, out []int) []int {
	limit := w.timer.timeout()
	n := len(out)
	for i := range w.slots {
		s := &w.slots[i]
		if s.flying && now-s.last >= limit {
			s.last, s.resent = now, true
			out = append(out, s.packet)
		}
	}
	if len(out) > n {
		w.timer.expire(now)
	}
	return out
}

// deadline is when a packet expires next; ok is false when none is in flight.
func (w *window) deadline() (at int64, ok bool) {
	for i := range w.slots {
		if s := &w.slots[i]; s.flying && (!ok || s.last < at) {
			at, ok = s.last, true
		}
	}
	return at + w.timer.timeout(), ok
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

// rto is the retransmission timer: RFC 6298's estimate of the round trip within
// [min, max], doubled while nothing comes in.
//
// The estimate holds the wait for the slowest worker, since the switch answers
// when the last has come. It starts over for nothing: jobs of one session
// resemble each other.
type rto struct {
	min, max     int64
	initial      int64 // until the first sample
	srtt, rttvar int64
	sampled      bool
	backoff      uint
	lastExpire   int64
	expiredOnce  bool
}

func newRTO(initial, lo, hi time.Duration) rto {
	return rto{initial: int64(initial), min: int64(lo), max: int64(hi)}
}

// timeout is how long a packet waits before it is sent again, in nanoseconds.
func (r *rto) timeout() int64 {
	t := r.initial
	if r.sampled {
		t = r.srtt + 4*r.rttvar
	}
	t = max(t, r.min)
	for i := uint(0); i < r.backoff && t < r.max; i++ {
		t *= 2
	}
	return min(t, r.max)
}

// sample takes a measured round trip.
func (r *rto) sample(rtt int64) {
	rtt = max(rtt, 0)
	if !r.sampled {
		r.srtt, r.rttvar, r.sampled = rtt, rtt/2, true
		return
	}
	r.rttvar = (3*r.rttvar + abs(r.srtt-rtt)) / 4
	r.srtt = (7*r.srtt + rtt) / 8
}

func abs(x int64) int64 {
	if x < 0 {
		return -x
	}
	return x
}

// expire doubles the timeout, once for all packets that expire together.
func (r *rto) expire(now int64) {
	if r.expiredOnce && now-r.lastExpire < r.timeout()/2 {
		return
	}
	r.lastExpire, r.expiredOnce = now, true
	if r.timeout() < r.max {
		r.backoff++
	}
}

// calm ends the doubling: something came in.
func (r *rto) calm() { r.backoff, r.expiredOnce = 0, false }
