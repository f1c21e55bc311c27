package ring

import (
	"encoding/binary"
	"math/bits"
	"time"

	wire "gradnic/wire/ring"
)

const (
	// span is how many frames may be sent beyond the first that is not acknowledged.
	span = 8 * wire.SackBytes
	// ackBytes is how much may come before it is acknowledged, and ackAfter how long a frame may wait for that.
	ackBytes = 22 << 10
	ackAfter = time.Millisecond
)

// inbound is what came from upstream: a window of frame numbers.
type inbound struct {
	next      uint32            // all frames below have come
	come      [span / 64]uint64 // bit i mod span: frame i has come, for those from next on
	highest   uint32            // one more than the highest that has come
	owed      int               // frames since the last acknowledgement
	ackDue    int64             // when one must be sent
	ackNow    bool              // without waiting
	granted   [halves]uint32    // as last told
	duplicate bool              // a frame came twice: the acknowledgement was lost
}

func (rx *inbound) has(seq uint32) bool {
	i := seq % span
	return rx.come[i/64]>>(i%64)&1 != 0
}

// take notes that a frame has come.
func (rx *inbound) take(now int64, seq uint32) {
	i := seq % span
	rx.come[i/64] |= 1 << (i % 64)
	if int32(seq+1-rx.highest) > 0 {
		rx.highest = seq + 1
	}
	if seq != rx.next {
		rx.ackNow = true // there is a gap
	}
	for rx.has(rx.next) {
		i := rx.next % span
		rx.come[i/64] &^= 1 << (i % 64)
		rx.next++
	}
	if rx.owed == 0 {
		rx.ackDue = now + int64(ackAfter)
	}
	rx.owed++
}

// sack writes the bits behind next and returns their length in bytes, without trailing zeros.
func (rx *inbound) sack(out *[wire.SackBytes]byte) int {
	if int32(rx.highest-rx.next) <= 1 {
		return 0
	}
	n := int(rx.highest - rx.next - 1)
	for at := 0; at < n; at += 64 {
		// 64 bits from frame next+1+at on, across a word's border.
		i := (rx.next + 1 + uint32(at)) % span
		w := rx.come[i/64] >> (i % 64)
		if r := i % 64; r != 0 {
			w |= rx.come[(i/64+1)%(span/64)] << (64 - r)
		}
		if left := n - at; left < 64 {
			w &= 1<<left - 1
		}
		binary.LittleEndian.PutUint64(out[at/8:], w)
		if n-at <= 64 {
			return at/8 + (bits.Len64(w)+7)/8
		}
	}
	return 0
}

// receiveData takes one frame of a slice.
func (e *engine) receiveData(v wire.View) wire.Fault {
	h := v.Data()
	rx := &e.rx
	e.counters.DataReceived++
	switch d := h.Sequence - rx.next; {
	case d >= span && int32(d) >= 0:
		return wire.Refused
	case d >= span || rx.has(h.Sequence):
		e.counters.Duplicates++
		rx.duplicate, rx.ackNow = true, true
		return wire.Repeated
	}
	half, step, f, k, fault := e.place(&h, len(v.Payload()))
	if fault != wire.OK {
		return fault
	}
	r := e.find(h.Block)
	if r != nil && r.claim() != (claim{k, h.Request, h.Length}) || r == nil && int32(h.Request-e.nextRequest) < 0 && half == reduce {
		e.fail(e.up, e.cfg.Node, wire.Mismatch, h.Request, 0)
		return wire.Refused
	}
	if r == nil && half == gather {
		return wire.Refused // a sum in which this node has no part
	}
	got := &e.half[half].at(h.Block).got[step*e.cuts.most+f]
	if *got {
		return wire.Refused // it came under another number: added once more, the sum would be wrong
	}
	e.counters.BytesReceived += uint64(len(v.Payload()))
	switch {
	case half == gather:
		if err := e.pass(r, h.Block, step, f, v.Payload()); err != nil {
			return wire.Refused
		}
	case r == nil || !e.mayAdd(h.Block, step):
		e.park(h.Block, step, f, k, &h, v.Payload())
	default:
		if err := e.add(r, h.Block, step, f, v.Payload()); err != nil {
			return wire.Refused
		}
	}
	if e.ring.phase != Formed {
		return wire.OK
	}
	*got = true
	rx.take(e.now, h.Sequence)
	return wire.OK
}

// place checks that a frame is one that the node upstream may send now, and says which: the step within its half, the
// frame of the slice, and the cut.
func (e *engine) place(h *wire.DataHeader, payload int) (half, step, f int, k *cut, fault wire.Fault) {
	n := e.nodes
	step = int(h.Step)
	if step >= n-1 {
		half, step = gather, step-(n-1)
	}
	if (half == gather) != (h.Flags&wire.FlagGather != 0) || int(h.Step) > 2*n-3 {
		return 0, 0, 0, nil, wire.Refused
	}
	if int(h.Slice) != (e.position+1+int(h.Step))%n || !e.half[half].holds(h.Block) {
		return 0, 0, 0, nil, wire.Refused
	}
	if k = e.cuts.get(h.Codec); k == nil {
		return 0, 0, 0, nil, wire.Refused
	}
	f, ok := k.frame(int(h.Offset), int(h.Elements), payload)
	if !ok {
		return 0, 0, 0, nil, wire.Refused
	}
	return half, step, f, k, wire.OK
}

// mayAdd says whether the frame that a reduce step makes has room: the last step's is in the gather half.
func (e *engine) mayAdd(block uint32, step int) bool {
	return step < e.nodes-2 || e.half[gather].holds(block)
}

// add works on a frame of reduce step 0 to N-2 as it comes in: the sum goes on, or is finished.
func (e *engine) add(r *request, block uint32, step, f int, payload []byte) error {
	s := e.open(reduce, block, r)
	slice := (e.position + 1 + step) % e.nodes
	at := e.index(r, block, slice, f)
	acc := e.math.local(r.Data, at, r.cut.count(f))
	flagged, err := e.math.add(r.cut, acc, payload)
	if err != nil {
		return err
	}
	r.stats.NonFinite += uint64(flagged)
	s.arrive--
	if step < e.nodes-2 {
		e.emit(reduce, s, step+1, f, acc)
		return nil
	}
	out := e.emit(gather, e.open(gather, block, r), 0, f, acc)
	if !r.cut.card && !r.cut.plain {
		// All hosts get the same bits: those that the others will decode.
		if err := r.cut.codec.Decode(acc, out, nil); err != nil {
			return err
		}
	}
	e.give(r, at, acc)
	return nil
}

// pass gives a finished frame to the host, and passes it on unless the node downstream has finished it itself.
func (e *engine) pass(r *request, block uint32, step, f int, payload []byte) error {
	s := e.open(gather, block, r)
	slice := (e.position + step) % e.nodes
	values := e.math.in[:r.cut.count(f)]
	if err := r.cut.codec.Decode(values, payload, nil); err != nil {
		return err
	}
	s.arrive--
	switch {
	case step == e.nodes-2:
	case r.cut.card:
		e.emit(gather, s, step+1, f, values)
	default:
		copy(s.payload(step+1, f, e.cuts.room), payload)
		e.enqueue(gather, s, step+1, f)
	}
	e.give(r, e.index(r, block, slice, f), values)
	return nil
}

// index is where a frame's first element is in the request's buffer.
func (e *engine) index(r *request, block uint32, slice, f int) int {
	return (int(block-r.first)*e.nodes+slice)*e.cfg.SliceElements + f*r.cut.elements
}

// give delivers finished values to the host.
func (e *engine) give(r *request, at int, values []float32) {
	r.deliver(at, values)
	r.left--
}

// open returns the slot of a block in one half, begun for the request.
func (e *engine) open(half int, block uint32, r *request) *slot {
	s := e.half[half].at(block)
	if !s.open {
		s.begin(block, r, e.nodes)
	}
	return s
}

// emit encodes values into their place and puts the frame into the queue. It returns the encoded bytes.
func (e *engine) emit(half int, s *slot, step, f int, values []float32) []byte {
	out := s.payload(step, f, e.cuts.room)
	if _, err := s.cut.codec.Encode(out, values, nil); err != nil {
		panic("ring: encode into a frame's own room: " + err.Error()) // sizes are the cut's
	}
	e.enqueue(half, s, step, f)
	return out
}

// park keeps a frame until the host has handed in its request, or until the gather half has room.
func (e *engine) park(block uint32, step, f int, k *cut, h *wire.DataHeader, payload []byte) {
	s := e.half[reduce].at(block)
	if s.waiting == 0 {
		s.block, s.told = block, claim{k, h.Request, h.Length}
	}
	if s.told != (claim{k, h.Request, h.Length}) {
		e.fail(e.up, e.cfg.Node, wire.Mismatch, h.Request, 0)
		return
	}
	copy(s.store[step*e.cuts.room+f*k.bytes:], payload)
	s.parked[step*e.cuts.most+f] = parked{here: true, size: uint16(len(payload))}
	s.waiting++
}

// unpark works on what waits in a block's slot and can go on. It returns whether anything could.
func (e *engine) unpark(s *slot) bool {
	r := e.find(s.block)
	if r == nil {
		return false
	}
	if s.told != r.claim() {
		e.fail(e.up, e.cfg.Node, wire.Mismatch, s.told.number, 0)
		return true
	}
	moved := false
	for step := range e.nodes - 1 {
		if !e.mayAdd(s.block, step) {
			continue
		}
		for f := range r.cut.frames {
			p := &s.parked[step*e.cuts.most+f]
			if !p.here {
				continue
			}
			p.here = false
			s.waiting--
			from := step*e.cuts.room + f*r.cut.bytes
			if err := e.add(r, s.block, step, f, s.store[from:from+int(p.size)]); err != nil {
				e.fail(e.up, e.cfg.Node, wire.Mismatch, r.number, 0)
				return true
			}
			moved = true
		}
	}
	return moved
}

// advance does what has become possible: windows move on, own slices are sent, frames that waited are worked on, requests
// are done.
func (e *engine) advance() {
	for again := true; again && e.ring.phase == Formed; {
		again = false
		for h := range e.half {
			w := e.half[h]
			for s := w.at(w.base); s.finished() && s.block == w.base; s = w.at(w.base) {
				s.end()
				w.base++
				again = true
				if h == gather {
					e.counters.Blocks++
				}
			}
		}
		for e.half[reduce].holds(e.inject) {
			r := e.find(e.inject)
			if r == nil {
				break
			}
			e.injectBlock(r, e.inject)
			e.inject++
			again = true
		}
		e.parkedForHost = false
		for i := range e.half[reduce].slots {
			s := &e.half[reduce].slots[i]
			if s.waiting == 0 {
				continue
			}
			if e.unpark(s) {
				again = true
			}
			if e.ring.phase != Formed {
				return
			}
			e.parkedForHost = e.parkedForHost || s.waiting > 0 && !s.open
		}
		e.finish()
	}
}

// injectBlock puts this node's own slice of a block into the queue.
func (e *engine) injectBlock(r *request, block uint32) {
	if r.started == 0 {
		r.started = max(e.now, 1)
	}
	s := e.open(reduce, block, r)
	for f := range r.cut.frames {
		e.emit(reduce, s, 0, f, e.math.local(r.Data, e.index(r, block, e.position, f), r.cut.count(f)))
	}
}

// waits is a request that some host has not handed in, or that is held up because a node has fallen silent, as told by the
// nodes downstream.
type waits struct {
	node    uint16
	request uint32
	hops    uint16
	at      int64
}

// waitFor is how long a told wait is believed, at least; and two acknowledgements' time.
const waitFor = 300 * time.Millisecond

// expire forgets a wait that is told no more, and notes one's own: for this node's host, or for the node downstream.
func (e *engine) expire() {
	if e.parkedForHost {
		e.waits = waits{node: e.cfg.Node, request: e.nextRequest, at: e.now}
	} else if e.quiet(e.ring.heardDown) {
		e.waits = waits{node: e.down, request: e.firstOpen(), at: e.now}
	} else if e.waits.node != wire.NoNode && (e.waits.node == e.cfg.Node || e.now-e.waits.at > max(int64(waitFor), int64(e.cfg.DeadAfter)/4)) {
		e.waits = waits{node: wire.NoNode}
	}
}

// sayAck acknowledges, if it is time, and grants what has become free.
func (e *engine) sayAck() {
	rx := &e.rx
	grant := [halves]uint32{}
	for h := range e.half {
		grant[h] = e.half[h].base + uint32(e.cfg.Window)
	}
	news := grant != rx.granted
	if !rx.ackNow && !news && rx.owed < e.ackEvery && (rx.owed == 0 || e.now < rx.ackDue) && e.now < e.ring.nextHello {
		return
	}
	h := wire.AckHeader{
		Common: e.common(), Cumulative: rx.next, Reduce: grant[reduce], Gather: grant[gather],
		WaitNode: e.waits.node, WaitRequest: e.waits.request, WaitHops: e.waits.hops,
	}
	if rx.duplicate {
		h.Flags = wire.FlagReply
	}
	n := rx.sack(&e.scratchSack)
	var b [wire.HeaderLen]byte
	h.Put(b[:], n)
	e.put(e.up, b[:], e.scratchSack[:n])
	e.counters.AcksSent++
	rx.owed, rx.ackNow, rx.duplicate, rx.granted = 0, false, false, grant
}
