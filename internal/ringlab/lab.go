// Package ringlab makes rings of NICs for the demo, the tests and the benchmarks: nodes in network namespaces of their
// own, each with a netdev that its NIC has by AF_XDP, all connected by a switch, over links of a limited rate if wanted.
package ringlab

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"gradnic/dataplane"
	"gradnic/internal/netlab"
	"gradnic/service/ring"
	"gradnic/wire/inet"
	wire "gradnic/wire/ring"
)

// Iface is the netdev of each node.
const Iface = "eth0"

// Options say what to make.
type Options struct {
	Prefix string             // of the namespaces' names; "": "gnring"
	Nodes  int                // 2 to 64
	Rate   uint64             // bit/s of each node's link; 0: as fast as it goes
	MTU    int                // 0: 1500
	Ring   func(*ring.Config) // changes each node's configuration
	NIC    func(*dataplane.Config)
}

// Lab is nodes and their links, and the NICs that were started.
type Lab struct {
	opt   Options
	lab   *netlab.Lab
	Nodes []*Node
	peers []ring.Peer
	procs int // GOMAXPROCS as it was
}

// Node is one node's namespace and, while it is started, its NIC and its place in the ring.
type Node struct {
	NS   *netlab.NS
	NIC  *dataplane.NIC
	Ring *ring.Node
}

// HostIP is the address that the kernel of node i has on its netdev; NICAddress is its NIC's.
func HostIP(i int) inet.Addr { return inet.Addr{10, 61, 0, byte(i + 1)} }

// NICAddress is the address of node i's NIC.
func NICAddress(i int) wire.Endpoint {
	return wire.Endpoint{MAC: inet.MAC{0x06, 0, 0, 0x61, 0, byte(i + 1)}, IP: inet.Addr{10, 61, 1, byte(i + 1)}}
}

// New makes the namespaces and links. It needs root.
func New(o Options) (_ *Lab, err error) {
	if o.Prefix == "" {
		o.Prefix = "gnring"
	}
	if o.MTU == 0 {
		o.MTU = 1500
	}
	if o.Nodes < 1 || o.Nodes > wire.MaxNodes {
		return nil, fmt.Errorf("%d nodes: from 1 to %d", o.Nodes, wire.MaxNodes)
	}
	lab, err := netlab.New(o.Prefix)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, lab.Close())
		}
	}()
	l := &Lab{opt: o, lab: lab}
	switchNS, err := lab.Namespace("switch")
	if err != nil {
		return nil, err
	}
	var ports []string
	for i := range o.Nodes {
		ns, err := lab.Namespace(fmt.Sprint("n", i))
		if err != nil {
			return nil, err
		}
		a := netlab.End{NS: ns, Name: Iface, Addr: HostIP(i).String() + "/16", MTU: o.MTU}
		b := netlab.End{NS: switchNS, Name: fmt.Sprint("p", i), MTU: o.MTU}
		if o.Rate > 0 {
			err = lab.LimitedVeth(a, b, o.Rate)
		} else {
			err = lab.Veth(a, b)
		}
		if err != nil {
			return nil, err
		}
		l.Nodes = append(l.Nodes, &Node{NS: ns})
		ports = append(ports, b.Name)
		l.peers = append(l.peers, ring.Peer{Node: uint16(i), Endpoint: NICAddress(i)})
	}
	if err := switchNS.Bridge("switch", o.MTU, ports...); err != nil {
		return nil, err
	}
	// Each NIC has a thread that sleeps and wakes at every batch. With the usual GOMAXPROCS, as many as there are CPUs, such
	// a thread would wait for another's turn in Go's scheduler when it wakes; so the kernel's decides alone.
	l.procs = runtime.GOMAXPROCS(0)
	runtime.GOMAXPROCS(max(l.procs, runtime.NumCPU()+2*o.Nodes))
	return l, nil
}

// StartAll starts all nodes' NICs and waits until the ring has formed.
func (l *Lab) StartAll(ctx context.Context) error {
	for i := range l.Nodes {
		if err := l.Start(ctx, i); err != nil {
			return err
		}
	}
	return l.AwaitFormed(ctx)
}

// Start starts the NIC of node i, which joins the ring of all nodes.
func (l *Lab) Start(ctx context.Context, i int) (err error) {
	self := NICAddress(i)
	cfg := dataplane.Config{MAC: self.MAC, IP: self.IP}
	if l.opt.MTU > 1500 {
		cfg.ChunkSize = 4096
	}
	if l.opt.Nodes >= runtime.NumCPU() {
		cfg.Wait = dataplane.Interrupt // a lane that spins would take a CPU from the other nodes
	}
	if l.opt.NIC != nil {
		l.opt.NIC(&cfg)
	}
	n := l.Nodes[i]
	nic, err := dataplane.New(cfg, dataplane.XDPPort{Interface: Iface, Namespace: n.NS.Do})
	if err != nil {
		return fmt.Errorf("node %d: %w", i, err)
	}
	if err := nic.Start(ctx); err != nil {
		return fmt.Errorf("node %d: %w", i, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("node %d: %w", i, err), nic.Stop(context.WithoutCancel(ctx)))
		}
	}()
	rc := ring.Config{Node: uint16(i), Peers: l.peers, MTU: l.opt.MTU}
	if l.opt.Ring != nil {
		l.opt.Ring(&rc)
	}
	r, err := ring.New(rc)
	if err != nil {
		return err
	}
	if err := r.Attach(nic, 0, Iface); err != nil {
		return err
	}
	n.NIC, n.Ring = nic, r
	return nil
}

// AwaitFormed waits until every node that is started is in a ring that has formed.
func (l *Lab) AwaitFormed(ctx context.Context) error {
	for {
		ready := true
		for _, n := range l.Nodes {
			if n.Ring == nil {
				continue
			}
			s := n.Ring.Status()
			if s.Failure != nil {
				return s.Failure
			}
			ready = ready && s.Phase == ring.Formed
		}
		if ready {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("ring does not form: %w", ctx.Err())
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// Kill stops the NIC of node i without a word to the others, as if it had lost its power. What its host had submitted
// ends with an error.
func (l *Lab) Kill(ctx context.Context, i int) error {
	n := l.Nodes[i]
	if n.NIC == nil {
		return nil
	}
	err := errors.Join(n.NIC.Stop(ctx), n.Ring.Close())
	n.NIC, n.Ring = nil, nil
	return err
}

// Check compares what went into each NIC with what came out (dataplane.Snapshot.Check).
func (l *Lab) Check() error {
	var errs []error
	for i, n := range l.Nodes {
		if n.NIC != nil {
			s := n.NIC.Snapshot()
			if err := s.Check(); err != nil {
				errs = append(errs, fmt.Errorf("node %d: %w", i, err))
			}
		}
	}
	return errors.Join(errs...)
}

// Close stops what runs, checks the NICs' accounts and removes the namespaces.
func (l *Lab) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	defer runtime.GOMAXPROCS(l.procs)
	var errs []error
	for _, n := range l.Nodes {
		if n.Ring != nil {
			errs = append(errs, n.Ring.Close())
		}
	}
	for _, n := range l.Nodes {
		if n.NIC != nil {
			errs = append(errs, n.NIC.Stop(ctx))
		}
	}
	errs = append(errs, l.Check(), l.lab.Close())
	return errors.Join(errs...)
}

// Each runs f for every node at once and returns what failed.
func (l *Lab) Each(f func(i int, n *Node) error) error {
	errs := make([]error, len(l.Nodes))
	done := make(chan struct{})
	for i, n := range l.Nodes {
		go func() {
			defer func() { done <- struct{}{} }()
			if err := f(i, n); err != nil {
				errs[i] = fmt.Errorf("node %d: %w", i, err)
			}
		}()
	}
	for range l.Nodes {
		<-done
	}
	return errors.Join(errs...)
}
