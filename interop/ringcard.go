package interop

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"time"

	"gradnic/dataplane"
	"gradnic/service/ring"
	"gradnic/wire/inet"
	wire "gradnic/wire/ring"
)

// ringRounds is how often a card's host hands in a request of no elements and then the array.
const ringRounds = 2

// ringDeadAfter is how long a neighbour of the card may be silent.
const ringDeadAfter = time.Second

// RingCard is node 0 of a ring on a NIC of this process, and its host; each call is a new node's.
type RingCard struct {
	Target
	next
	nic  *dataplane.NIC
	port string
	o    *Options
	node *ring.Node
	done chan error
	stop bool // the NIC is its own
}

// NewRingCard makes the card on a NIC that runs and is reached by the target; port is the NIC's that the ring leaves by.
func NewRingCard(nic *dataplane.NIC, port string, t Target, o *Options) (*RingCard, error) {
	n, ok := t.(next)
	if !ok {
		return nil, errors.New("a ring's target gives frames one by one")
	}
	return &RingCard{Target: t, next: n, nic: nic, port: port, o: o}, nil
}

// OpenRingMem starts a data plane with one port of memory for the card.
func OpenRingMem(ctx context.Context, o *Options) (*RingCard, error) {
	port := dataplane.NewMemPort("wire")
	nic, err := dataplane.New(dataplane.Config{MAC: o.NIC.MAC, IP: o.NIC.IP, Wait: dataplane.Interrupt}, port)
	if err == nil {
		err = nic.Start(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("target mem: %w", err)
	}
	c, err := NewRingCard(nic, "wire", &memWire{port: port, quiet: o.Quiet}, o)
	if err != nil {
		return nil, errors.Join(err, nic.Stop(ctx))
	}
	c.stop = true
	return c, nil
}

// Begin implements caller.
func (r *RingCard) Begin(c Call) error {
	m, err := newRingModel(&c)
	if err != nil {
		return err
	}
	if err := r.leave(); err != nil {
		return err
	}
	if _, err := r.Collect(0); err != nil { // of the node before
		return err
	}
	peers := []ring.Peer{{Endpoint: wire.Endpoint{MAC: r.o.NIC.MAC, IP: r.o.NIC.IP}}}
	for i := 1; i < c.Nodes; i++ {
		w := r.o.worker(i - 1)
		peers = append(peers, ring.Peer{Node: uint16(i), Endpoint: wire.Endpoint{MAC: w.MAC, IP: w.IP}})
	}
	if r.node, err = ring.New(ring.Config{Peers: peers, DeadAfter: ringDeadAfter, Deadline: 15 * time.Second}); err != nil {
		return err
	}
	if err := r.node.Attach(r.nic, 0, r.port); err != nil {
		return err
	}
	r.done = make(chan error, 2)
	go func(node *ring.Node, done chan error) { done <- host(node, m, &c) }(r.node, r.done)
	return nil
}

// host is the card's: it hands in its arrays and looks at what becomes of them.
func host(node *ring.Node, m *ringModel, c *Call) error {
	want, err := m.result(c.Count)
	if err != nil {
		return err
	}
	for range ringRounds {
		for _, length := range []int{0, c.Count} {
			data := make([]float32, length)
			for i := range data {
				data[i] = float32(i%3 - 1)
			}
			if _, err := node.AllReduce(context.Background(), ring.Request{Data: data, Codec: c.Codec}); err != nil {
				return err
			}
			for i, v := range data {
				if math.Float32bits(v) != math.Float32bits(want[i]) {
					return fmt.Errorf("the card's host has %v in element %d, not %v", v, i, want[i])
				}
			}
		}
	}
	return nil
}

// End implements caller.
func (r *RingCard) End() error {
	if r.done == nil {
		return errors.New("no call was made")
	}
	err := <-r.done
	r.done = nil
	return errors.Join(err, r.leave())
}

// Abort implements aborter.
func (r *RingCard) Abort() {
	if err := r.leave(); err != nil && r.done != nil {
		r.done <- err
	}
}

// leave takes the node out of its NIC.
func (r *RingCard) leave() error {
	if r.node == nil {
		return nil
	}
	n := r.node
	r.node = nil
	return n.Close()
}

// Close implements Target.
func (r *RingCard) Close() error {
	err := r.leave()
	if r.stop {
		err = errors.Join(err, r.nic.Stop(context.Background()))
		s := r.nic.Snapshot()
		err = errors.Join(err, s.Check())
	}
	return errors.Join(err, r.Target.Close())
}

// memWire is the other end of a port of memory.
type memWire struct {
	port  *dataplane.MemPort
	quiet time.Duration
	buf   [1 << 14]byte
}

// Send implements Target.
func (m *memWire) Send(frame []byte) error { return m.port.Send(frame) }

// Next implements next.
func (m *memWire) Next(deadline time.Time) ([]byte, error) {
	n, err := m.port.Recv(m.buf[:], deadline)
	if err != nil {
		return nil, err
	}
	return append([]byte(nil), m.buf[:n]...), nil
}

// Collect implements Target.
func (m *memWire) Collect(want int) ([][]byte, error) { return gather(m, want, time.Second, m.quiet) }

// Limits implements Target.
func (m *memWire) Limits() Limits { return Limits{Longest: 1500 + inet.EthernetLen, Clock: true} }

// Close implements Target.
func (m *memWire) Close() error { return nil }

// gather takes so many frames, waiting for them, and then those that come until it is quiet.
func gather(t next, want int, wait, quiet time.Duration) (got [][]byte, err error) {
	until := time.Now().Add(wait)
	if want == 0 {
		until = time.Now().Add(quiet)
	}
	for {
		f, err := t.Next(until)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return got, nil
		}
		if err != nil {
			return got, err
		}
		if got = append(got, f); len(got) >= want {
			until = time.Now().Add(quiet)
		}
	}
}
