package ring

import (
	"math"
	"time"

	wire "gradnic/wire/ring"
)

// message is one that the engine wants to send. Its payload is the engine's until the next call.
type message struct {
	to      uint16 // node
	header  [wire.HeaderLen]byte
	payload []byte
}

// engine is one node's part of the ring: a state machine. Whoever has it calls begin, then receive for each message that
// came, then tick, and sends what is in out. Times are nanoseconds on one clock that never goes back.
type engine struct {
	cfg   *Config
	cuts  *cuts
	math  *adder
	ended func(*request, Completion) // a request is done

	now  int64
	room int // messages that can leave now
	out  []message

	ring membership
	rx   inbound
	tx   outbound

	nodes, position int
	up, down        uint16
	half            [halves]*window
	requests        []*request // not done, in order
	nextRequest     uint32
	nextBlock       uint32 // the first block of the next request
	inject          uint32 // the next own block to send
	counters        Counters
	stalls          stalls
	lastTick        int64
	ackEvery        int // frames
	parkedForHost   bool
	waits           waits
	scratchHello    [wire.MemberLen * wire.MaxNodes]byte
	scratchSack     [wire.SackBytes]byte
}

// outRoom is the most messages of one turn.
const outRoom = 256

func newEngine(cfg *Config, ended func(*request, Completion)) (*engine, error) {
	c, err := newCuts(cfg.SliceElements, cfg.MTU)
	if err != nil {
		return nil, err
	}
	a, err := newAdder(cfg.SliceElements)
	if err != nil {
		return nil, err
	}
	e := &engine{cfg: cfg, cuts: c, math: a, ended: ended, out: make([]message, 0, outRoom), requests: make([]*request, 0, Outstanding)}
	e.waits.node = wire.NoNode
	e.ackEvery = max(2, ackBytes/wire.PayloadRoom(cfg.MTU))
	return e, nil
}

// begin starts a turn: the time, and how many messages can leave.
func (e *engine) begin(now int64, room int) {
	e.now = now
	e.out = e.out[:0]
	e.room = min(room, outRoom)
}

// receive takes one message from one who may send it. The fault says what became of it: OK, or why it was dropped.
func (e *engine) receive(v wire.View) wire.Fault {
	if v.Common().Ring != e.cfg.Ring || e.nodes < 2 {
		return wire.Foreign
	}
	node := v.Node()
	if node != e.up && node != e.down {
		return e.stranger(v)
	}
	switch v.Kind() {
	case wire.Hello:
		return e.receiveHello(v)
	case wire.Notice:
		return e.receiveNotice(v)
	}
	if e.ring.phase != Formed {
		e.stale(v)
		return wire.Stale
	}
	if c := v.Common(); c.Generation != e.ring.generation || c.Epoch != e.ring.epoch {
		e.behind(v)
		return wire.Stale
	}
	if v.Kind() == wire.Data {
		if node != e.up {
			return wire.Foreign
		}
		e.ring.heard(e.now, node, e)
		return e.receiveData(v)
	}
	if node != e.down {
		return wire.Foreign
	}
	e.ring.heard(e.now, node, e)
	return e.receiveAck(v)
}

// tick ends a turn: it works on what waited, fills out, and returns when the next turn is due at the latest.
func (e *engine) tick() (next int64) {
	if e.nodes < 2 {
		e.alone()
		return 0
	}
	e.pause()
	switch e.ring.phase {
	case Forming:
		e.sayHello()
	case Formed:
		e.silence()
	case Failed:
		e.sayNotice()
	}
	e.deadlines()
	if e.ring.phase == Formed {
		e.advance()
		e.expire()
		e.pump()
		e.sayAck()
		e.sayHello()
		e.bringToEnd()
	}
	e.account()
	return e.next()
}

// pause forgives the neighbours a silence in which this node did not listen either.
func (e *engine) pause() {
	if e.lastTick != 0 && e.now-e.lastTick > int64(e.cfg.DeadAfter)/4 {
		e.ring.heardUp, e.ring.heardDown = e.now, e.now
	}
	e.lastTick = e.now
}

// submit takes a request. The ring must not have failed.
func (e *engine) submit(r *request) {
	block := uint32(e.nodes * e.cfg.SliceElements)
	r.taken = e.now
	r.deadline = e.now + min(int64(r.Deadline), math.MaxInt64-e.now)
	r.number, r.first = e.nextRequest, e.nextBlock
	r.blocks = max(1, uint32((uint64(len(r.Data))+uint64(block)-1)/uint64(block)))
	r.left = r.frames(e.nodes)
	r.stats.Blocks = int(r.blocks)
	e.nextRequest++
	e.nextBlock += r.blocks
	e.counters.Requests++
	e.requests = append(e.requests, r)
}

// alone serves a ring of one node: a sum over itself.
func (e *engine) alone() {
	for _, r := range e.requests {
		r.started = e.now
		if r.Weights != nil {
			step(r.Data, r.Weights, r.Data, -r.LearningRate)
		}
		e.done(r, nil)
	}
	e.requests = e.requests[:0]
}

// finish completes requests in their order.
func (e *engine) finish() {
	n := 0
	for n < len(e.requests) && e.requests[n].left == 0 {
		n++
	}
	if n == 0 {
		return
	}
	var over [Outstanding]*request
	copy(over[:], e.requests[:n])
	rest := copy(e.requests, e.requests[n:])
	clear(e.requests[rest:])
	e.requests = e.requests[:rest]
	for _, r := range over[:n] {
		e.done(r, nil)
	}
}

// find is the request that a block belongs to; nil when the host has not handed it in, or it is done.
func (e *engine) find(block uint32) *request {
	for _, r := range e.requests {
		if r.has(block) {
			return r
		}
	}
	return nil
}

// next is when tick is due.
func (e *engine) next() int64 {
	next := e.ring.nextHello
	for _, r := range e.requests {
		next = min(next, r.deadline)
	}
	if e.ring.phase == Formed {
		next = min(next, e.ring.heardUp+int64(e.cfg.DeadAfter), e.ring.heardDown+int64(e.cfg.DeadAfter))
		if e.rx.owed > 0 {
			next = min(next, e.rx.ackDue)
		}
		for _, p := range e.ring.passed {
			if p != 0 {
				next = min(next, p+int64(patience))
			}
		}
		if t := e.tx.due(); t > 0 {
			next = min(next, t)
		}
		if e.blocked() { // the port was full: its completions do not wake a service
			next = min(next, e.now+int64(200*time.Microsecond))
		}
	}
	return max(next, 1)
}
