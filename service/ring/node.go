package ring

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"gradnic/dataplane"
	wire "gradnic/wire/ring"
)

// Node is one node of a ring. Its methods may be called from any goroutine, except from Request.Done, which may only Submit.
type Node struct {
	cfg  Config
	eng  *engine
	wake func()       // makes the engine's owner call turn
	on   func(func()) // runs a function between the engine's turns

	mu      sync.Mutex
	posted  []*request
	nextID  uint64
	taken   int   // requests that are not done
	refuse  error // what Submit says: nil when it takes requests
	closed  bool
	idle    *sync.Cond // taken fell to 0
	mail    atomic.Bool
	spare   []*request // the other half of posted: no allocation a turn
	handle  *dataplane.ServiceHandle
	address map[uint16]*wire.Endpoint
	self    wire.Endpoint
}

// New makes a node. It does nothing until Attach.
func New(cfg Config) (*Node, error) {
	cfg.Peers = slices.Clone(cfg.Peers)
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("ring: %w", err)
	}
	n := &Node{cfg: cfg, nextID: 0, address: map[uint16]*wire.Endpoint{}}
	n.idle = sync.NewCond(&n.mu)
	nodes := make([]uint16, len(cfg.Peers))
	for i := range cfg.Peers {
		p := &cfg.Peers[i]
		nodes[i] = p.Node
		n.address[p.Node] = &p.Endpoint
		if p.Node == cfg.Node {
			n.self = p.Endpoint
		}
	}
	var err error
	if n.eng, err = newEngine(&n.cfg, n.ended); err != nil {
		return nil, fmt.Errorf("ring: %w", err)
	}
	n.eng.reform(nodes)
	n.wake = func() {}
	n.on = func(f func()) { f() }
	return n, nil
}

// Submit hands in a request and returns its number. It does not block: it fails with ErrBusy when Outstanding requests
// are not done, with ErrClosed, with a *NodeError when the ring has failed, or because the request cannot be. When it
// fails, Done is not called.
func (n *Node) Submit(r Request) (id uint64, err error) {
	k, err := n.eng.cuts.of(r.Codec)
	if err != nil {
		return 0, err
	}
	switch {
	case r.Weights != nil && len(r.Weights) != len(r.Data):
		return 0, fmt.Errorf("ring: %d weights for %d gradients", len(r.Weights), len(r.Data))
	case uint64(len(r.Data)) > 1<<32-1:
		return 0, fmt.Errorf("ring: %d elements: at most 2^32-1", len(r.Data))
	case r.Deadline < 0:
		return 0, fmt.Errorf("ring: deadline %v: above 0", r.Deadline)
	}
	if r.Deadline == 0 {
		r.Deadline = n.cfg.Deadline
	}
	n.mu.Lock()
	switch {
	case n.refuse != nil:
		err = n.refuse
	case n.taken == Outstanding:
		err = ErrBusy
	}
	if err != nil {
		n.mu.Unlock()
		return 0, err
	}
	id = n.nextID
	n.nextID++
	n.taken++
	n.posted = append(n.posted, &request{Request: r, id: id, cut: k})
	n.mail.Store(true)
	wake := n.wake
	n.mu.Unlock()
	wake()
	return id, nil
}

// AllReduce submits a request and waits for its end; Request.Done is called as well. While the buffer is the node's, the
// call does not return: ctx only bounds the wait for a place among the outstanding requests.
func (n *Node) AllReduce(ctx context.Context, r Request) (Completion, error) {
	done := make(chan Completion, 1)
	also := r.Done
	r.Done = func(c Completion) {
		if also != nil {
			also(c)
		}
		done <- c
	}
	for {
		_, err := n.Submit(r)
		if err == nil {
			c := <-done
			return c, c.Err
		}
		if !errors.Is(err, ErrBusy) {
			return Completion{}, err
		}
		select {
		case <-ctx.Done():
			return Completion{}, fmt.Errorf("ring: wait for a place: %w", ctx.Err())
		case <-time.After(100 * time.Microsecond):
		}
	}
}

// Wait returns when no request is outstanding.
func (n *Node) Wait() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for n.taken > 0 {
		n.idle.Wait()
	}
}

// Reform begins the next generation with these nodes, some or all of Config.Peers, in the order given, which must be the
// same at all of them; this node must be one. Requests that are outstanding end with an error first. Requests may be
// submitted at once: they wait for the ring to form.
func (n *Node) Reform(nodes []uint16) error {
	if err := n.cfg.checkNodes(nodes); err != nil {
		return fmt.Errorf("ring: form it again: %w", err)
	}
	nodes = slices.Clone(nodes)
	var err error
	n.run(func() {
		n.mu.Lock()
		closed := n.closed
		n.mu.Unlock()
		if closed {
			err = ErrClosed
			return
		}
		n.takePosted()
		n.eng.fail(n.cfg.Node, n.cfg.Node, wire.Superseded, n.eng.firstOpen(), n.cfg.Boot)
		n.eng.reform(nodes)
		n.mu.Lock()
		n.refuse = nil
		n.mu.Unlock()
	})
	n.poke()
	return err
}

// run runs a function between the engine's turns.
func (n *Node) run(f func()) {
	n.mu.Lock()
	on := n.on
	n.mu.Unlock()
	on(f)
}

// poke makes the engine take a turn.
func (n *Node) poke() {
	n.mu.Lock()
	wake := n.wake
	n.mu.Unlock()
	wake()
}

// Status is what the node knows now.
func (n *Node) Status() (s Status) {
	n.run(func() {
		m := &n.eng.ring
		s = Status{Phase: m.phase, Generation: m.generation, Epoch: m.epoch, Counters: n.eng.counters}
		for _, x := range m.members {
			s.Nodes = append(s.Nodes, x.Node)
			if x.Boot == 0 {
				s.Missing = append(s.Missing, x.Node)
			}
		}
		if m.failure != nil {
			s.Failure = m.failure
		}
		if h := m.told; h.Reason != 0 && m.phase == Forming {
			s.Refused = &NodeError{Node: h.Failed, At: h.Origin, Reason: h.Reason, Generation: h.Generation}
		}
	})
	n.mu.Lock()
	s.Outstanding = n.taken
	n.mu.Unlock()
	return s
}

// takePosted moves what Submit left to the engine. It runs on the engine's side.
func (n *Node) takePosted() {
	if !n.mail.Load() {
		return
	}
	n.mu.Lock()
	q := n.posted
	n.posted = n.spare[:0]
	n.mail.Store(false)
	n.mu.Unlock()
	for _, r := range q {
		if f := n.eng.ring.failure; f != nil {
			r.taken = n.eng.now
			n.eng.counters.Requests++
			n.eng.done(r, f)
			continue
		}
		n.eng.submit(r)
	}
	clear(q)
	n.spare = q[:0]
}

// turn is what follows the messages of a turn: new requests, and everything that tick does.
func (n *Node) turn() (next int64) {
	n.takePosted()
	next = n.eng.tick()
	if n.mail.Load() { // a host's Done has submitted
		n.takePosted()
		next = n.eng.tick()
	}
	if f := n.eng.ring.failure; f != nil {
		n.mu.Lock()
		if n.refuse == nil {
			n.refuse = f
		}
		n.mu.Unlock()
	}
	return next
}

// ended tells the host.
func (n *Node) ended(r *request, c Completion) {
	n.mu.Lock()
	if c.Err != nil && n.refuse == nil {
		n.refuse = c.Err
	}
	n.taken--
	if n.taken == 0 {
		n.idle.Broadcast()
	}
	n.mu.Unlock()
	if r.Done != nil {
		start := time.Now()
		r.Done(c)
		n.eng.counters.HostStallOut += time.Since(start)
	}
}

// Close takes the node out of its NIC. Requests that are outstanding end with ErrClosed; before, what other nodes still
// need of finished ones is sent, for half a second at most, and they are told that the node leaves: what it has seen done they
// bring to an end, later requests fail. It is idempotent.
func (n *Node) Close() error {
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		return nil
	}
	n.closed, n.refuse = true, ErrClosed
	h := n.handle
	n.mu.Unlock()
	if h == nil {
		n.run(n.abandon)
		return nil
	}
	for until := time.Now().Add(500 * time.Millisecond); time.Now().Before(until); time.Sleep(time.Millisecond) {
		busy := false
		n.run(func() { busy = n.eng.passing() })
		if !busy {
			break
		}
	}
	n.run(n.part)
	n.poke()
	time.Sleep(2 * helloEvery) // the notices go out
	return h.Close()
}

// part ends what is outstanding and tells the others.
func (n *Node) part() {
	first := n.eng.firstOpen()
	n.abandon()
	n.eng.fail(n.cfg.Node, n.cfg.Node, wire.Left, first, n.cfg.Boot)
}

// abandon ends what is outstanding.
func (n *Node) abandon() {
	n.takePosted()
	open := slices.Clone(n.eng.requests)
	n.eng.requests = n.eng.requests[:0]
	for _, r := range open {
		n.eng.done(r, ErrClosed)
	}
}

// Number is the node's number.
func (n *Node) Number() uint16 { return n.cfg.Node }
