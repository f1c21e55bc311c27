package gen

import (
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"gradnic/bench/gen/bpf"
)

// Program is one of the bench's own at the receiving end: a ceiling that no user space can beat (drop, bounce), or the
// least that brings frames to a socket (redirect).
type Program struct {
	objs bpf.GenObjects
	l    link.Link
}

// OpenDrop attaches a program that counts and drops.
func OpenDrop(ifindex int) (*Program, error) { return open(ifindex, drop, Fault{}) }

// OpenBounce attaches a program that counts and sends each frame back by XDP_TX.
func OpenBounce(ifindex int) (*Program, error) { return open(ifindex, bounce, Fault{}) }

// Fault makes a bouncing device worse than it could be, for tests of the bench.
type Fault struct {
	Dawdle time.Duration // how long it takes for each frame
	Spoil  uint32        // one bit of one frame in so many is turned; 0: of none
}

// OpenFaulty is OpenBounce with a fault.
func OpenFaulty(ifindex int, f Fault) (*Program, error) { return open(ifindex, bounce, f) }

// OpenRedirect attaches a program that brings every frame to the socket of its queue in Sockets.
func OpenRedirect(ifindex int) (*Program, error) { return open(ifindex, redirect, Fault{}) }

const (
	drop     = "drop"
	bounce   = "bounce"
	redirect = "redirect"
)

func open(ifindex int, what string, f Fault) (*Program, error) {
	c := &Program{}
	spec, err := bpf.LoadGen()
	if err != nil {
		return nil, fmt.Errorf("load the description of the bench's programs: %w", err)
	}
	if err := errors.Join(spec.Variables["dawdle"].Set(uint64(f.Dawdle)), spec.Variables["spoil"].Set(f.Spoil)); err != nil {
		return nil, fmt.Errorf("the bench's programs: %w", err)
	}
	if err := spec.LoadAndAssign(&c.objs, nil); err != nil {
		return nil, fmt.Errorf("load the bench's programs: %w", err)
	}
	prog := c.objs.Drop
	switch what {
	case bounce:
		prog = c.objs.Bounce
	case redirect:
		prog = c.objs.Redirect
	}
	c.l, err = link.AttachXDP(link.XDPOptions{Program: prog, Interface: ifindex, Flags: link.XDPDriverMode})
	if err != nil {
		c.objs.Close()
		return nil, fmt.Errorf("attach the bench's %s program to netdev %d: %w", what, ifindex, err)
	}
	return c, nil
}

// Sockets is the map from queue to socket of the redirect program.
func (c *Program) Sockets() *ebpf.Map { return c.objs.Xsks }

// Received counts frames since the program was attached; the redirect program does not count.
func (c *Program) Received() (uint64, error) { return sum(c.objs.Seen) }

// Close takes the program off the netdev.
func (c *Program) Close() error { return errors.Join(c.l.Close(), c.objs.Close()) }
