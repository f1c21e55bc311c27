// Package gen makes frames inside the kernel: an XDP program run with live frames fills each frame and sends it out
// of a netdev, so that one core can offer several million frames a second to whatever sits at the other end of a
// veth pair. It is the fastest generator there is without a second machine, and it needs no module.
//
// Beside it there are two that make their frames in user space and send from one or many queues: by AF_XDP (RunXDP) and
// through UDP sockets (RunUDP). All three keep a rate when one is asked, and say when they did not ([Judge]).
//
// What it offers is not what arrives: a full ring at the far end drops silently. Rates in reports are therefore
// frames counted by the receiver over the time the generator ran, and the offered rate stands beside them.
package gen

import (
	"errors"
	"fmt"
	"math/bits"
	"time"

	"gradnic/bench/flow"
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
	Jobs    int    // with Workers: jobs that contribute in turn, whose workers are 02:00:jj:jj:(w+1):00, 10.(50+j).j.(w+1); 0 means 1
	Flows   int    // without Workers: the UDP source port runs through so many values from 4000; 0 means 1
	StampAt int    // 0: none; else the offset of flow's stamp in the frame

	Rate             float64 // frames a second; 0: as fast as it goes
	flow.Impairments         // malformed frames have IP version 6 behind IPv4's EtherType
	Seed             uint64

	// Only, if not 0, makes Returned count frames from that UDP port, or to it as a socket answers, alone: a device may give back
	// late what it took in an earlier run.
	Only uint16
	// SKBs says that frames come back as sk_buffs, as sockets of any kind send them. They are counted at the netdev's ingress
	// then, where Linux 6.6 and later can: the driver would copy each one for an XDP program, on the sender's core, which
	// would be measured too. Frames that an XDP program sends back are counted by one.
	SKBs bool
	// NoReceiver leaves the netdev's own XDP program alone: somebody else receives there. Returned is then 0.
	NoReceiver bool
}

// batch is how many frames the kernel builds before it flushes them to the driver; 64 is its NAPI weight.
const batch = 64

// Generator sends frames from the calling thread. It is used by one goroutine at a time, but Returned by any beside it.
type Generator struct {
	objs  bpf.GenObjects
	back  link.Link // nil: NoReceiver
	frame []byte
	opts  Options
}

// check refuses what the program cannot do.
func (o *Options) check() error {
	switch {
	case len(o.Frame) < 60 || len(o.Frame) > MaxFrame:
		return fmt.Errorf("generator: frame of %d bytes: must be 60..%d", len(o.Frame), MaxFrame)
	case o.Workers < 0 || o.Workers > 255:
		return fmt.Errorf("generator: %d workers: must be 0..255", o.Workers)
	case o.StampAt < 0 || o.StampAt > 0 && o.StampAt+flow.StampLen > len(o.Frame):
		return fmt.Errorf("generator: a stamp at byte %d of a frame of %d", o.StampAt, len(o.Frame))
	case !(o.Rate >= 0):
		return fmt.Errorf("generator: rate %v", o.Rate)
	}
	for _, share := range []float64{o.Loss, o.Duplicate, o.Reorder, o.Malformed} {
		if !(share >= 0 && share <= 0.9) {
			return fmt.Errorf("generator: share %v: legal are 0 to 0.9", share)
		}
	}
	return nil
}

// Open loads the generator's program and attaches a counting receiver to the netdev; without one veth takes no frames
// that an XDP program sends back. The caller must be in the netdev's namespace, here and in Run.
func Open(opts Options) (*Generator, error) {
	if err := opts.check(); err != nil {
		return nil, err
	}
	spec, err := bpf.LoadGen()
	if err != nil {
		return nil, fmt.Errorf("generator: load the program's description: %w", err)
	}
	share := func(f float64) uint32 { return uint32(f * (1 << 32)) }
	vars := map[string]any{
		"workers": uint32(opts.Workers),
		"slots":   uint32(max(opts.Slots, 1)),
		"flows":   uint32(max(opts.Flows, 1)),
		"jobs":    uint32(max(opts.Jobs, 1)),

		"worker_bits": powerOf2(opts.Workers),
		"slot_bits":   powerOf2(max(opts.Slots, 1)),

		"stamp_at": uint32(opts.StampAt),
		"lose":     share(opts.Loss),
		"twice":    share(opts.Duplicate),
		"swap":     share(opts.Reorder),
		"damage":   share(opts.Malformed),
		"dice":     opts.Seed*2 + 1,

		"only_port": uint32(opts.Only),
		"macs":      [12]byte(opts.Frame),
	}
	if opts.StampAt > 0 {
		vars["stamp_sum"] = flow.PayloadSum(opts.Frame[opts.StampAt+flow.StampLen:])
	}
	if opts.Rate > 0 {
		vars["gap"] = uint64(max(1e9/opts.Rate*(1<<16), 1))
	}
	for name, v := range vars {
		if err := spec.Variables[name].Set(v); err != nil {
			return nil, fmt.Errorf("generator: set %s: %w", name, err)
		}
	}
	g := &Generator{frame: opts.Frame, opts: opts}
	if err := spec.LoadAndAssign(&g.objs, nil); err != nil {
		return nil, fmt.Errorf("generator: load the programs: %w", err)
	}
	if opts.NoReceiver {
		return g, nil
	}
	if opts.SKBs {
		g.back, err = link.AttachTCX(link.TCXOptions{Program: g.objs.ReceiveSkb, Interface: opts.IfIndex, Attach: ebpf.AttachTCXIngress})
		if err == nil {
			return g, nil
		}
		if !errors.Is(err, ebpf.ErrNotSupported) {
			g.objs.Close()
			return nil, fmt.Errorf("generator: attach the counting receiver to the ingress of netdev %d: %w", opts.IfIndex, err)
		}
	}
	g.back, err = link.AttachXDP(link.XDPOptions{Program: g.objs.Receive, Interface: opts.IfIndex, Flags: link.XDPDriverMode})
	if err != nil {
		g.objs.Close()
		return nil, fmt.Errorf("generator: attach the counting receiver to netdev %d: %w", opts.IfIndex, err)
	}
	return g, nil
}

// powerOf2 is the k of a number that is 2^k, and -1 for others.
func powerOf2(n int) int32 {
	if n < 1 || n&(n-1) != 0 {
		return -1
	}
	return int32(bits.Len(uint(n)) - 1)
}

// Run sends as fast as it goes for about the duration d and returns how many frames were offered and how long it took, by
// the kernel's clock from the first frame to the last. Setting a live run up and down takes the kernel some 20 ms, so it is one
// call, sized by a short run before it; both count, the gap between them does not.
func (g *Generator) Run(d time.Duration) (offered uint64, elapsed time.Duration, err error) {
	if g.opts.Rate > 0 {
		return 0, 0, errors.New("generator: Run is for generators without a rate")
	}
	if d <= 0 {
		return 0, 0, fmt.Errorf("generator: a run of %v", d)
	}
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

// Slice is one of the parts of a run.
type Slice struct {
	Offered uint64
	Elapsed time.Duration // by the kernel's clock from the first frame to the last
}

// RunSlices sends n times for about the duration d, as Run does, with the some 20 ms between that setting a live run up and down
// takes. Where somebody else's threads share the cores for tens of milliseconds at a time, slices of that length tell what was theirs.
func (g *Generator) RunSlices(n int, d time.Duration) ([]Slice, error) {
	if g.opts.Rate > 0 {
		return nil, errors.New("generator: RunSlices is for generators without a rate")
	}
	if d <= 0 || n < 1 {
		return nil, fmt.Errorf("generator: %d slices of %v", n, d)
	}
	var slices []Slice
	frames := uint32(1 << 15)
	for range n + 1 {
		offered, elapsed, err := g.burst(frames)
		if err != nil {
			return nil, err
		}
		slices = append(slices, Slice{offered, elapsed})
		frames = uint32(min(float64(d)/float64(max(elapsed, 1))*float64(offered)+1, 1<<31))
	}
	return slices, nil // with the first one, which sized the others: its frames count as theirs do
}

// errCutShort is how a live run that was told to end leaves the library, which would begin it again.
type errCutShort struct{}

// burst makes n frames, or with a rate n attempts, in one live run.
func (g *Generator) burst(n uint32) (offered uint64, elapsed time.Duration, err error) {
	var before, after, first, last uint64
	if err := errors.Join(g.objs.Sent.Get(&before), g.objs.First.Set(uint64(0))); err != nil {
		return 0, 0, fmt.Errorf("generator: counters: %w", err)
	}
	if err := g.live(n, nil); err != nil {
		return 0, 0, err
	}
	if err := errors.Join(g.objs.Sent.Get(&after), g.objs.First.Get(&first), g.objs.Last.Get(&last)); err != nil {
		return 0, 0, fmt.Errorf("generator: counters: %w", err)
	}
	return after - before, time.Duration(last - first), nil
}

// live is one live run of n frames or attempts. cut is asked whenever a signal interrupts the run, and true ends it.
func (g *Generator) live(n uint32, cut func() bool) (err error) {
	var md [6]uint32 // struct xdp_md: data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex
	md[1] = uint32(len(g.frame))
	md[3] = uint32(g.opts.IfIndex)
	defer func() {
		switch v := recover().(type) {
		case nil, errCutShort:
		default:
			panic(v)
		}
	}()
	_, err = g.objs.Generate.Run(&ebpf.RunOptions{
		Data:      g.frame,
		Context:   md,
		Repeat:    n,
		Flags:     unix.BPF_F_TEST_XDP_LIVE_FRAMES,
		BatchSize: batch,
		// The library starts an interrupted run again, unless this does not return.
		//lint:ignore SA1019 made for another purpose, but the only thing that is called then
		Reset: func() {
			if cut != nil && cut() {
				panic(errCutShort{})
			}
		},
	})
	if err != nil {
		return fmt.Errorf("generator: live run on netdev %d: %w", g.opts.IfIndex, err)
	}
	return nil
}

// Returned counts the frames that came back to the generator's netdev since Open.
func (g *Generator) Returned() (uint64, error) { return sum(g.objs.Seen) }

// Close takes the receiver off the netdev and frees the programs.
func (g *Generator) Close() error {
	if g.back == nil {
		return g.objs.Close()
	}
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
