package ringbench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"gradnic/bench/collective"
	"gradnic/bench/report"
	"gradnic/codec"
	"gradnic/internal/ringlab"
	"gradnic/plan"
	"gradnic/service/ring"
)

// CalibrateOptions say what is measured for a system's figures.
type CalibrateOptions struct {
	Nodes  int     // 0: 4
	Rate   uint64  // bit/s of each link; 0: 200e6
	MTU    int     // 0: 1500
	Rounds int     // 0: 5
	Codec  string  // the compressed one; "": bfp16
	TFLOPS float64 // of a node, 10^12 operations a second; 0: measured, in plain Go on one CPU
	Log    io.Writer

	slices []int // sizes of the all-reduces, in slices of 8192 float32 for each node; nil: 3, 6, 24
}

func (o *CalibrateOptions) defaults() {
	if o.Nodes == 0 {
		o.Nodes = 4
	}
	if o.Rate == 0 {
		o.Rate = 200e6
	}
	if o.MTU == 0 {
		o.MTU = 1500
	}
	if o.Rounds == 0 {
		o.Rounds = 5
	}
	if o.Codec == "" {
		o.Codec = codec.Default
	}
	if o.slices == nil {
		o.slices = []int{3, 6, 24}
	}
	if o.Log == nil {
		o.Log = io.Discard
	}
}

// Point is one measured all-reduce, beside what the fitted figures say of it.
type Point struct {
	What     string  `json:"what"` // nic, nic+CODEC or tcp
	Bytes    int64   `json:"bytes"`
	Measured float64 `json:"measured_ms"`
	Fitted   float64 `json:"fitted_ms"`
}

// Calibration is a fitted system with what it was fitted to.
type Calibration struct {
	System *plan.System `json:"system"`
	Points []Point      `json:"points"`
	Link   float64      `json:"raw_sender"` // what a raw sender got across, over the rate
	Worst  float64      `json:"worst"`      // largest relative error of a fitted point
}

// inRow is how many all-reduces follow each other without a pause; the time of one is a part of theirs.
const inRow = 6

// Calibrate measures all-reduces of three sizes over limited links between namespaces of this machine, through the NICs
// with and without compression and in software over TCP, and fits the figures of a system to them. Needs root.
func Calibrate(ctx context.Context, o CalibrateOptions) (_ *Calibration, err error) {
	o.defaults()
	if !slices.Contains(ring.Codecs(), o.Codec) {
		return nil, fmt.Errorf("codec %q: a ring has %s", o.Codec, strings.Join(ring.Codecs(), ", "))
	}
	c, err := codec.ByName(o.Codec)
	if err != nil {
		return nil, err
	}
	l, err := newRig(ctx, o.Nodes, o.Rate, o.MTU)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	r, err := l.calibrate(ctx, o, c.Info().Ratio())
	if err != nil {
		return nil, err
	}
	r.System.Compute.TFLOPS = o.TFLOPS
	if o.TFLOPS == 0 {
		r.System.Compute.TFLOPS = measureFLOPs() / 1e12
	}
	r.System.AdderGbytes = measureAdder(c) / 1e9
	r.System.HostGbit = measureCopy() * 8 / 1e9
	return r, r.System.Check()
}

// rig is a lab whose ring has formed, with a TCP ring beside it.
type rig struct {
	*ringlab.Lab
	tcp  *tcpRing
	rate uint64
	link float64 // what a raw sender got across
}

func newRig(ctx context.Context, nodes int, rate uint64, mtu int) (_ *rig, err error) {
	lab, err := ringlab.New(ringlab.Options{Nodes: nodes, Rate: rate, MTU: mtu})
	if err != nil {
		return nil, err
	}
	r := &rig{Lab: lab, rate: rate}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Close())
		}
	}()
	if r.link, err = collective.TryLink(lab.Nodes[0].NS, ringlab.Iface, lab.Nodes[1].NS, ringlab.Iface, rate, 500*time.Millisecond); err != nil {
		return nil, fmt.Errorf("try the link: %w", err)
	}
	if r.link > collective.Most {
		return nil, fmt.Errorf("INVALID: a raw sender got %.2f of the link's rate across", r.link)
	}
	starting, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if err = lab.StartAll(starting); err != nil {
		return nil, err
	}
	r.tcp, err = newTCPRing(ctx, lab)
	return r, err
}

func (r *rig) Close() error {
	var err error
	if r.tcp != nil {
		err = r.tcp.Close()
	}
	return errors.Join(err, r.Lab.Close())
}

func (r *rig) calibrate(ctx context.Context, o CalibrateOptions, ratio float64) (*Calibration, error) {
	n := len(r.Nodes)
	contestants := []struct {
		what string
		run  func(length int) (time.Duration, error)
	}{
		{"nic", func(length int) (time.Duration, error) { return nicAllReduces(ctx, r.Lab, "none", length, inRow) }},
		{"nic+" + o.Codec, func(length int) (time.Duration, error) { return nicAllReduces(ctx, r.Lab, o.Codec, length, inRow) }},
		{"tcp", func(length int) (time.Duration, error) { return tcpAllReduces(r.Lab, r.tcp, length, inRow) }},
	}
	for _, c := range contestants { // windows open
		if _, err := c.run(n * 8192 * 3); err != nil {
			return nil, err
		}
	}
	seconds := map[string][][]float64{}
	for range o.Rounds {
		for k, s := range o.slices {
			for _, c := range contestants {
				d, err := c.run(n * s * 8192)
				if err != nil {
					return nil, err
				}
				if len(seconds[c.what]) <= k {
					seconds[c.what] = append(seconds[c.what], nil)
				}
				seconds[c.what][k] = append(seconds[c.what][k], d.Seconds()/inRow)
				fmt.Fprintf(o.Log, "%s, %d nodes, %d KiB: %.2f ms each\n", c.what, n, n*s*32, d.Seconds()/inRow*1e3)
			}
		}
	}
	var nic, tcp fit
	ringBytes := func(s int) float64 { return 2 * float64(n-1) / float64(n) * float64(n*s*32768) }
	for k, s := range o.slices {
		nic.add(ringBytes(s), 2*float64(n-1), report.Median(seconds["nic"][k]))
		nic.add(ringBytes(s)/ratio, 2*float64(n-1), report.Median(seconds["nic+"+o.Codec][k]))
		tcp.add(ringBytes(s), 2*float64(n-1), report.Median(seconds["tcp"][k]))
	}
	a, b := nic.solve()
	ta, tb := tcp.solve()
	if ta < a { // a share is at most 1
		ta, tb = a, tcp.rest(a)
	}
	sys := &plan.System{
		Name: "calibrated", Source: fmt.Sprintf("gradnic model calibrate: %d nodes in namespaces of one machine, links of %.3g Mbit/s, MTU %d; medians of %d rounds of %d all-reduces in a row",
			n, float64(r.rate)/1e6, o.MTU, o.Rounds, inRow),
		LinkGbit: 8 / a / 1e9, HopUs: b * 1e6,
		// Frames are passed on one by one: the ring does not fill slice by slice.
		SliceBytes: 0,
		// A plain node's figures are relative to what the NICs' ring gets out of the same link.
		Naive: plan.Software{LinkShare: a / ta, StepUs: tb * 1e6}, Slowdown: 1, HostGbit: 1e3,
	}
	sys.Overlapped = sys.Naive
	out := &Calibration{System: sys, Link: r.link}
	for k, s := range o.slices {
		bytes := int64(n * s * 32768)
		for what, fitted := range map[string]float64{
			"nic":            sys.NICAllReduce(bytes, n, 1).Total,
			"nic+" + o.Codec: sys.NICAllReduce(bytes, n, ratio).Total,
			"tcp":            sys.PlainAllReduce(bytes, n, sys.Naive).Total,
		} {
			m := report.Median(seconds[what][k])
			out.Points = append(out.Points, Point{What: what, Bytes: bytes, Measured: m * 1e3, Fitted: fitted * 1e3})
			out.Worst = max(out.Worst, math.Abs(fitted/m-1))
		}
	}
	sortPoints(out.Points)
	return out, nil
}

// fit finds a and b, not negative, with the least squares of the relative errors of t = a x + b y.
type fit struct{ xx, xy, yy, xt, yt float64 }

func (f *fit) add(x, y, t float64) {
	x, y = x/t, y/t
	f.xx += x * x
	f.xy += x * y
	f.yy += y * y
	f.xt += x
	f.yt += y
}

func (f *fit) solve() (a, b float64) {
	det := f.xx*f.yy - f.xy*f.xy
	if det > 1e-12*f.xx*f.yy {
		a, b = (f.xt*f.yy-f.yt*f.xy)/det, (f.yt*f.xx-f.xt*f.xy)/det
	}
	if a <= 0 || b < 0 {
		a, b = f.xt/f.xx, 0
	}
	return a, b
}

// rest is b when a is given.
func (f *fit) rest(a float64) float64 { return max(0, (f.yt-a*f.xy)/f.yy) }
