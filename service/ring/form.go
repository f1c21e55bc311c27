package ring

import (
	"time"

	wire "gradnic/wire/ring"
)

// helloEvery is how often nodes say hello while the ring forms.
const helloEvery = 20 * time.Millisecond

// noticeFor is how long a node tells of a failure without being asked.
const noticeFor = 3 * time.Second

// membership is what a node knows of who is in the ring.
type membership struct {
	phase      Phase
	generation uint32
	seen       uint32 // the latest generation that another node told of
	epoch      uint32
	members    []wire.Member // of this generation, in the order of the ring
	ready      [2]bool       // the neighbour up and down has formed as well, with the same epoch
	passed     [2]int64      // when the neighbour up and down was first heard of in a later generation; 0: it is in this one
	nextHello  int64
	heardUp    int64
	heardDown  int64

	left     wire.NoticeHeader // of a node that has left, while requests from before are brought to an end; no reason: none
	downLeft bool              // the node downstream has: it needs nothing any more

	failure   *NodeError
	notice    wire.NoticeHeader
	stopAfter int64
	told      wire.NoticeHeader // while forming: a neighbour's, for whom this generation or a later one is over; no reason: none
	past      []ended           // generations that this node has left, in their order
}

// heard notes that a neighbour lives.
func (m *membership) heard(now int64, node uint16, e *engine) {
	if node == e.up {
		m.heardUp = now
	}
	if node == e.down {
		m.heardDown = now
	}
}

// sees notes a generation that another node is or was in. Numbers start again at 1 after 2^32-1.
func (m *membership) sees(generation uint32) {
	if int32(generation-m.seen) > 0 {
		m.seen = generation
	}
}

// next is the generation that comes now: one that no node is known to have been in. Others may just be leaving the latest that
// was seen; those that form it have not, without this node, and follow.
func (m *membership) next() uint32 {
	m.sees(m.generation)
	return max(m.seen+1, 1)
}

// reform begins a generation with these nodes. Requests that are open must have ended.
func (e *engine) reform(nodes []uint16) {
	m := &e.ring
	e.leaveBehind()
	m.generation = m.next()
	m.phase, m.epoch, m.failure = Forming, 0, nil
	m.members = make([]wire.Member, len(nodes))
	for i, n := range nodes {
		m.members[i].Node = n
		if n == e.cfg.Node {
			e.position = i
			m.members[i].Boot = e.cfg.Boot
		}
	}
	e.nodes = len(nodes)
	e.up = nodes[(e.position+1)%e.nodes]
	e.down = nodes[(e.position+e.nodes-1)%e.nodes]
	if e.nodes < 2 {
		m.phase = Formed
		e.half = [halves]*window{}
		return
	}
	e.newWindows()
	e.restart()
}

func (e *engine) newWindows() {
	for h := range halves {
		e.half[h] = newWindow(h, e.cfg.Window, e.nodes, e.cuts)
	}
}

// restart puts everything that belongs to one generation back to its start.
func (e *engine) restart() {
	m := &e.ring
	m.ready, m.passed, m.told = [2]bool{}, [2]int64{}, wire.NoticeHeader{}
	m.left, m.downLeft = wire.NoticeHeader{}, false
	m.nextHello = 0
	m.heardUp, m.heardDown = e.now, e.now
	e.nextRequest, e.nextBlock, e.inject = 0, 0, 0
	w := uint32(e.cfg.Window)
	e.rx = inbound{granted: [halves]uint32{w, w}}
	e.tx.reset(e)
	e.waits = waits{node: wire.NoNode}
}

// complete is true when the boots of all members are known.
func (m *membership) complete() bool {
	for _, x := range m.members {
		if x.Boot == 0 {
			return false
		}
	}
	return true
}

// sayHello sends a hello to both neighbours when it is time.
func (e *engine) sayHello() {
	m := &e.ring
	if e.now < m.nextHello {
		return
	}
	m.nextHello = e.now + int64(helloEvery)
	if m.phase == Formed && m.ready[0] && m.ready[1] {
		m.nextHello = e.now + int64(e.cfg.DeadAfter)/8
	}
	h := wire.HelloHeader{
		Common: e.common(), SliceElements: uint32(e.cfg.SliceElements), MTU: uint16(e.cfg.MTU),
		Window: uint16(e.cfg.Window), Boot: e.cfg.Boot,
	}
	if m.phase == Formed {
		h.Flags = wire.FlagFormed
	}
	var b [wire.HeaderLen + wire.MemberLen*wire.MaxNodes]byte
	n := h.Put(b[:], m.members)
	copy(e.scratchHello[:], b[wire.HeaderLen:n])
	e.both(b[:wire.HeaderLen], e.scratchHello[:n-wire.HeaderLen])
	e.sayPast()
}

// both sends a message to the neighbours, once when they are the same node. It goes out even when the port is full:
// then it is the port that drops it.
func (e *engine) both(header, payload []byte) {
	e.put(e.up, header, payload)
	if e.down != e.up {
		e.put(e.down, header, payload)
	}
}

func (e *engine) put(to uint16, header, payload []byte) {
	if len(e.out) == cap(e.out) {
		return
	}
	e.out = append(e.out, message{to: to, payload: payload})
	copy(e.out[len(e.out)-1].header[:], header)
	e.room--
}

func (e *engine) common() wire.Common {
	return wire.Common{Ring: e.cfg.Ring, Node: e.cfg.Node, Generation: e.ring.generation, Epoch: e.ring.epoch}
}

// stranger looks at a message from a node that is no neighbour: it may be the neighbour of another view of the ring, or
// a node that was left out and does not know it.
func (e *engine) stranger(v wire.View) wire.Fault {
	if v.Kind() == wire.Hello {
		e.ring.sees(v.Generation())
	}
	e.behind(v)
	return wire.Foreign
}

// stale answers what a node of an ended generation sends: it has not heard of the end. A hello of an earlier one is answered too:
// its sender waits for a generation that this node's host has not begun.
func (e *engine) stale(v wire.View) {
	m := &e.ring
	d := int32(v.Generation() - m.generation)
	if m.phase == Failed && (d == 0 || d < 0 && v.Kind() == wire.Hello) && e.now > m.stopAfter {
		m.stopAfter, m.nextHello = e.now+int64(helloEvery), e.now
	}
	e.behind(v)
}

// receiveHello learns boots from a neighbour.
func (e *engine) receiveHello(v wire.View) wire.Fault {
	h := v.Hello()
	m := &e.ring
	m.sees(h.Generation)
	if m.phase == Failed {
		e.stale(v)
		return wire.Stale
	}
	same := e.sameMembers(v)
	switch d := int32(h.Generation - m.generation); {
	case d < 0:
		e.behind(v)
		return wire.Stale
	case d > 0 && m.phase == Formed:
		e.passedBy(&h)
		return wire.OK
	case d > 0 && same:
		e.leaveBehind()
		m.generation = h.Generation
		m.forget(e.cfg.Node)
		e.renumber()
	case !same:
		return wire.Foreign
	}
	if h.SliceElements != uint32(e.cfg.SliceElements) || int(h.MTU) != e.cfg.MTU || int(h.Window) != e.cfg.Window {
		e.fail(h.Node, e.cfg.Node, wire.Mismatch, e.firstOpen(), h.Boot)
		return wire.OK
	}
	if !e.learn(v, &h) {
		return wire.OK
	}
	m.heard(e.now, h.Node, e)
	if m.told.Node == h.Node {
		m.told = wire.NoticeHeader{} // it has come back, or this is its next life
	}
	if m.phase == Forming && m.complete() {
		m.phase = Formed
		m.epoch = wire.Epoch(m.generation, m.members)
		m.told = wire.NoticeHeader{}
		m.nextHello = 0
		m.heardUp, m.heardDown = e.now, e.now
	}
	if m.phase == Formed && h.Flags&wire.FlagFormed != 0 && h.Epoch == m.epoch {
		m.ready[0] = m.ready[0] || h.Node == e.up
		m.ready[1] = m.ready[1] || h.Node == e.down
	}
	return wire.OK
}

// sameMembers compares the hello's nodes with this node's.
func (e *engine) sameMembers(v wire.View) bool {
	if int(v.Hello().Nodes) != len(e.ring.members) {
		return false
	}
	for i, m := range e.ring.members {
		if v.Member(i).Node != m.Node {
			return false
		}
	}
	return true
}

// learn takes over boots that are news. A boot that differs from one that is known ends a formed generation, unless it is an
// earlier one and the sender still forms; while the ring forms the later one counts.
func (e *engine) learn(v wire.View, h *wire.HelloHeader) bool {
	m := &e.ring
	for i := range m.members {
		x := v.Member(i)
		if x.Node == h.Node {
			x.Boot = h.Boot
		}
		mine := &m.members[i]
		switch {
		case x.Boot == 0 || x.Boot == mine.Boot:
		case x.Node == e.cfg.Node:
			// Somebody remembers an earlier life of this node in this generation. It has to be formed again.
			if x.Boot < e.cfg.Boot {
				continue // it will learn of the later one
			}
			e.fail(x.Node, e.cfg.Node, wire.Restarted, e.firstOpen(), x.Boot)
			return false
		case m.phase == Formed && h.Flags&wire.FlagFormed == 0 && x.Boot < mine.Boot:
			continue // this one too
		case m.phase == Formed:
			e.fail(x.Node, e.cfg.Node, wire.Restarted, e.firstOpen(), x.Boot)
			return false
		case x.Boot > mine.Boot:
			mine.Boot = x.Boot
			m.nextHello = 0
		}
	}
	return true
}

// passing says whether the node downstream may still lack finished slices of requests that are done here.
func (e *engine) passing() bool {
	if e.ring.phase != Formed || e.nodes < 2 || e.ring.downLeft {
		return false
	}
	open := e.nextBlock
	if len(e.requests) > 0 {
		open = e.requests[0].first
	}
	return int32(e.half[gather].base-open) < 0
}

// bringToEnd ends the generation for a node that has left when the requests that the node has seen done are done here as well
// and passed on. They need nothing of it any more: it had sent all that others lacked. Later ones cannot be done.
func (e *engine) bringToEnd() {
	if h := &e.ring.left; h.Reason != 0 && e.ring.phase == Formed && int32(e.firstOpen()-h.Request) >= 0 && !e.passing() {
		e.parted()
	}
}

// parted ends the generation for the node that has left.
func (e *engine) parted() {
	h := e.ring.left
	e.fail(h.Failed, h.Origin, h.Reason, h.Request, h.Boot)
}

func (e *engine) firstOpen() uint32 {
	if len(e.requests) > 0 {
		return e.requests[0].number
	}
	return e.nextRequest
}

// fail ends the generation: every request that is open ends with an error that names the node.
func (e *engine) fail(node, at uint16, reason wire.Reason, number uint32, boot uint64) {
	m := &e.ring
	if m.phase == Failed {
		return
	}
	m.phase = Failed
	m.failure = &NodeError{Node: node, At: at, Reason: reason, Generation: m.generation}
	m.notice = wire.NoticeHeader{Common: e.common(), Reason: reason, Request: number, Boot: boot, Failed: node, Origin: at}
	m.stopAfter = e.now + int64(noticeFor)
	m.nextHello = 0
	open := append([]*request(nil), e.requests...)
	clear(e.requests)
	e.requests = e.requests[:0]
	for _, r := range open {
		e.done(r, m.failure)
	}
}

// sayNotice tells both neighbours of the end, again and again for a while: each passes it on in the same way, so that it
// travels round the ring in both directions.
func (e *engine) sayNotice() {
	m := &e.ring
	if e.now < m.nextHello {
		return
	}
	m.nextHello = e.now + int64(helloEvery)
	if e.now > m.stopAfter {
		m.nextHello = e.now + int64(time.Hour)
		return
	}
	var b [wire.HeaderLen]byte
	m.notice.Put(b[:])
	e.both(b[:], nil)
}
