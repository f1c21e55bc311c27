// Package traffic runs the bench's generators, sinks and a NIC as device under test on interfaces that the user names:
// what `gradnic bench gen`, `bench sink` and `bench device` do, on one machine or on two.
package traffic

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"gradnic/bench/flow"
	"gradnic/bench/gen"
	"gradnic/bench/rate"
	"gradnic/bench/sink"
	"gradnic/dataplane"
	"gradnic/wire/inet"
	"gradnic/xdp"
)

// Generate describes a run of a generator.
type Generate struct {
	Kind      string // kernel, xdp or udp
	Interface string // not for udp
	Flow      flow.Options
	IMIX      bool
	FCS       bool // sizes count the 4 bytes of the frame check sequence, as RFC 2544 does
	Rate      rate.Rate
	Link      float64 // bit/s, for a rate in percent; 0: what the interface says
	Queues    int
	For       time.Duration
	CPUs      []int
}

// Sent is what a run of a generator came to.
type Sent struct {
	*gen.Result
	Interface string  `json:"interface,omitempty"`
	Flow      string  `json:"flow"`
	Sizes     []int   `json:"sizes"` // without FCS
	AskedRate string  `json:"asked_rate"`
	L1        float64 `json:"l1_bits_per_second"` // with preamble, gap and FCS
	L2        float64 `json:"l2_bits_per_second"` // with FCS
	Invalid   string  `json:"invalid,omitempty"`
}

// prepare refuses what no generator does, and settles sizes and rate.
func (g *Generate) prepare() (pps float64, err error) {
	switch g.Kind {
	case "":
		g.Kind = "xdp"
	case "kernel", "xdp", "udp":
	default:
		return 0, fmt.Errorf("generator %q: legal are kernel, xdp and udp", g.Kind)
	}
	if g.For < 0 || g.Queues < 0 {
		return 0, fmt.Errorf("%v from %d queues: neither may be negative", g.For, g.Queues)
	}
	if g.Kind == "kernel" && (g.IMIX || len(g.Flow.Sizes) > 1 || g.Queues > 1) {
		return 0, errors.New("the kernel generator sends one size from one thread: take xdp for more")
	}
	if g.Kind == "kernel" && g.Flow.Kind != flow.UDP && g.Flow.Kind != flow.SwitchML {
		return 0, fmt.Errorf("the kernel generator sends udp and switchml, not %v: take xdp", g.Flow.Kind)
	}
	if g.IMIX {
		if g.Flow.Sizes != nil {
			return 0, errors.New("sizes and IMIX exclude each other")
		}
		g.Flow.Sizes, g.Flow.Shares = flow.IMIX()
	} else if g.FCS {
		g.Flow.Sizes = slices.Clone(g.Flow.Sizes)
		for i := range g.Flow.Sizes {
			g.Flow.Sizes[i] -= rate.FCS
		}
	}
	if g.Flow.ToIP.IsZero() {
		return 0, errors.New("no destination IP address")
	}
	if g.Flow.To.IsZero() && g.Kind == "udp" {
		g.Flow.To = inet.MAC{2} // the kernel finds the real one
	}
	if g.Link == 0 && g.Rate.Unit == rate.Percent {
		g.Link = linkSpeed(g.Interface)
	}
	s, err := flow.New(g.Flow) // it knows the defaults, and what is legal
	if err != nil {
		return 0, err
	}
	if g.Flow.Sizes == nil {
		g.Flow.Sizes = []int{s.Longest()}
	}
	return g.Rate.PPS(g.Flow.Sizes, g.Flow.Shares, g.Link)
}

// linkSpeed is what the driver says, in bit/s; 0 when it says nothing, as a veth does.
func linkSpeed(name string) float64 {
	b, err := os.ReadFile(filepath.Join("/sys/class/net", filepath.Base(name), "speed"))
	if err != nil {
		return 0
	}
	mbit, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || mbit <= 0 {
		return 0
	}
	return float64(mbit) * 1e6
}

// Plan is what would be sent.
type Plan struct {
	Kind      string      `json:"kind"`
	Flow      string      `json:"flow"`
	Sizes     []PlanFrame `json:"sizes"`
	AskedRate string      `json:"asked_rate"`
	PPS       float64     `json:"pps,omitempty"` // frames a second over all queues; 0: as fast as it goes
	Queues    int         `json:"queues"`
}

// PlanFrame is what a frame size counts, in bytes.
type PlanFrame struct {
	Frame   int     `json:"frame"`              // as captures have it
	L2      int     `json:"l2"`                 // with padding and FCS
	L1      int     `json:"l1"`                 // with preamble and gap as well
	LinePPS float64 `json:"line_pps,omitempty"` // the most frames a second of the link; 0: its speed is not known
}

// Plan says what would be sent, without sending.
func (g Generate) Plan() (*Plan, error) {
	pps, err := g.prepare()
	if err != nil {
		return nil, err
	}
	p := &Plan{Kind: g.Kind, Flow: g.Flow.Kind.String(), AskedRate: g.Rate.String(), PPS: pps, Queues: max(g.Queues, 1)}
	for _, size := range g.Flow.Sizes {
		f := PlanFrame{Frame: size, L2: rate.L2Bytes(size), L1: rate.L1Bytes(size)}
		if g.Link > 0 {
			f.LinePPS = rate.Line(g.Link, size)
		}
		p.Sizes = append(p.Sizes, f)
	}
	return p, nil
}

// Run sends.
func (g Generate) Run(ctx context.Context) (*Sent, error) {
	pps, err := g.prepare()
	if err != nil {
		return nil, err
	}
	q := gen.QueueOptions{Flow: g.Flow, Queues: g.Queues, Rate: pps, For: g.For, CPUs: g.CPUs}
	var r *gen.Result
	if g.Kind == "udp" {
		r, err = gen.RunUDP(ctx, q)
	} else {
		if g.Interface == "" {
			return nil, errors.New("which interface sends is missing (--interface): only sockets need none")
		}
		ifi, err2 := net.InterfaceByName(g.Interface)
		if err2 != nil {
			return nil, fmt.Errorf("interface %q: %w", g.Interface, err2)
		}
		// The clock starts when there is a link: what is sent before is lost in the driver.
		if err := carrier(ctx, g.Interface, 5*time.Second); err != nil {
			return nil, err
		}
		switch g.Kind {
		case "xdp":
			r, err = gen.RunXDP(ctx, ifi.Index, q)
		case "kernel":
			r, err = g.kernel(ctx, ifi.Index, pps)
		default:
			return nil, fmt.Errorf("generator %q: legal are kernel, xdp and udp", g.Kind)
		}
	}
	if r == nil {
		return nil, err
	}
	s := &Sent{Result: r, Interface: g.Interface, Flow: g.Flow.Kind.String(), Sizes: g.Flow.Sizes, AskedRate: g.Rate.String(), Invalid: r.Invalid()}
	if sec := r.Elapsed.Seconds(); sec > 0 {
		s.L2 = 8 * float64(r.Bytes+rate.FCS*r.Frames) / sec
		s.L1 = s.L2 + 8*rate.Framing*float64(r.Frames)/sec
	}
	return s, err
}

// kernel sends by live frames, from one thread.
func (g *Generate) kernel(ctx context.Context, index int, pps float64) (*gen.Result, error) {
	plain := g.Flow
	plain.Impairments, plain.Workers = flow.Impairments{}, 0 // the program's part
	s, err := flow.New(plain)
	if err != nil {
		return nil, err
	}
	frame := make([]byte, s.Longest())
	o := gen.Options{IfIndex: index, Frame: frame[:s.Next(frame, 0)], StampAt: g.Flow.Kind.StampAt(), Rate: pps, Impairments: g.Flow.Impairments, Seed: g.Flow.Seed}
	if g.Flow.Kind == flow.SwitchML {
		o.Workers, o.Slots = max(g.Flow.Workers, 1), g.Flow.Slots
	}
	if len(g.CPUs) > 0 {
		restore, err := gen.Pin(g.CPUs[0])
		if err != nil {
			return nil, err
		}
		defer restore()
	}
	k, err := gen.Open(o)
	if err != nil {
		return nil, err
	}
	defer k.Close()
	d := g.For
	if d == 0 {
		d = time.Second
	}
	if pps > 0 {
		return k.RunPaced(ctx, d)
	}
	n, elapsed, err := k.Run(d)
	r := &gen.Result{Kind: "kernel", For: d, Elapsed: elapsed}
	r.Frames, r.Numbers, r.Bytes = n, n, n*uint64(len(o.Frame))
	return r, err
}

// carrier waits until the interface has a link.
func carrier(ctx context.Context, name string, patience time.Duration) error {
	for end := time.Now().Add(patience); ; {
		b, err := os.ReadFile(filepath.Join("/sys/class/net", filepath.Base(name), "carrier"))
		// An error is an interface that is down, or a /sys of another namespace: then flags tell.
		if err == nil && strings.TrimSpace(string(b)) == "1" {
			return nil
		}
		if ifi, err2 := net.InterfaceByName(name); err2 == nil && err != nil && ifi.Flags&net.FlagRunning != 0 {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("interface %s has no link after %v", name, patience)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Receive runs a sink until ctx ends or the time is over, and says what came. ready is called when frames are taken.
func Receive(ctx context.Context, iface, address string, d time.Duration, o sink.Options, ready func()) (*sink.Summary, error) {
	var (
		s   *sink.Sink
		err error
	)
	if address != "" {
		s, err = sink.StartUDP(context.WithoutCancel(ctx), address, o)
	} else {
		ifi, err2 := net.InterfaceByName(iface)
		if err2 != nil {
			return nil, fmt.Errorf("interface %q: %w", iface, err2)
		}
		s, err = sink.StartXDP(context.WithoutCancel(ctx), ifi.Index, o)
	}
	if err != nil {
		return nil, err
	}
	ready()
	wait(ctx, d)
	return s.Stop()
}

// wait returns when ctx ends, or after d when that is not 0.
func wait(ctx context.Context, d time.Duration) {
	var over <-chan time.Time
	if d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		over = t.C
	}
	select {
	case <-ctx.Done():
	case <-over:
	}
}

// Device describes a NIC under test on one interface.
type Device struct {
	Interface string
	Function  dataplane.FunctionKind
	Pktgen    bool
	InKernel  bool // the steering program does it, see dataplane.Function
	MAC       inet.MAC
	IP        inet.Addr
	Lanes     int
	CPUs      []int
	Busy      bool
	For       time.Duration // 0: until ctx ends
}

// DeviceReport is what the NIC says of itself at the end.
type DeviceReport struct {
	Counters dataplane.Counters        `json:"counters"`
	Port     dataplane.PortSnapshot    `json:"port"`
	Pktgen   *dataplane.PktgenSnapshot `json:"pktgen,omitempty"`
	// Driver are those of the driver's own counters that have grown and whose names speak of drops or errors: what it
	// could not send back of what the function in the kernel gave it is in no other counter.
	Driver map[string]uint64 `json:"driver,omitempty"`
}

// Run is the device's life; ready is called when frames are taken.
func (d Device) Run(ctx context.Context, ready func()) (*DeviceReport, error) {
	cfg := dataplane.Config{MAC: d.MAC, IP: d.IP, Lanes: d.Lanes, CPUs: d.CPUs}
	if d.Busy {
		cfg.Wait = dataplane.Busy
	}
	n, err := dataplane.New(cfg, dataplane.XDPPort{Interface: d.Interface, Mode: xdp.Native, WholePort: true})
	if err != nil {
		return nil, err
	}
	if err := n.Start(context.WithoutCancel(ctx)); err != nil {
		return nil, err
	}
	stop := func() error {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
		defer cancel()
		return n.Stop(end)
	}
	if err := n.SetFunction(d.Interface, dataplane.Function{Kind: d.Function, Pktgen: d.Pktgen, InKernel: d.InKernel}); err != nil {
		return nil, errors.Join(err, stop())
	}
	before := driverLosses(d.Interface)
	ready()
	wait(ctx, d.For)
	r := &DeviceReport{Driver: map[string]uint64{}}
	for name, n := range driverLosses(d.Interface) {
		if n > before[name] {
			r.Driver[name] = n - before[name]
		}
	}
	if d.Pktgen {
		p, err := n.Pktgen(d.Interface)
		if err != nil {
			return nil, errors.Join(err, stop())
		}
		r.Pktgen = &p
	}
	err = stop()
	s := n.Snapshot()
	r.Counters, r.Port = s.Total, s.Ports[0]
	return r, errors.Join(err, s.Check())
}
