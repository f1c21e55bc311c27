// Package gen makes frames inside the kernel: an XDP program run with live frames fills each frame and sends it out
// of a netdev, so that one core can offer several million frames a second to whatever sits at the other end of a
// veth pair. It is the fastest generator there is without a second machine, and it needs no module.
//
// What it offers is not what arrives: a full ring at the far end drops silently. Rates in reports are therefore
// frames counted by the receiver over the time the generator ran, and the offered rate stands beside them.
package gen

import (
	"errors"
	"fmt"
	"time"

	"gradnic/bench/gen/bpf"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// MaxFrame is the longest live frame, in bytes: one page less the kernel's headroom and tail.
const MaxFrame = 3400

// Options say what is sent. The zero value of each field is documented with it.
type Options struct {
	IfIndex int    // the netdev that the frames leave by; its namespace must be the caller's
	Frame   []byte // the frame that is sent, Ethernet header first; at least 60 bytes and at most MaxFrame
	Workers int    // 0: Frame as it is; else SwitchML contributions of so many workers (1..255) in turn
	Slots   int    // with Workers: slots used in turn, first all in set 0, then all in set 1; 0 means 1
	Flows   int    // without Workers: the UDP source port runs through so many values from 4000; 0 means 1
	StampAt int    // 0: none; else the offset of a 64-bit sequence number and a 64-bit monotonic time, both in host order
}

// batch is how many frames the kernel builds before it flushes them to the driver; 64 is its NAPI weight.
const batch = 64

// Generator sends frames from the calling thread. It is used by one goroutine at a time.
type Generator struct {
	objs  bpf.GenObjects
	back  link.Link
	frame []byte
	opts  Options
}

// Open loads the generator's program and attaches a counting receiver to the netdev, which veth needs to take frames
// that come back. The caller must be in the netdev's namespace, here and in Run.
func Open(opts Options) (*Generator, error) {
	if len(opts.Frame) < 60 || len(opts.Frame) > MaxFrame {
		return nil, fmt.Errorf("generator: frame of %d bytes: must be 60..%d", len(opts.Frame), MaxFrame)
	}
	if opts.Workers < 0 || opts.Workers > 255 {
		return nil, fmt.Errorf("generator: %d workers: must be 0..255", opts.Workers)
	}
	spec, err := bpf.LoadGen()
	if err != nil {
		return nil, fmt.Errorf("generator: load the program's description: %w", err)
	}
	for name, v := range map[string]uint32{
		"workers":  uint32(opts.Workers),
		"slots":    uint32(max(opts.Slots, 1)),
		"flows":    uint32(max(opts.Flows, 1)),
		"stamp_at": uint32(opts.StampAt),
	} {
		if err := spec.Variables[name].Set(v); err != nil {
			return nil, fmt.Errorf("generator: set %s: %w", name, err)
		}
	}
	g := &Generator{frame: opts.Frame, opts: opts}
	if err := spec.LoadAndAssign(&g.objs, nil); err != nil {
		return nil, fmt.Errorf("generator: load the programs: %w", err)
	}
	g.back, err = link.AttachXDP(link.XDPOptions{Program: g.objs.Receive, Interface: opts.IfIndex, Flags: link.XDPDriverMode})
	if err != nil {
		g.objs.Close()
		return nil, fmt.Errorf("generator: attach the counting receiver to netdev %d: %w", opts.IfIndex, err)
	}
	return g, nil
}

// Run sends for about the duration d and returns how many frames were offered and how long it took, by the kernel's
// clock from the first frame to the last. Setting a live run up and down takes the kernel some 20 ms, so it is one
// call, sized by a short run before it; both count, the gap between them does not.
func (g *Generator) Run(d time.Duration) (offered uint64, elapsed time.Duration, err error) {
	const trial = 1 << 15
	for _, repeat := range []func() uint32{
		func() uint32 { return trial },
		func() uint32 { return uint32(min(float64(d)/float64(max(elapsed, 1))*trial, 1<<31)) },
	} {
		n, t, err := g.burst(repeat())
		if err != nil {
			return 0, 0, err
		}
		offered, elapsed = offered+n, elapsed+t
	}
	return offered, elapsed, nil
}

// burst makes n frames in one live run.
func (g *Generator) burst(n uint32) (offered uint64, elapsed time.Duration, err error) {
	var before, after, first, last uint64
	var md [6]uint32 // struct xdp_md: data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex
	md[1] = uint32(len(g.frame))
	md[3] = uint32(g.opts.IfIndex)
	if err := errors.Join(g.objs.Sequence.Get(&before), g.objs.First.Set(uint64(0))); err != nil {
		return 0, 0, fmt.Errorf("generator: counters: %w", err)
	}
	_, err = g.objs.Generate.Run(&ebpf.RunOptions{
		Data:      g.frame,
		Context:   md,
		Repeat:    n,
		Flags:     unix.BPF_F_TEST_XDP_LIVE_FRAMES,
		BatchSize: batch,
	})
	// A signal cuts a run short (EINTR); the program's own counters tell what was sent.
	if err != nil && !errors.Is(err, unix.EINTR) {
		return 0, 0, fmt.Errorf("generator: live run on netdev %d: %w", g.opts.IfIndex, err)
	}
	if err := errors.Join(g.objs.Sequence.Get(&after), g.objs.First.Get(&first), g.objs.Last.Get(&last)); err != nil {
		return 0, 0, fmt.Errorf("generator: counters: %w", err)
	}
	return after - before, time.Duration(last - first), nil
}

// Returned counts the frames that came back to the generator's netdev since Open.
func (g *Generator) Returned() (uint64, error) { return sum(g.objs.Seen) }

// Close takes the receiver off the netdev and frees the programs.
func (g *Generator) Close() error {
	return errors.Join(g.back.Close(), g.objs.Close())
}

func sum(m *ebpf.Map) (uint64, error) {
	var per []uint64
	if err := m.Lookup(uint32(0), &per); err != nil {
		return 0, fmt.Errorf("read the frame counter: %w", err)
	}
	var n uint64
	for _, v := range per {
		n += v
	}
	return n, nil
}

// Program is one of the bench's own at the receiving end: a ceiling that no user space can beat (drop, bounce), or the
// least that brings frames to a socket (redirect).
type Program struct {
	objs bpf.GenObjects
	l    link.Link
}

// OpenDrop attaches a program that counts and drops.
func OpenDrop(ifindex int) (*Program, error) { return open(ifindex, drop) }

// OpenBounce attaches a program that counts and sends each frame back by XDP_TX.
func OpenBounce(ifindex int) (*Program, error) { return open(ifindex, bounce) }

// OpenRedirect attaches a program that brings every frame to the socket of its queue in Sockets.
func OpenRedirect(ifindex int) (*Program, error) { return open(ifindex, redirect) }

const (
	drop     = "drop"
	bounce   = "bounce"
	redirect = "redirect"
)

func open(ifindex int, what string) (*Program, error) {
	c := &Program{}
	if err := bpf.LoadGenObjects(&c.objs, nil); err != nil {
		return nil, fmt.Errorf("load the bench's programs: %w", err)
	}
	prog := c.objs.Drop
	switch what {
	case bounce:
		prog = c.objs.Bounce
	case redirect:
		prog = c.objs.Redirect
	}
	var err error
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
