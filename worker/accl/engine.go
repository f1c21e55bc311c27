package accl

import (
	"errors"
	"fmt"
	"time"

	wire "gradnic/wire/accl"
)

// Engine is one rank of a communicator without sockets and clocks: it takes UDP payloads of its peers, tells what to send,
// and is told the time. One goroutine at a time may use it. Nothing is allocated for a datagram once buffers exist.
//
// Whoever drives it begins a call with Begin, and then, until Done: sends what Pending and Put give, hands over what
// arrives by Receive, and calls Tick.
type Engine struct {
	cfg   Config
	peers []peer
	free  [][]byte // buffers of the pool that are free; at most cfg.Buffers are ever made
	made  int
	word  [wire.Word]byte // what the card's first operand port last read; see Config.CardPadding
	stats Stats

	// The call that runs.
	call   Call
	active bool
	part   int
	plan   schedule
	at     int // the current move
	loops  *loops
	cache  map[loopsKey]*loops
	got    int    // bytes of the current move that were received
	ready  int    // bytes that may be sent
	sent   int    // bytes of whole messages that were sent
	index  int    // datagram of the current message
	stage  []byte // the current move's elements in the wire's format, when they are not the rank's own
	out    []byte // the current move's elements to send
	moved  int64  // time of the last progress
	now    int64
	err    error // why the last call failed
	ended  error // why the communicator ended
}

type loopsKey struct {
	t    Type
	op   Op
	half bool
}

// peer is the state of one session.
type peer struct {
	rx      wire.Receiver
	seq     uint32 // of the next message to it
	filling []byte // buffer of the message that is under way
	queue   []segment
	head    int // of queue
}

// segment is one message in a buffer of the pool.
type segment struct {
	tag  uint32
	seq  uint32
	data []byte
}

// keptSegments is how many used entries a queue keeps before the others move up.
const keptSegments = 256

// Stats are what an engine has counted.
type Stats struct {
	Sent, Received           uint64 // datagrams
	SentBytes, ReceivedBytes uint64 // UDP payload
	Messages                 uint64 // whole messages received
	// Flagged are elements of results of this rank's additions, and of conversions to half precision, that were infinite
	// or NaN, or integers that wrapped.
	Flagged uint64
	Faults  [wire.NumFaults]uint64 // datagrams dropped, by reason
}

// NewEngine makes a rank.
func NewEngine(cfg Config) (*Engine, error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, err
	}
	e := &Engine{cfg: cfg, peers: make([]peer, len(cfg.Ranks)), cache: map[loopsKey]*loops{}}
	for i := range e.peers {
		e.peers[i].rx = wire.NewReceiver(i, cfg.Segment)
	}
	return e, nil
}

// Config is the configuration with its defaults.
func (e *Engine) Config() Config { return e.cfg }

// Stats are the counts so far.
func (e *Engine) Stats() Stats { return e.stats }

// PeerAt is the rank with this address, -1 if none of the others has it.
func (e *Engine) PeerAt(ip [4]byte, port uint16) int {
	for i := range e.cfg.Ranks {
		if p := &e.cfg.Ranks[i]; i != e.cfg.Rank && p.IP == ip && p.Port == port {
			return i
		}
	}
	return -1
}

// Foreign counts a datagram that is no peer's.
func (e *Engine) Foreign() { e.stats.Faults[wire.UnknownPeer]++ }

// Begin starts a call; now is any monotonic time in nanoseconds. The call's slices belong to the engine until Done. An
// error means that nothing was begun: ErrRefused, or ErrEnded with the reason.
func (e *Engine) Begin(c Call, now int64) error {
	if e.ended != nil {
		return fmt.Errorf("%v: %w by: %w", c.Collective, ErrEnded, e.ended)
	}
	if e.active {
		return fmt.Errorf("%w: a call is under way", ErrRefused)
	}
	if err := c.check(&e.cfg); err != nil {
		return err
	}
	key := loopsKey{c.Type, c.Op, c.Half}
	l := e.cache[key]
	if l == nil {
		var err error
		if l, err = newLoops(c.Type, c.Op, c.Half); err != nil {
			return err
		}
		e.cache[key] = l
	}
	if c.Collective != Send && c.Collective != Recv {
		c.Tag = wire.TagAny
	}
	e.call, e.loops, e.active, e.err = c, l, true, nil
	e.part, e.at = 0, 0
	e.now, e.moved = now, now
	e.nextPart()
	e.advance()
	return nil
}

// Done reports whether no call runs, and why the last one failed.
func (e *Engine) Done() (bool, error) { return !e.active, e.err }

// Abort gives up the call that runs, if any, and ends the communicator.
func (e *Engine) Abort(why error) {
	if e.active {
		e.fail(fmt.Errorf("%v at rank %d: %w", e.call.Collective, e.cfg.Rank, why))
	} else if e.ended == nil {
		e.ended = why
	}
}

func (e *Engine) fail(err error) {
	e.active, e.err, e.ended = false, err, err
	e.call, e.out = Call{}, nil
}

// Tick tells the time: a call that has waited too long fails. It returns when that would be, 0 if no call runs.
func (e *Engine) Tick(now int64) int64 {
	e.now = max(e.now, now)
	if !e.active {
		return 0
	}
	late := e.moved + int64(e.cfg.Timeout)
	if e.now < late {
		return late
	}
	m := &e.plan.moves[e.at]
	if m.from < 0 {
		e.fail(fmt.Errorf("%v at rank %d: %w: nothing could be sent for %v", e.call.Collective, e.cfg.Rank, ErrTimeout, e.cfg.Timeout))
		return 0
	}
	detail := fmt.Sprintf("nothing for %v", e.cfg.Timeout)
	if left := e.peers[m.from].rx.Partial(); left > 0 {
		detail += fmt.Sprintf(", and %d bytes of a message are missing", left)
	}
	e.failBy(m.from, ErrTimeout, wire.OK, detail)
	return 0
}

func (e *Engine) failBy(peer int, why error, f wire.Fault, detail string) {
	p := &e.peers[peer]
	seq := p.rx.Next()
	if len(p.queue) > p.head {
		seq = p.queue[p.head].seq
	}
	e.fail(&PeerError{Collective: e.call.Collective, Rank: e.cfg.Rank, Peer: peer, Seq: seq, Why: why, Fault: f, Detail: detail})
}

// nextPart fills moves, and reports whether there are any.
func (e *Engine) nextPart() bool {
	more := e.plan.part(&e.call, &e.cfg, e.part)
	e.part++
	e.at = 0
	if len(e.plan.moves) > 0 {
		e.load()
	}
	return more
}

// wireBytes is the length of the current move on the wire.
func (e *Engine) wireBytes() int { return e.plan.moves[e.at].n * e.loops.wire }

// load prepares the current move.
func (e *Engine) load() {
	m := &e.plan.moves[e.at]
	n := e.wireBytes()
	e.got, e.ready, e.sent, e.index, e.out = 0, 0, 0, 0, nil
	if m.own != nil && !m.passed {
		e.read(m.own)
	}
	if m.to < 0 {
		return
	}
	if m.from < 0 && e.loops.shrink == nil {
		e.out, e.ready = m.own, n
		return
	}
	if cap(e.stage) < n {
		e.stage = make([]byte, n)
	}
	e.out = e.stage[:n]
	if m.from < 0 {
		e.stats.Flagged += uint64(e.loops.shrink(e.out, m.own))
		e.ready = n
	}
}

// read is what a read of the rank's own elements leaves in the first operand port's word.
func (e *Engine) read(b []byte) {
	if whole := len(b) &^ (wire.Word - 1); whole > 0 {
		copy(e.word[:], b[whole-wire.Word:whole])
		b = b[whole:]
	}
	copy(e.word[:], b)
}

// advance does what can be done without sending or receiving more.
func (e *Engine) advance() {
	for e.active {
		if e.at == len(e.plan.moves) {
			if !e.nextPart() {
				e.active = false
				e.call, e.out = Call{}, nil
			}
			continue
		}
		m := &e.plan.moves[e.at]
		n := e.wireBytes()
		switch {
		case m.from >= 0 && e.got < n:
			if !e.take(m) {
				return
			}
			continue
		case m.from < 0 && m.to < 0:
			copy(m.dst, m.own)
		case m.to >= 0 && e.sent < n:
			return // until it was sent
		}
		if e.at++; e.at < len(e.plan.moves) {
			e.load()
		}
	}
}

// take uses the next message of the current move's peer, and reports whether there was one.
func (e *Engine) take(m *move) bool {
	p := &e.peers[m.from]
	if p.head == len(p.queue) {
		if f := p.rx.Ended(); f != wire.OK {
			e.failBy(m.from, ErrLost, f, "")
		}
		return false
	}
	s := p.queue[p.head]
	missing := e.wireBytes() - e.got
	switch {
	case s.tag != wire.TagAny && s.tag != e.call.Tag:
		e.failBy(m.from, ErrMismatch, wire.OK, fmt.Sprintf("tag %d, and this call takes tag %d", s.tag, e.call.Tag))
		return false
	case len(s.data) > missing || len(s.data)%e.loops.wire != 0:
		e.failBy(m.from, ErrMismatch, wire.OK, fmt.Sprintf("%d bytes, and this call wants %d in elements of %d", len(s.data), missing, e.loops.wire))
		return false
	}
	e.combine(m, s.data)
	e.got += len(s.data)
	if p.head++; p.head == len(p.queue) || p.head == keptSegments {
		p.queue = p.queue[:copy(p.queue, p.queue[p.head:])]
		p.head = 0
	}
	e.free = append(e.free, s.data[:cap(s.data)])
	e.moved = e.now
	return true
}

// combine does with received elements what the move says.
func (e *Engine) combine(m *move, in []byte) {
	l, wireAt, n := e.loops, e.got, len(in)
	memoryAt := wireAt / l.wire * e.call.Type.Size()
	memoryEnd := memoryAt + n/l.wire*e.call.Type.Size()
	switch {
	case m.to >= 0 && m.own == nil:
		copy(e.out[wireAt:], in)
	case m.to >= 0:
		e.stats.Flagged += uint64(l.fold(e.out[wireAt:wireAt+n], m.own[memoryAt:memoryEnd], in))
	case l.widen != nil:
		if m.own != nil {
			e.stats.Flagged += uint64(l.fold(in, m.own[memoryAt:memoryEnd], in))
		}
		l.widen(m.dst[memoryAt:memoryEnd], in)
	case m.own != nil:
		e.stats.Flagged += uint64(l.fold(m.dst[memoryAt:memoryEnd], m.own[memoryAt:memoryEnd], in))
	default:
		copy(m.dst[memoryAt:], in)
	}
	e.ready = wireAt + n
}

// Receive takes one UDP payload of a peer, which it copies. The fault is why it was dropped.
func (e *Engine) Receive(from int, b []byte, now int64) wire.Fault {
	e.now = max(e.now, now)
	if from < 0 || from >= len(e.peers) || from == e.cfg.Rank {
		e.Foreign()
		return wire.UnknownPeer
	}
	p := &e.peers[from]
	part, f := p.rx.Take(b)
	if f == wire.OK && part.Offset == 0 {
		if p.filling = e.buffer(); p.filling == nil {
			f = wire.PoolFull
			p.rx.Drop(f)
		}
	}
	if f != wire.OK {
		e.stats.Faults[f]++
		if f.Ends() {
			e.drop(p)
			e.advance() // fails if it waits for this peer
		}
		return f
	}
	e.stats.Received++
	e.stats.ReceivedBytes += uint64(len(b))
	copy(p.filling[part.Offset:], part.Data)
	if part.Last {
		e.stats.Messages++
		n := part.Offset + len(part.Data)
		p.queue = append(p.queue, segment{tag: part.Header.Tag, seq: part.Header.Seq, data: p.filling[:n]})
		p.filling = nil
		e.advance()
	}
	return f
}

// drop gives up the message that is under way.
func (e *Engine) drop(p *peer) {
	if p.filling != nil {
		e.free = append(e.free, p.filling)
		p.filling = nil
	}
}

// buffer takes one from the pool, nil if there is none.
func (e *Engine) buffer() []byte {
	if n := len(e.free); n > 0 {
		b := e.free[n-1]
		e.free = e.free[:n-1]
		return b
	}
	if e.made == e.cfg.Buffers {
		return nil
	}
	e.made++
	return make([]byte, e.cfg.Segment)
}

// Pending says that the next thing to do is to send a datagram of that length to a peer: Put writes it.
func (e *Engine) Pending() (to, length int, ok bool) {
	if !e.active {
		return 0, 0, false
	}
	m := &e.plan.moves[e.at]
	count := min(e.cfg.Segment, e.wireBytes()-e.sent)
	if m.to < 0 || count == 0 || e.ready < e.sent+count {
		return 0, 0, false
	}
	_, _, length = wire.Piece(count, e.index)
	return m.to, length, true
}

// errPut is a mistake of the caller's.
var errPut = errors.New("accl: Put without Pending, or into less room")

// Put writes the datagram that Pending told of into b, whose length is that datagram's. now is the time.
func (e *Engine) Put(b []byte, now int64) {
	to, length, ok := e.Pending()
	if !ok || len(b) != length {
		panic(errPut)
	}
	e.now = max(e.now, now)
	e.moved = e.now
	m := &e.plan.moves[e.at]
	p := &e.peers[to]
	count := min(e.cfg.Segment, e.wireBytes()-e.sent)
	offset, size, _ := wire.Piece(count, e.index)
	if e.index == 0 {
		h := wire.Header{Count: uint32(count), Tag: e.call.Tag, Src: uint32(e.cfg.Rank), Seq: p.seq, Session: uint16(to)}
		b = b[h.Put(b):]
	}
	copy(b, e.out[e.sent+offset:e.sent+offset+size])
	pad := b[size:]
	if e.cfg.CardPadding && m.from < 0 && !m.passed && e.loops.shrink == nil {
		copy(pad, e.word[size%wire.Word:])
	} else {
		clear(pad)
	}
	e.stats.Sent++
	e.stats.SentBytes += uint64(length)
	if e.index++; e.index < wire.Datagrams(count) {
		return
	}
	p.seq++
	e.index = 0
	e.sent += count
	e.advance()
}

// Timeout is how long a call waits for the next message.
func (e *Engine) Timeout() time.Duration { return e.cfg.Timeout }
