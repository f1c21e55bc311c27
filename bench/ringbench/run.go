package ringbench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"gradnic/bench/report"
	"gradnic/codec"
	"gradnic/plan"
)

// Options say what is measured. The zero value is the table of docs/ring.md.
type Options struct {
	Rounds  int       // 0 means 5
	Rate    uint64    // bit/s of each link; 0: 200e6
	Nodes   []int     // of the training steps; nil: 2, 4, 6
	Bytes   int       // of the all-reduce that is held against the links' bound; 0: 16 MiB
	Log     io.Writer // progress; nil: none
	Command string    // what the report says made it

	mtus   []int // of that all-reduce; nil: 1500, 9000
	slices []int // CalibrateOptions'
}

const (
	paperShare  = 0.51 // of communication in the naive step at 6 nodes
	paperNodes  = 6
	goalBound   = 0.90
	goalSpeedUp = 1.6
	patience    = 10 * time.Minute
	leastLink   = 0.9  // of the rate, by a raw sender: below, the machine is too busy for figures
	mostOff     = 0.15 // of a fitted point
	shareRange  = 0.06 // around paperShare
)

// Check refuses what cannot be measured.
func (o *Options) Check() error {
	if o.Rounds < 0 {
		return fmt.Errorf("%d rounds: at least 1", o.Rounds)
	}
	if o.Bytes < 0 || o.Bytes%4 != 0 {
		return fmt.Errorf("%d bytes of float32", o.Bytes)
	}
	for _, n := range o.Nodes {
		if n < 2 || n > 16 {
			return fmt.Errorf("%d nodes: from 2 to 16", n)
		}
	}
	return nil
}

// doubt says why what was measured on a link that a raw sender got so much across is not to be trusted; "" when it is.
func doubt(link float64) string {
	if link < leastLink {
		return fmt.Sprintf("INVALID: a raw sender got only %.2f of the link's rate across: the machine is busy", link)
	}
	return ""
}

// add appends a row that was measured on the rig.
func (r *rig) add(to *report.Report, row report.Row, values, against []float64) {
	row.Note = both(row.Note, doubt(r.link))
	to.Add(row, values, against)
}

// both joins two notes, of which one or both may be empty.
func both(a, b string) string {
	if a == "" || b == "" || a == b {
		return max(a, b)
	}
	return a + "; " + b
}

// Run measures a ring of four beside the bound of its links, calibrates the model, and measures training steps beside it. After
// an error the report has what was complete.
func Run(ctx context.Context, o Options) (*report.Report, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	if o.Rounds == 0 {
		o.Rounds = 5
	}
	if o.Rate == 0 {
		o.Rate = 200e6
	}
	if o.Nodes == nil {
		o.Nodes = []int{2, 4, 6}
	}
	if o.Bytes == 0 {
		o.Bytes = 16 << 20
	}
	if o.mtus == nil {
		o.mtus = []int{1500, 9000}
	}
	if o.Log == nil {
		o.Log = io.Discard
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	r := report.New(o.Command)
	r.Title = "The ring of NICs"
	r.Machine.Driver, r.Machine.Mode = "veth behind tbf", "native"
	err := o.all(ctx, r)
	if err != nil {
		r.Interrupted = err.Error()
	}
	return r, err
}

// all measures everything, row by row.
func (o *Options) all(ctx context.Context, r *report.Report) error {
	if err := o.whole(ctx, r); err != nil {
		return err
	}
	sys, fitted, err := o.calibrated(ctx, r)
	if err != nil {
		return err
	}
	forward, err := o.compute(ctx, r)
	if err != nil {
		return err
	}
	for _, n := range o.Nodes {
		if err := o.steps(ctx, r, sys, fitted, n, forward); err != nil {
			return fmt.Errorf("%d nodes: %w", n, err)
		}
	}
	return o.forecast(r, sys, fitted, forward)
}

func (o *Options) rateString() string { return fmt.Sprintf("%dMbit", o.Rate/1e6) }

// whole measures one large all-reduce on a ring of four.
func (o *Options) whole(ctx context.Context, r *report.Report) (err error) {
	const n = 4
	bytes := float64(o.Bytes)
	for _, mtu := range o.mtus {
		err := func() (err error) {
			l, err := newRig(ctx, n, o.Rate, mtu)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, l.Close()) }()
			fmt.Fprintf(o.Log, "links of %s, MTU %d: a raw AF_XDP sender gets %.3f of the rate across\n", o.rateString(), mtu, l.link)
			l.add(r, report.Row{Name: fmt.Sprintf("link/%s/mtu%d", o.rateString(), mtu), Unit: "of the rate, by a raw sender"}, []float64{l.link}, nil)
			bound := 2 * float64(n-1) / n * bytes / (float64(o.Rate) / 8)
			var times, bounds, packed, tcp []float64
			if _, err := nicAllReduces(ctx, l.Lab, "none", 1<<18, 1); err != nil {
				return err
			}
			for range o.Rounds {
				d, err := nicAllReduces(ctx, l.Lab, "none", o.Bytes/4, 1)
				if err != nil {
					return err
				}
				e, err := nicAllReduces(ctx, l.Lab, "bfp16", o.Bytes/4, 1)
				if err != nil {
					return err
				}
				f, err := tcpAllReduces(l.Lab, l.tcp, o.Bytes/4, 1)
				if err != nil {
					return err
				}
				times, bounds = append(times, bytes/d.Seconds()/1e6), append(bounds, bytes/bound/1e6)
				packed, tcp = append(packed, bytes/e.Seconds()/1e6), append(tcp, bytes/f.Seconds()/1e6)
				fmt.Fprintf(o.Log, "ring of %d, MTU %d, %d KiB: %.3f of the bound without compression, %.2f times that with bfp16, %.3f over TCP\n",
					n, mtu, o.Bytes>>10, bound/d.Seconds(), d.Seconds()/e.Seconds(), bound/f.Seconds())
			}
			name := fmt.Sprintf("%d-nodes/%s/mtu%d/%dKiB", n, o.rateString(), mtu, o.Bytes>>10)
			row := report.Row{Name: "ring/" + name, Unit: "MB/s", Against: "2(N-1)/N * bytes / link rate", Bound: "headers, acknowledgements"}
			row.Goal = goalBound
			l.add(r, row, times, bounds)
			l.add(r, report.Row{Name: "tcp/" + name, Unit: "MB/s", Against: "2(N-1)/N * bytes / link rate"}, tcp, bounds)
			l.add(r, report.Row{Name: "ring+bfp16/" + name, Unit: "MB/s", Against: "ring/" + name, Bound: "2048 bytes in 544 are 3.76x"}, packed, times)
			return nil
		}()
		if err != nil {
			return fmt.Errorf("ring of %d, MTU %d: %w", n, mtu, err)
		}
	}
	return nil
}

// calibrated fits the model to all-reduces of four nodes. fitted says why its figures are not to be trusted, if so.
func (o *Options) calibrated(ctx context.Context, r *report.Report) (_ *plan.System, fitted string, err error) {
	c, err := Calibrate(ctx, CalibrateOptions{Rate: o.Rate, Rounds: o.Rounds, Log: o.Log, slices: o.slices})
	if err != nil {
		return nil, "", fmt.Errorf("calibrate: %w", err)
	}
	s := c.System
	fitted = doubt(c.Link)
	if c.Worst > mostOff {
		fitted = both(fitted, fmt.Sprintf("INVALID: the fitted figures are off by up to %.0f %%", 100*c.Worst))
	}
	fmt.Fprintf(o.Log, "calibrated: %.4f Gbit/s, %.0f us a hop; TCP %.3f of that, %.0f us a step; worst point off by %.1f %%\n",
		s.LinkGbit, s.HopUs, s.Naive.LinkShare, s.Naive.StepUs, 100*c.Worst)
	r.Add(report.Row{Name: "calibrated/link", Unit: "Mbit/s of float32, without compression", Note: fitted}, []float64{s.LinkGbit * 1e3}, nil)
	r.Add(report.Row{Name: "calibrated/hop", Unit: "us", Note: fitted}, []float64{s.HopUs}, nil)
	r.Add(report.Row{Name: "calibrated/tcp-share", Unit: "of that link", Note: fitted}, []float64{s.Naive.LinkShare}, nil)
	r.Add(report.Row{Name: "calibrated/tcp-step", Unit: "us", Note: fitted}, []float64{s.Naive.StepUs}, nil)
	return s, fitted, nil
}

// compute sets a layer's compute time from the time that the naive step communicates at 6 nodes.
func (o *Options) compute(ctx context.Context, r *report.Report) (_ time.Duration, err error) {
	l, err := newRig(ctx, paperNodes, o.Rate, 1500)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	var seconds []float64
	for range o.Rounds {
		d, err := tcpAllReduces(l.Lab, l.tcp, elements, layers)
		if err != nil {
			return 0, err
		}
		seconds = append(seconds, d.Seconds())
	}
	comm := report.Median(seconds)
	forward := time.Duration(comm * (1 - paperShare) / paperShare / (3 * layers) * 1e9)
	fmt.Fprintf(o.Log, "naive communication at %d nodes: %.0f ms; so a layer computes %v forward and %v backward, and communication is %.0f %%\n",
		paperNodes, comm*1e3, forward.Round(time.Microsecond), 2*forward.Round(time.Microsecond), 100*paperShare)
	l.add(r, report.Row{Name: "step/communication", Unit: "s, naive, 6 nodes"}, seconds, nil)
	l.add(r, report.Row{Name: "step/compute", Unit: "s a step, set so that communication is 51 % of the naive step"}, []float64{3 * layers * forward.Seconds()}, nil)
	return forward, nil
}

// planModes are the model's for each of modes.
func planModes() []plan.Mode {
	c, err := codec.ByName("bfp16")
	if err != nil {
		panic(err) // it is there
	}
	return []plan.Mode{{Kind: plan.Naive}, {Kind: plan.Overlapped}, {Kind: plan.NIC}, {Kind: plan.NIC, Ratio: c.Info().Ratio()}}
}

// steps measures the modes in turns, and sets the model beside them.
func (o *Options) steps(ctx context.Context, r *report.Report, sys *plan.System, fitted string, n int, forward time.Duration) (err error) {
	l, err := newRig(ctx, n, o.Rate, 1500)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	t, err := newTrainer(l)
	if err != nil {
		return err
	}
	t.forward = forward
	seconds := make([][]float64, len(modes))
	for round := range o.Rounds + 1 {
		for k, m := range modes {
			d, err := t.step(ctx, m)
			if err != nil {
				return err
			}
			if round == 0 {
				continue // windows open
			}
			seconds[k] = append(seconds[k], d.Seconds())
			fmt.Fprintf(o.Log, "step, %d nodes, %s: %.1f ms\n", n, m.name, d.Seconds()*1e3)
		}
	}
	name := func(k int) string { return fmt.Sprintf("step/%d-nodes/%s", n, modes[k].name) }
	for k := range modes {
		l.add(r, report.Row{Name: name(k), Unit: "s"}, seconds[k], nil)
	}
	shares := make([]float64, 0, o.Rounds)
	for _, naive := range seconds[0] {
		shares = append(shares, 1-3*layers*forward.Seconds()/naive)
	}
	fmt.Fprintf(o.Log, "step, %d nodes: communication was %.1f %% of the naive step\n", n, 100*report.Median(shares))
	l.add(r, report.Row{Name: fmt.Sprintf("step/%d-nodes/share", n), Unit: "of the naive step is communication"}, shares, nil)
	o.ceilings(l, r, n, forward, seconds)
	nicPacked := len(modes) - 1
	row := report.Row{Name: fmt.Sprintf("naive-over-bfp16/%d-nodes", n), Unit: "s naive", Against: name(nicPacked), Bound: ceiling(forward, seconds[0])}
	if n == paperNodes {
		row.Goal = goalSpeedUp
		if share := report.Median(shares); math.Abs(share-paperShare) > shareRange {
			row.Note = fmt.Sprintf("INVALID: communication was %.0f %% of the naive step, not %.0f", 100*share, 100*paperShare)
		}
	}
	l.add(r, row, seconds[0], seconds[nicPacked])
	l.add(r, report.Row{Name: fmt.Sprintf("overlapped-over-bfp16/%d-nodes", n), Unit: "s overlapped", Against: name(nicPacked), Bound: ceiling(forward, seconds[1])}, seconds[1], seconds[nicPacked])
	l.add(r, report.Row{Name: fmt.Sprintf("overlapped-over-nic/%d-nodes", n), Unit: "s overlapped", Against: name(2), Bound: ceiling(forward, seconds[1])}, seconds[1], seconds[2])
	for k, m := range planModes() {
		it, err := sys.Iterate(t.table(), n, 1, m)
		if err != nil {
			return err
		}
		within := 0.05
		if modes[k].codec == "" {
			within = 0.15
		}
		off := it.Total/report.Median(seconds[k]) - 1
		verdict := "yes"
		if math.Abs(off) > within {
			verdict = "no"
		}
		fmt.Fprintf(o.Log, "model, %d nodes, %s: %.1f ms, off by %+.1f %% (within %.0f %%: %s)\n", n, modes[k].name, it.Total*1e3, 100*off, 100*within, verdict)
		predicted := make([]float64, len(seconds[k]))
		for i := range predicted {
			predicted[i] = it.Total
		}
		l.add(r, report.Row{Name: fmt.Sprintf("model/%d-nodes/%s", n, modes[k].name), Unit: "s", Against: name(k),
			Bound: fmt.Sprintf("within %.0f %%: %s", 100*within, verdict), Note: fitted}, predicted, seconds[k])
	}
	return nil
}

// computeAlone is how long a step computes: no NIC makes a step shorter.
func computeAlone(forward time.Duration) float64 { return 3 * layers * forward.Seconds() }

// ceiling says how much any NIC could gain over software whose steps took so many seconds.
func ceiling(forward time.Duration, software []float64) string {
	return fmt.Sprintf("at most %.2fx: compute alone takes %.3f s", report.Median(software)/computeAlone(forward), computeAlone(forward))
}

// ceilings adds what software's steps take beside compute alone, the ceiling of every speed-up over them.
func (o *Options) ceilings(l *rig, r *report.Report, n int, forward time.Duration, seconds [][]float64) {
	for k := range 2 {
		alone := make([]float64, len(seconds[k]))
		for i := range alone {
			alone[i] = computeAlone(forward)
		}
		fmt.Fprintf(o.Log, "step, %d nodes: no NIC gains more over %s than that takes beside compute alone, %.2f\n", n, modes[k].name, report.Median(seconds[k])/alone[0])
		l.add(r, report.Row{Name: fmt.Sprintf("ceiling/%d-nodes/%s", n, modes[k].name), Unit: "s " + modes[k].name, Against: "compute alone",
			Bound: "the most that any NIC gains"}, seconds[k], alone)
	}
}

// forecast predicts 32 nodes.
func (o *Options) forecast(r *report.Report, sys *plan.System, fitted string, forward time.Duration) error {
	var total [4]float64
	least, err := sys.Least(scaledTable(forward), 1)
	if err != nil {
		return err
	}
	for k, m := range planModes() {
		it, err := sys.Iterate(scaledTable(forward), 32, 1, m)
		if err != nil {
			return err
		}
		total[k] = it.Total
	}
	fmt.Fprintf(o.Log, "32 nodes, predicted: with bfp16 %.2f times as fast as naive, %.2f as overlapped; the paper predicts 2.5\n",
		total[0]/total[3], total[1]/total[3])
	r.Add(report.Row{Name: "forecast/32-nodes/naive-over-bfp16", Unit: "s naive", Against: "the model's nic+bfp16",
		Bound: fmt.Sprintf("at most %.2fx; the paper predicts 2.5x", total[0]/least), Note: fitted}, total[:1], total[3:])
	r.Add(report.Row{Name: "forecast/32-nodes/overlapped-over-bfp16", Unit: "s overlapped", Against: "the model's nic+bfp16",
		Bound: fmt.Sprintf("at most %.2fx; the paper predicts 2.5x", total[1]/least), Note: fitted}, total[1:2], total[3:])
	return nil
}
