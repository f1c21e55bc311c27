package ring

import (
	"time"

	wire "gradnic/wire/ring"
)

// The sender's timers and window, in frames.
const (
	firstBytes  = 48 << 10 // what the first window holds
	leastWindow = 4
	probeAfter  = 5 * time.Millisecond  // at least, before the oldest frame is sent again
	minTimeout  = 20 * time.Millisecond // at least, before all are
	grace       = time.Millisecond      // for acknowledgements that this node has not read yet
	someQueue   = 2 * time.Millisecond  // on the way ends slow start
	fullQueue   = 5 * time.Millisecond  // on the way is enough: the window does not grow beyond
	maxTimeout  = 200 * time.Millisecond
	reordering  = 3 // frames that may overtake another before it counts as lost
)

// ref names an outgoing frame.
type ref struct {
	half  uint8
	slot  uint8
	index uint16 // step*most + frame
}

// queue is a ring of frames to be sent, in the order in which they became ready.
type queue struct {
	refs       []ref
	order      []uint64
	head, tail uint32
}

func newQueue(room int) queue {
	n := 1
	for n < room {
		n *= 2
	}
	return queue{refs: make([]ref, n), order: make([]uint64, n)}
}

func (q *queue) len() int { return int(q.tail - q.head) }

func (q *queue) push(r ref, order uint64) {
	i := q.tail & uint32(len(q.refs)-1)
	q.refs[i], q.order[i] = r, order
	q.tail++
}

func (q *queue) first() (ref, uint64) {
	i := q.head & uint32(len(q.refs)-1)
	return q.refs[i], q.order[i]
}

// outbound is what goes downstream.
type outbound struct {
	queues [halves]queue // ready
	again  queue         // to be sent again
	order  uint64        // of what became ready

	next    uint32    // number of the next new frame
	oldest  uint32    // the first that is not acknowledged
	flight  [span]ref // by number
	flying  int       // sent, neither acknowledged nor lost
	credit  [halves]uint32
	highest uint32 // one more than the highest that was acknowledged

	window   float64
	slow     float64 // slow start ends here
	recover  uint32  // no second decrease for losses before this one
	rtt, dev float64 // ns
	least    float64 // of the round trips lately
	leastAt  int64
	late     bool // the timer has ended, and grace with it will
	backoff  uint
	timer    int64 // when the retransmission timer ends; 0: nothing flies
	latest   int64 // when the latest acknowledged frame was sent
}

// reset begins a generation.
func (t *outbound) reset(e *engine) {
	room := e.cfg.Window * (e.nodes - 1) * e.cuts.most
	old := *t
	*t = outbound{window: max(8, float64(firstBytes/wire.PayloadRoom(e.cfg.MTU))), slow: span}
	for h := range t.queues {
		t.queues[h] = newQueue(room)
		t.credit[h] = uint32(e.cfg.Window)
	}
	t.again = newQueue(span)
	t.rtt, t.dev, t.least, t.leastAt = old.rtt, old.dev, old.least, old.leastAt // the link is the same, mostly
}

// due is when the retransmission timer ends, 0 for never.
func (t *outbound) due() int64 { return t.timer }

// enqueue puts a frame into the queue of its half.
func (e *engine) enqueue(half int, s *slot, step, f int) {
	i := step*e.cuts.most + f
	s.out[i].state = ready
	t := &e.tx
	t.order++
	t.queues[half].push(ref{uint8(half), uint8(e.half[half].index(s.block)), uint16(i)}, t.order)
}

func (e *engine) frame(r ref) (*slot, *outFrame) {
	s := &e.half[r.half].slots[r.slot]
	return s, &s.out[r.index]
}

// pump sends what may be sent: first what was lost, then what is ready, in order; a half without credit lets the other
// one pass.
func (e *engine) pump() {
	t := &e.tx
	if !e.ring.ready[1] {
		return // downstream would not know what to do with it
	}
	if t.timer != 0 && e.now >= t.timer {
		if t.late {
			e.timedOut()
		} else {
			t.timer = e.now + int64(grace)
		}
		t.late = !t.late
	}
	const spare = 4 // for the messages about the ring
	for e.room > spare && len(e.out) < cap(e.out)-spare && t.flying < int(t.window) {
		if t.again.len() > 0 {
			r, _ := t.again.first()
			t.again.head++
			if _, o := e.frame(r); o.state == lost {
				o.again = true
				e.counters.Resends++
				e.send(r)
			}
			continue
		}
		if t.next-t.oldest >= span {
			return
		}
		h := e.choose()
		if h < 0 {
			return
		}
		r, _ := t.queues[h].first()
		t.queues[h].head++
		_, o := e.frame(r)
		o.sequence = t.next
		t.flight[t.next%span] = r
		t.next++
		e.send(r)
	}
}

// choose is the half whose first frame is next; -1 when none may go.
func (e *engine) choose() int {
	best, order := -1, uint64(0)
	for h := range e.tx.queues {
		q := &e.tx.queues[h]
		if q.len() == 0 {
			continue
		}
		r, o := q.first()
		if s, _ := e.frame(r); int32(s.block-e.tx.credit[h]) >= 0 {
			continue
		}
		if best < 0 || o < order {
			best, order = h, o
		}
	}
	return best
}

// send puts a frame into the turn's messages.
func (e *engine) send(r ref) {
	t := &e.tx
	s, o := e.frame(r)
	o.state, o.sent = flying, e.now
	t.flying++
	if t.timer == 0 {
		t.timer = e.now + t.timeout()
	}
	step, f := int(r.index)/e.cuts.most, int(r.index)%e.cuts.most
	payload := s.payload(step, f, e.cuts.room)
	h := wire.DataHeader{
		Common: e.common(), Codec: s.cut.id, Sequence: o.sequence, Request: s.number, Block: s.block, Length: s.length,
		Offset: uint16(f * s.cut.elements), Elements: uint16(s.cut.count(f)),
	}
	if r.half == gather {
		step += e.nodes - 1
		h.Flags |= wire.FlagGather
	}
	if o.again {
		h.Flags |= wire.FlagResend
	}
	h.Step, h.Slice = uint8(step), uint16((e.position+step)%e.nodes)
	var b [wire.HeaderLen]byte
	h.Put(b[:], len(payload))
	e.put(e.down, b[:], payload)
	e.counters.DataSent++
	e.counters.BytesSent += uint64(len(payload))
}

// receiveAck takes what downstream has got and grants.
func (e *engine) receiveAck(v wire.View) wire.Fault {
	h := v.Ack()
	t := &e.tx
	if d := h.Cumulative - t.oldest; int32(d) > int32(t.next-t.oldest) {
		return wire.Refused // it acknowledges what was never sent
	}
	e.counters.AcksReceived++
	e.ring.ready[1] = true
	for half, c := range [halves]uint32{h.Reduce, h.Gather} {
		if d := int32(c - t.credit[half]); d > 0 && d <= 2*int32(e.cfg.Window) {
			t.credit[half] = c
		}
	}
	if h.WaitNode != wire.NoNode && h.WaitNode != e.cfg.Node && int(h.WaitHops) < e.nodes && !e.parkedForHost {
		e.rx.ackNow = e.rx.ackNow || e.waits.node != h.WaitNode // it goes round without waiting
		e.waits = waits{node: h.WaitNode, request: h.WaitRequest, hops: h.WaitHops + 1, at: e.now}
	}
	acked := 0
	newest := int64(0)
	for i := t.oldest; int32(h.Cumulative-i) > 0; i++ {
		acked += e.acked(i, &newest)
	}
	sack := v.Payload()
	for at, b := range sack {
		for bit := 0; b != 0; bit, b = bit+1, b>>1 {
			if i := h.Cumulative + 1 + uint32(8*at+bit); b&1 != 0 && int32(t.next-i) > 0 && int32(i-t.oldest) >= 0 {
				acked += e.acked(i, &newest)
			}
		}
	}
	if int32(h.Cumulative-t.oldest) > 0 {
		t.oldest = h.Cumulative
	}
	if acked > 0 {
		if newest > 0 {
			t.measure(e.now, float64(e.now-newest))
		}
		t.grow(acked, float64(e.now-newest))
		t.backoff, t.late = 0, false
		t.timer = 0
		if t.flying > 0 {
			t.timer = e.now + t.timeout()
		}
	}
	if acked > 0 {
		e.findLost()
	}
	return wire.OK
}

// acked notes that one frame has arrived, and returns 1 if that is news. newest becomes the latest time that an
// acknowledged frame was sent at, of those sent once.
func (e *engine) acked(sequence uint32, newest *int64) int {
	t := &e.tx
	s, o := e.frame(t.flight[sequence%span])
	if o.sequence != sequence || o.state != flying && o.state != lost {
		return 0
	}
	if o.state == flying {
		t.flying--
	}
	o.state = safe
	s.unacked--
	t.latest = max(t.latest, o.sent)
	if !o.again {
		*newest = max(*newest, o.sent)
	}
	if int32(sequence+1-t.highest) > 0 {
		t.highest = sequence + 1
	}
	return 1
}

// findLost marks frames as lost that others have overtaken: by number, or because a frame that was sent later has
// arrived (RFC 8985, RACK).
func (e *engine) findLost() {
	t := &e.tx
	slack := int64(max(t.rtt/4, float64(200*time.Microsecond)))
	for i := t.oldest; i != t.next; i++ {
		_, o := e.frame(t.flight[i%span])
		if o.sequence != i || o.state != flying {
			continue
		}
		late := o.sent+slack < t.latest || !o.again && int32(t.highest-i) > reordering
		if !late {
			if !o.again {
				return // those behind it were sent later
			}
			continue
		}
		e.lose(i, o)
		if int32(i-t.recover) >= 0 {
			t.window = max(t.window*0.7, leastWindow)
			t.slow = t.window
			t.recover = t.next
		}
	}
}

// lose puts a frame into the queue of those to be sent again.
func (e *engine) lose(sequence uint32, o *outFrame) {
	o.state = lost
	e.tx.flying--
	e.tx.again.push(e.tx.flight[sequence%span], 0)
}

// timedOut sends the oldest frame again; what comes back says what else is missing. When that does not help either,
// everything that flies counts as lost.
func (e *engine) timedOut() {
	t := &e.tx
	e.counters.Timeouts++
	for i := t.oldest; i != t.next; i++ {
		if _, o := e.frame(t.flight[i%span]); o.sequence == i && o.state == flying {
			e.lose(i, o)
			if t.backoff == 0 {
				break
			}
		}
	}
	if t.backoff > 0 {
		t.slow = max(t.window/2, leastWindow)
		t.window = leastWindow
		t.recover = t.next
	}
	t.backoff = min(t.backoff+1, 8)
	t.timer = 0
	if t.flying > 0 {
		t.timer = e.now + t.timeout()
	}
}

// grow opens the window: by what was acknowledged at first, then by one a round trip; not when the last round
// trip says that frames queue on the way, where they would hold up the acknowledgements of others.
func (t *outbound) grow(acked int, ns float64) {
	if queued := ns - t.least; queued > float64(someQueue) {
		t.slow = min(t.slow, t.window)
		if queued > float64(fullQueue) {
			return
		}
	}
	if t.window < t.slow {
		t.window = min(t.window+float64(acked), span)
		return
	}
	t.window = min(t.window+float64(acked)/t.window, span)
}

// measure takes one round trip (RFC 6298).
func (t *outbound) measure(now int64, ns float64) {
	if ns <= t.least || t.least == 0 || now-t.leastAt > int64(10*time.Second) {
		t.least, t.leastAt = ns, now
	}
	if t.rtt == 0 {
		t.rtt, t.dev = ns, ns/2
	} else {
		d := ns - t.rtt
		t.dev += (max(d, -d) - t.dev) / 4
		t.rtt += d / 8
	}
}

// timeout is how long to wait for an acknowledgement. The first time only a probe is sent, which costs little.
func (t *outbound) timeout() int64 {
	base := int64(t.rtt+4*t.dev) + int64(ackAfter)
	if t.rtt == 0 {
		base = int64(minTimeout)
	}
	if t.backoff == 0 {
		return min(max(base, int64(probeAfter)), int64(maxTimeout))
	}
	return min(max(base, int64(minTimeout))<<(t.backoff-1), int64(maxTimeout))
}

// blocked says whether frames could go if the port took them.
func (e *engine) blocked() bool {
	t := &e.tx
	return e.ring.ready[1] && t.flying < int(t.window) && (t.again.len() > 0 || t.next-t.oldest < span && e.choose() >= 0)
}
