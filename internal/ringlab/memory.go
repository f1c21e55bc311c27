package ringlab

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"gradnic/dataplane"
	"gradnic/service/ring"
	"gradnic/wire/inet"
)

// Memory is a ring whose NICs are connected by memory: it needs no rights.
type Memory struct {
	Nodes []*Node // without namespaces
	ports map[inet.MAC]*dataplane.MemPort
	wires sync.WaitGroup
}

// NewMemory makes and starts a ring of n nodes and waits until it has formed. change, if not nil, changes each node's
// configuration.
func NewMemory(ctx context.Context, n int, change func(*ring.Config)) (_ *Memory, err error) {
	m := &Memory{ports: map[inet.MAC]*dataplane.MemPort{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.Close())
		}
	}()
	var peers []ring.Peer
	for i := range n {
		peers = append(peers, ring.Peer{Node: uint16(i), Endpoint: NICAddress(i)})
		m.ports[NICAddress(i).MAC] = dataplane.NewMemPort(Iface)
	}
	for i := range n {
		node, err := m.start(ctx, ring.Config{Node: uint16(i), Peers: peers, DeadAfter: 5 * time.Second}, change)
		if err != nil {
			return nil, fmt.Errorf("node %d: %w", i, err)
		}
		m.Nodes = append(m.Nodes, node)
	}
	return m, (&Lab{Nodes: m.Nodes}).AwaitFormed(ctx)
}

func (m *Memory) start(ctx context.Context, cfg ring.Config, change func(*ring.Config)) (*Node, error) {
	if change != nil {
		change(&cfg)
	}
	self := NICAddress(int(cfg.Node))
	port := m.ports[self.MAC]
	nic, err := dataplane.New(dataplane.Config{MAC: self.MAC, IP: self.IP, Wait: dataplane.Interrupt}, port)
	if err != nil {
		return nil, err
	}
	if err := nic.Start(ctx); err != nil {
		return nil, err
	}
	m.wires.Add(1)
	go m.carry(port)
	node, err := ring.New(cfg)
	if err == nil {
		err = node.Attach(nic, 0, Iface)
	}
	if err != nil {
		return nil, errors.Join(err, nic.Stop(context.WithoutCancel(ctx)))
	}
	return &Node{NIC: nic, Ring: node}, nil
}

// carry takes what a NIC sends to the NIC that it is for. What that one does not take is lost.
func (m *Memory) carry(from *dataplane.MemPort) {
	defer m.wires.Done()
	frame := make([]byte, 4096)
	for {
		n, err := from.Recv(frame, time.Time{})
		if err != nil {
			return // the NIC has stopped
		}
		if n < 6 {
			continue
		}
		if to := m.ports[inet.MAC(frame[:6])]; to != nil {
			_ = to.Send(frame[:n])
		}
	}
}

// Close stops the nodes.
func (m *Memory) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var errs []error
	var closing sync.WaitGroup
	for _, n := range m.Nodes {
		closing.Go(func() { _ = n.Ring.Close() })
	}
	closing.Wait()
	for _, n := range m.Nodes {
		errs = append(errs, n.NIC.Stop(ctx))
	}
	m.wires.Wait()
	return errors.Join(errs...)
}
