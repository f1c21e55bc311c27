package ring

import (
	"time"

	wire "gradnic/wire/ring"
)

// This file is about whom an error names: the node that failed, and not a neighbour that answers but has, by then, drawn its own
// conclusions. Where several nodes notice at once, each must find the same one, so what is known of an end goes before
// what this node can see of it.

// patience is how long a neighbour that has gone on to a later generation has to say why this one ended.
const patience = 200 * time.Millisecond

// pastKept is how many generations that have ended are told of.
const pastKept = 4

// ended is the end of a generation that this node has left behind. Its neighbours of then may not have heard of it.
type ended struct {
	notice   wire.NoticeHeader
	up, down uint16
	until    int64 // when to stop telling
	next     int64 // when to tell again, at the earliest
}

// leaveBehind keeps the notice of the generation that ends now, which others have yet to hear.
func (e *engine) leaveBehind() {
	m := &e.ring
	h := m.notice
	switch {
	case e.nodes < 2:
		return
	case m.told.Reason != 0 && m.told.Generation == m.generation:
		h = m.told // this node never was part of it
		h.Node = e.cfg.Node
	case m.phase != Failed:
		return
	}
	if len(m.past) == pastKept {
		m.past = m.past[:copy(m.past, m.past[1:])]
	}
	m.past = append(m.past, ended{notice: h, up: e.up, down: e.down, until: e.now + int64(noticeFor)})
}

// sayPast tells of generations that ended, until both neighbours are in this one or it is long ago.
func (e *engine) sayPast() {
	m := &e.ring
	for i := range m.past {
		p := &m.past[i]
		if e.now > p.until || e.now < p.next || m.phase == Formed && m.ready[0] && m.ready[1] {
			continue
		}
		e.sayEnd(p)
	}
}

func (e *engine) sayEnd(p *ended) {
	p.next = e.now + int64(helloEvery)/2
	var b [wire.HeaderLen]byte
	p.notice.Put(b[:])
	e.put(p.up, b[:], nil)
	if p.down != p.up {
		e.put(p.down, b[:], nil)
	}
}

// behind answers a message of a generation that this node has left.
func (e *engine) behind(v wire.View) {
	m := &e.ring
	for i := range m.past {
		p := &m.past[i]
		if p.notice.Generation == v.Generation() && (v.Node() == p.up || v.Node() == p.down) && e.now >= p.next {
			e.sayEnd(p)
		}
	}
}

// passedBy notes that a neighbour is in a later generation. What it knows of the end of this one comes soon, and names the
// right node; only the neighbour's next life knows nothing of it.
func (e *engine) passedBy(h *wire.HelloHeader) {
	m := &e.ring
	for _, x := range m.members {
		if x.Node == h.Node && x.Boot != h.Boot {
			e.fail(h.Node, e.cfg.Node, wire.Restarted, e.firstOpen(), h.Boot)
			return
		}
	}
	for side, node := range [2]uint16{e.up, e.down} {
		if node == h.Node && m.passed[side] == 0 {
			m.passed[side] = max(e.now, 1)
		}
	}
}

// silence ends the generation when a neighbour has been silent in it for too long.
func (e *engine) silence() {
	m := &e.ring
	dead := int64(e.cfg.DeadAfter)
	for side, node := range [2]uint16{e.up, e.down} {
		heard, reason := m.heardUp, wire.Silent
		if side == 1 {
			heard = m.heardDown
		}
		over := e.now-heard >= dead
		if p := m.passed[side]; p != 0 {
			reason = wire.Superseded
			over = over || e.now-p >= int64(patience)
		}
		switch {
		case !over:
		case m.left.Reason != 0:
			e.parted() // what was to be brought to an end cannot be
			return
		default:
			e.fail(node, e.cfg.Node, reason, e.firstOpen(), 0)
			return
		}
	}
}

// receiveNotice takes over the end of the generation.
//
// A notice of another epoch counts as well when its sender has not formed this one: nodes that know different boots of a node
// that was restarted form different epochs, none of them whole, and the first that learns of that ends the generation for all.
// When the sender has formed this epoch, such a notice is from its life before.
func (e *engine) receiveNotice(v wire.View) wire.Fault {
	h := v.Notice()
	m := &e.ring
	m.sees(h.Generation)
	d := int32(h.Generation - m.generation)
	switch {
	case m.phase == Forming && d >= 0:
		// This node may have started later than what the notice is about: its host waits for the next generation.
		m.told = h
		return wire.OK
	case m.phase != Formed || d != 0:
		return wire.Stale
	case h.Epoch != m.epoch && (h.Node == e.up && m.ready[0] || h.Node == e.down && m.ready[1]):
		return wire.Stale
	}
	switch {
	case h.Reason == wire.Left:
		if m.left.Reason == 0 {
			m.left = h
		}
		m.downLeft = m.downLeft || h.Failed == e.down
	case h.Reason == wire.Restarted && h.Failed == e.cfg.Node && h.Boot <= e.cfg.Boot && e.untouched():
		e.waitForNext(h)
	default:
		e.fail(h.Failed, h.Origin, h.Reason, h.Request, h.Boot)
	}
	return wire.OK
}

// untouched says whether nothing of this generation has reached a host.
func (e *engine) untouched() bool {
	if e.nextRequest != uint32(len(e.requests)) {
		return false
	}
	for _, r := range e.requests {
		if r.left != r.frames(e.nodes) {
			return false
		}
	}
	return true
}

// waitForNext is for a node that the others have just ended the generation for, because it was restarted: what its host
// has handed in since is for the next one.
func (e *engine) waitForNext(h wire.NoticeHeader) {
	m := &e.ring
	on := h
	on.Common = e.common()
	var b [wire.HeaderLen]byte
	on.Put(b[:])
	e.both(b[:], nil)
	m.phase, m.epoch = Forming, 0
	m.forget(e.cfg.Node)
	e.newWindows()
	e.renumber()
	m.told = h
}

// forget drops the boots of all others.
func (m *membership) forget(self uint16) {
	for i := range m.members {
		if m.members[i].Node != self {
			m.members[i].Boot = 0
		}
	}
}

// renumber keeps requests that wait for the ring to form; they are the first of the generation that begins.
func (e *engine) renumber() {
	open := append([]*request(nil), e.requests...)
	e.restart()
	e.requests = e.requests[:0]
	for _, r := range open {
		taken, deadline := r.taken, r.deadline
		e.submit(r)
		e.counters.Requests--
		r.taken, r.deadline = taken, deadline
		r.started, r.stats = 0, Stats{Blocks: r.stats.Blocks}
	}
}

// deadlines fails the generation when a request is late.
func (e *engine) deadlines() {
	for _, r := range e.requests {
		if e.now < r.deadline {
			continue
		}
		if h := e.ring.told; e.ring.phase == Forming && h.Reason != 0 {
			e.fail(h.Failed, h.Origin, h.Reason, r.number, h.Boot)
		} else {
			e.fail(e.blame(r), e.cfg.Node, wire.Deadline, r.number, 0)
		}
		return
	}
}

// blame is the node that a late request waited for, as far as this node can tell; itself when it knows of none.
func (e *engine) blame(r *request) uint16 {
	m := &e.ring
	if m.phase == Forming {
		// Of the nodes upstream the first that is not known: the one before it is, and has not heard it.
		for i := 1; i < e.nodes; i++ {
			if x := m.members[(e.position+i)%e.nodes]; x.Boot == 0 {
				return x.Node
			}
		}
	}
	switch w := &e.waits; {
	case w.node != wire.NoNode && w.node != e.cfg.Node && int32(r.number-w.request) >= 0:
		return w.node
	case e.quiet(m.heardUp):
		return e.up
	case e.quiet(m.heardDown):
		return e.down
	}
	return e.cfg.Node
}

// quiet says whether a neighbour that was last heard then has missed three hellos.
func (e *engine) quiet(heard int64) bool { return e.now-heard > int64(e.cfg.DeadAfter)*7/16 }
