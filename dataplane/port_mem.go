package dataplane

import (
	"errors"
	"fmt"
	"hash/maphash"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"gradnic/xdp"
)

// ErrPortClosed is what the wire end of a mem port returns when the NIC has been stopped.
var ErrPortClosed = errors.New("the port is closed")

// MemPort is a port in memory. The NIC's side has the four rings of an AF_XDP socket; the wire end is Send and Recv,
// for tests and for workers in the same process. Nothing is lost on the way: Send waits while the receive ring is
// full, and what the NIC transmits waits for Recv until the transmit ring is full.
type MemPort struct {
	name string

	sendMu  sync.Mutex // one sender at a time
	recvMu  sync.Mutex // one receiver at a time
	timer   *time.Timer
	arrived chan struct{} // capacity 1: a frame was transmitted while somebody waited
	waiting atomic.Bool
	next    int // queue that Recv looks at first

	mu     sync.Mutex // guards the fields that open and close set
	opened bool
	state  atomic.Pointer[memOpen]
	gaveUp atomic.Uint64
}

// memOpen is the rings, once the NIC has started.
type memOpen struct {
	queues []*memQueue
	umem   *xdp.UMEM
	wake   func(lane int)
	lanes  int
	seed   maphash.Seed
	closed atomic.Bool
}

// sendTimeout bounds how long Send waits for a NIC that does not receive.
const sendTimeout = time.Second

// NewMemPort makes a port in memory.
func NewMemPort(name string) *MemPort {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return &MemPort{name: name, arrived: make(chan struct{}, 1), timer: t}
}

func (p *MemPort) portName() string                  { return p.name }
func (p *MemPort) portKind() string                  { return "mem" }
func (p *MemPort) queueCount(lanes int) (int, error) { return lanes, nil }
func (p *MemPort) open(e *environment) (*openPort, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.opened {
		return nil, errors.New("a mem port can be opened once")
	}
	p.opened = true
	o := &memOpen{umem: e.umem, wake: e.wake, lanes: e.cfg.Lanes, seed: maphash.MakeSeed()}
	open := &openPort{
		detach: func() error { p.detach(o); return nil },
		close:  func() error { p.close(o); return nil },
		attach: func() error { p.state.Store(o); return nil },
		statistics: func() (KernelStatistics, error) {
			return KernelStatistics{RxDropped: p.gaveUp.Load()}, nil
		},
	}
	half := e.cfg.FramesPerQueue / 2
	for range e.cfg.Lanes {
		q := &memQueue{
			port: p, fill: newSPSC[uint64](2 * half), rx: newSPSC[Desc](half), tx: newSPSC[Desc](half), done: newSPSC[uint64](half + xdp.MaxPieces),
			chunk: uint64(e.cfg.ChunkSize), room: e.umem.MaxFrame(), longest: e.longest, offset: uint64(e.umem.Headroom()),
		}
		o.queues = append(o.queues, q)
		open.queues = append(open.queues, q)
	}
	return open, nil
}

// detach ends Send. Holding the sender's lock, nobody is in the middle of it.
func (p *MemPort) detach(o *memOpen) {
	p.sendMu.Lock()
	defer p.sendMu.Unlock()
	o.closed.Store(true)
}

// close ends Recv as well.
func (p *MemPort) close(o *memOpen) {
	p.detach(o)
	for !p.recvMu.TryLock() { // a receiver may wait for a frame that will not come
		p.notify()
		runtime.Gosched()
	}
	defer p.recvMu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state.Store(&memOpen{})
	p.state.Load().closed.Store(true)
}

func (p *MemPort) notify() {
	select {
	case p.arrived <- struct{}{}:
	default:
	}
}

// Send puts a frame on the wire towards the NIC. It copies, and waits while the NIC's receive ring is full, a second at
// most. With several lanes the queue is chosen by the frame's addresses and ports, as a card's RSS does, so that
// the frames of a flow stay in order.
func (p *MemPort) Send(frame []byte) error {
	p.sendMu.Lock()
	defer p.sendMu.Unlock()
	o, err := p.ready()
	if err != nil {
		return err
	}
	q := 0
	if len(o.queues) > 1 {
		flow := frame[min(26, len(frame)):min(38, len(frame))]
		q = int(maphash.Bytes(o.seed, flow) % uint64(len(o.queues)))
	}
	return p.send(o, q, frame)
}

// SendOn is Send on a queue of the caller's choice, 0 to lanes-1.
func (p *MemPort) SendOn(queue int, frame []byte) error {
	p.sendMu.Lock()
	defer p.sendMu.Unlock()
	o, err := p.ready()
	if err != nil {
		return err
	}
	if queue < 0 || queue >= len(o.queues) {
		return fmt.Errorf("port %s: queue %d: legal are 0 to %d", p.name, queue, len(o.queues)-1)
	}
	return p.send(o, queue, frame)
}

func (p *MemPort) ready() (*memOpen, error) {
	o := p.state.Load()
	if o == nil {
		return nil, fmt.Errorf("port %s: the NIC has not started", p.name)
	}
	if o.closed.Load() {
		return nil, ErrPortClosed
	}
	return o, nil
}

func (p *MemPort) send(o *memOpen, queue int, frame []byte) error {
	q := o.queues[queue]
	if len(frame) == 0 || len(frame) > q.longest {
		return fmt.Errorf("port %s: frame of %d bytes: legal are 1 to %d", p.name, len(frame), q.longest)
	}
	var until time.Time
	for wait := time.Duration(0); ; {
		if q.deliver(o.umem.Bytes(), frame) {
			o.wake(queue % o.lanes)
			return nil
		}
		now := time.Now()
		if until.IsZero() {
			until = now.Add(sendTimeout)
		} else if now.After(until) {
			p.gaveUp.Add(1)
			return fmt.Errorf("port %s: the NIC does not receive: %w", p.name, os.ErrDeadlineExceeded)
		}
		o.wake(queue % o.lanes)
		wait = min(wait+10*time.Microsecond, time.Millisecond)
		time.Sleep(wait)
	}
}

// Recv takes a frame that the NIC has transmitted into buf and returns its length. It waits until the deadline; a zero
// deadline waits for ever. The error is os.ErrDeadlineExceeded, or ErrPortClosed when the NIC has stopped. With several
// lanes the order is kept for each lane. A frame longer than buf is cut.
func (p *MemPort) Recv(buf []byte, deadline time.Time) (int, error) {
	p.recvMu.Lock()
	defer p.recvMu.Unlock()
	for {
		o := p.state.Load()
		if o == nil {
			return 0, fmt.Errorf("port %s: the NIC has not started", p.name)
		}
		if n, ok := p.take(o, buf); ok {
			return n, nil
		}
		if o.closed.Load() {
			return 0, ErrPortClosed
		}
		// The same order as a lane that goes to sleep: say so, look again, wait.
		p.waiting.Store(true)
		n, ok := p.take(o, buf)
		if !ok {
			ok = p.wait(deadline)
			p.waiting.Store(false)
			if !ok {
				return 0, os.ErrDeadlineExceeded
			}
			continue
		}
		p.waiting.Store(false)
		return n, nil
	}
}

// wait returns false when the deadline has passed.
func (p *MemPort) wait(deadline time.Time) bool {
	if deadline.IsZero() {
		<-p.arrived
		return true
	}
	left := time.Until(deadline)
	if left <= 0 {
		return false
	}
	p.timer.Reset(left)
	defer p.timer.Stop()
	select {
	case <-p.arrived:
		return true
	case <-p.timer.C:
		return false
	}
}

// take copies the next transmitted frame out, looking at the queues in turn.
func (p *MemPort) take(o *memOpen, buf []byte) (int, bool) {
	for range o.queues {
		q := o.queues[p.next%len(o.queues)]
		p.next++
		if n, ok := q.takeOut(o.umem.Bytes(), buf); ok {
			return n, true
		}
	}
	return 0, false
}

// memQueue is one queue. Each ring has the lane on one side and the wire end on the other.
type memQueue struct {
	port    *MemPort
	fill    *spsc[uint64]
	rx      *spsc[Desc]
	tx      *spsc[Desc]
	done    *spsc[uint64]
	chunk   uint64
	room    int    // bytes that a chunk takes
	longest int    // longest frame
	offset  uint64 // of a received frame in its chunk, as the kernel has it
}

func (q *memQueue) Fill(addrs []uint64) int   { return q.fill.push(addrs) }
func (q *memQueue) Receive(out []Desc) int    { return q.rx.pop(out) }
func (q *memQueue) Transmit(d []Desc) int     { return q.tx.push(d) }
func (q *memQueue) Complete(out []uint64) int { return q.done.pop(out) }
func (q *memQueue) TxPending() int            { return 0 } // nobody is to be kicked
func (q *memQueue) WakeReceive() error        { return nil }
func (q *memQueue) FD() int                   { return -1 }
func (q *memQueue) Pending() bool             { return !q.rx.empty() }

// Kick wakes a receiver that waits.
func (q *memQueue) Kick() error {
	if q.port.waiting.Load() {
		q.port.notify()
	}
	return nil
}

// deliver plays the kernel's part of receive: a chunk of the fill ring, the frame, a descriptor; several when the frame
// does not fit into one.
func (q *memQueue) deliver(area, frame []byte) bool {
	pieces := (len(frame) + q.room - 1) / q.room
	if q.rx.free(pieces) < pieces || q.fill.len() < pieces {
		return false
	}
	var a [xdp.MaxPieces]uint64
	var d [xdp.MaxPieces]Desc
	q.fill.pop(a[:pieces])
	for i := range pieces {
		d[i].Addr = a[i]&^(q.chunk-1) + q.offset
		n := copy(area[d[i].Addr:][:q.room], frame)
		d[i].Len, d[i].Options = uint32(n), xdp.PacketContinues
		frame = frame[n:]
	}
	d[pieces-1].Options = 0
	q.rx.push(d[:pieces])
	return true
}

// takeOut plays the kernel's part of transmit: a descriptor, the frame, the completion.
func (q *memQueue) takeOut(area, buf []byte) (int, bool) {
	if q.done.free(xdp.MaxPieces) < xdp.MaxPieces { // more than can be outstanding
		return 0, false
	}
	n := 0
	for {
		var d [1]Desc
		if q.tx.pop(d[:]) == 0 { // a chain is posted whole, so that there was nothing
			return 0, false
		}
		n += copy(buf[n:], area[d[0].Addr:d[0].Addr+uint64(d[0].Len)])
		q.done.push([]uint64{d[0].Addr})
		if d[0].Options&xdp.PacketContinues == 0 {
			return n, true
		}
	}
}
