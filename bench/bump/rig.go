package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"gradnic/dataplane"
	"gradnic/internal/netlab"
	"gradnic/service/bump"
	"gradnic/wire/inet"
)

// Where the gradients go, by what the NICs do with them.
const (
	barePort = 9000 // nothing
	bumpPort = 9001 // compress
	prefix   = 8    // bytes before the elements: the datagram's number among the payloads
	elements = 366  // of a payload: with the prefix the most that an MTU of 1500 takes
	mtu      = 1500

	framesPerQueue = 8192
	rule           = "udp dport=9001-9002 offset=8 type=float32 codec=bfp16"
)

func hostIP(side int) inet.Addr { return inet.Addr{10, 71, 0, byte(side + 1)} }

// rig is the two hosts and their NICs.
type rig struct {
	lab   *netlab.Lab
	host  [2]*netlab.NS
	nicNS [2]*netlab.NS
	nics  [2]*dataplane.NIC
	bumps [2]*bump.Running
	procs int // GOMAXPROCS as it was
}

func newRig(ctx context.Context, rate uint64) (_ *rig, err error) {
	lab, err := netlab.New("gnbumpbench")
	if err != nil {
		return nil, err
	}
	// Sender, receiver and both NICs are machines of their own, here in one process. With the usual GOMAXPROCS, as many as
	// there are CPUs, a NIC's thread that wakes would wait for another's turn in Go's scheduler as well as in the kernel's.
	r := &rig{lab: lab, procs: runtime.GOMAXPROCS(0)}
	runtime.GOMAXPROCS(max(r.procs, runtime.NumCPU()+6))
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Close())
		}
	}()
	for side := range 2 {
		if r.host[side], err = lab.Namespace(fmt.Sprint("host", side)); err != nil {
			return nil, err
		}
		if r.nicNS[side], err = lab.Namespace(fmt.Sprint("nic", side)); err != nil {
			return nil, err
		}
		err = lab.Veth(
			netlab.End{NS: r.host[side], Name: "eth0", Addr: hostIP(side).String() + "/24", MTU: mtu},
			netlab.End{NS: r.nicNS[side], Name: "h", MTU: mtu})
		if err != nil {
			return nil, err
		}
	}
	if err := lab.LimitedVeth(netlab.End{NS: r.nicNS[0], Name: "w", MTU: mtu}, netlab.End{NS: r.nicNS[1], Name: "w", MTU: mtu}, rate); err != nil {
		return nil, err
	}
	return r, nil
}

// start runs the NICs.
func (r *rig) start(ctx context.Context) error {
	chosen, err := bump.ParseRule(rule)
	if err != nil {
		return err
	}
	for side := range 2 {
		in := r.nicNS[side].Do
		n, err := dataplane.New(
			// Asleep when idle: the machine may have fewer cores than there are lanes, sockets and senders.
			dataplane.Config{MAC: inet.MAC{2, 0x67, 192, 0, 2, byte(side + 1)}, IP: inet.Addr{192, 0, 2, byte(side + 1)}, Wait: dataplane.Interrupt, FramesPerQueue: framesPerQueue},
			dataplane.XDPPort{Interface: "h", Namespace: in, WholePort: true}, dataplane.XDPPort{Interface: "w", Namespace: in, WholePort: true})
		if err != nil {
			return err
		}
		o := bump.ServeOptions{Host: "h", Wire: "w"}
		if side == 0 {
			o.Engine.Rules = []bump.Rule{chosen}
		}
		if r.bumps[side], err = bump.Start(ctx, n, bump.StartOptions{ServeOptions: o, Namespace: in}); err != nil {
			return err
		}
		if err := n.Start(ctx); err != nil {
			return err
		}
		r.nics[side] = n
	}
	return nil
}

// meet sends until the far end is found.
func (r *rig) meet(s *sender, ctx context.Context) error {
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end) && ctx.Err() == nil; {
		if err := s.send(ctx, 20*time.Millisecond); err != nil {
			return err
		}
		for _, p := range r.bumps[0].Status().Peers {
			if p.State == bump.Present {
				return nil
			}
		}
	}
	return errors.Join(errors.New("the NICs do not find each other"), ctx.Err())
}

// counters are NIC 0's.
func (r *rig) counters() bump.Counters { return r.bumps[0].Status().Counters }

// Close stops the NICs, checks their accounts, and removes the namespaces.
func (r *rig) Close() error {
	defer runtime.GOMAXPROCS(r.procs)
	var errs []error
	for side := range 2 {
		if r.bumps[side] != nil {
			errs = append(errs, r.bumps[side].Close())
		}
		if n := r.nics[side]; n != nil {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			errs = append(errs, n.Stop(ctx))
			cancel()
			s := n.Snapshot()
			errs = append(errs, s.Check())
		}
	}
	return errors.Join(append(errs, r.lab.Close())...)
}

// dial opens a socket of host 0 towards a port of host 1, and that port's.
func (r *rig) dial(port int) (from, to *net.UDPConn, err error) {
	err = r.host[1].Do(func() (err error) {
		ip := hostIP(1)
		to, err = net.ListenUDP("udp4", &net.UDPAddr{IP: ip[:], Port: port})
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("port %d of host 1: %w", port, err)
	}
	err = r.host[0].Do(func() (err error) {
		ip := hostIP(1)
		from, err = net.DialUDP("udp4", nil, &net.UDPAddr{IP: ip[:], Port: port})
		return err
	})
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("host 0 to port %d: %w", port, err), to.Close())
	}
	// As root beyond the limit of net.core.rmem_max.
	return from, to, errors.Join(setOption(to, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20), setOption(from, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 4<<20))
}
