package ringbench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"

	"gradnic/aggregation/kernel"
	"gradnic/internal/ringlab"
)

const tcpPort = 29600

// tcpRing is the ring in software: each node has a connection to the next and one from the one before, over plain NICs.
// It is the ring all-reduce that collective libraries use: 2(N-1) steps, in each of which every node sends a part of its
// buffer while it receives another.
type tcpRing struct {
	nodes []*tcpNode
}

type tcpNode struct {
	rank, n int
	out, in net.Conn
	send    chan []byte
	sent    chan error
	buf     []byte
	sum     *kernel.Ops[float32]
}

// newTCPRing connects the nodes of a lab through their kernels.
func newTCPRing(ctx context.Context, l *ringlab.Lab) (_ *tcpRing, err error) {
	n := len(l.Nodes)
	r := &tcpRing{nodes: make([]*tcpNode, n)}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Close())
		}
	}()
	sum, err := kernel.ForValues(kernel.Sum, kernel.Propagate)
	if err != nil {
		return nil, err
	}
	listeners := make([]net.Listener, n)
	for i, node := range l.Nodes {
		r.nodes[i] = &tcpNode{rank: i, n: n, send: make(chan []byte, 1), sent: make(chan error, 1), sum: sum}
		err := node.NS.Do(func() (err error) {
			listeners[i], err = net.Listen("tcp4", fmt.Sprintf("%v:%d", ringlab.HostIP(i), tcpPort))
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("tcp ring: %w", err)
		}
		defer listeners[i].Close()
	}
	err = l.Each(func(i int, node *ringlab.Node) error {
		accepted := make(chan error, 1)
		go func() {
			c, err := listeners[i].Accept()
			r.nodes[i].in = c
			accepted <- err
		}()
		err := node.NS.Do(func() (err error) {
			d := net.Dialer{}
			r.nodes[i].out, err = d.DialContext(ctx, "tcp4", fmt.Sprintf("%v:%d", ringlab.HostIP((i+1)%n), tcpPort))
			return err
		})
		if err != nil {
			return errors.Join(err, listeners[i].Close(), <-accepted)
		}
		return <-accepted
	})
	if err != nil {
		return nil, fmt.Errorf("tcp ring: %w", err)
	}
	for _, t := range r.nodes {
		go t.sender()
	}
	return r, nil
}

// sender writes what it is given, so that a node sends and receives at once.
func (t *tcpNode) sender() {
	for b := range t.send {
		_, err := t.out.Write(b)
		t.sent <- err
	}
}

// allReduce sums data over all nodes, in place. All nodes call it with the same length.
func (t *tcpNode) allReduce(data []float32) error {
	n := t.n
	part := func(i int) []float32 {
		i = ((i % n) + n) % n
		return data[len(data)*i/n : len(data)*(i+1)/n]
	}
	if need := 4 * (len(data)/n + 1); len(t.buf) < need {
		t.buf = make([]byte, need)
	}
	for step := range 2 * (n - 1) {
		// First the sums of the parts go round, then the finished parts.
		out, in := part(t.rank-step), part(t.rank-step-1)
		t.send <- kernel.Bytes(out)
		b := t.buf[:4*len(in)]
		_, err := io.ReadFull(t.in, b)
		if err = errors.Join(err, <-t.sent); err != nil {
			return fmt.Errorf("tcp ring: step %d: %w", step, err)
		}
		if step < n-1 {
			t.sum.Fold(in, b)
			continue
		}
		for i := range in {
			in[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
		}
	}
	return nil
}

// Close closes the connections.
func (r *tcpRing) Close() error {
	var errs []error
	for _, t := range r.nodes {
		if t == nil {
			continue
		}
		close(t.send)
		for _, c := range []net.Conn{t.out, t.in} {
			if c != nil {
				errs = append(errs, c.Close())
			}
		}
	}
	return errors.Join(errs...)
}
