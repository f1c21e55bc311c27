package collective

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"gradnic/aggregation"
	"gradnic/bench/report"
	"gradnic/dataplane"
	"gradnic/wire/inet"
	wire "gradnic/wire/native"
	"gradnic/worker/native"
)

// SqueezeOptions say what Squeeze measures. The zero value is the table of docs/performance.md.
type SqueezeOptions struct {
	Rounds  int // of each codec; 0 means 9
	Log     io.Writer
	Command string
	Cases   []SqueezeCase // nil: the table's
}

// SqueezeCase is one kind of link, with an array that is summed in every step.
type SqueezeCase struct {
	Link    Link
	Workers int
	Bytes   int      // of float32
	Codecs  []string // beside none
}

var squeezeTable = []SqueezeCase{
	{Link: slow, Workers: 4, Bytes: 4 * mib, Codecs: []string{"bfp16", "mxfp8-e4m3", "mxfp4", "qsgd"}},
	{Link: fast, Workers: 2, Bytes: 16 * mib, Codecs: []string{"bfp16"}},
}

// Communication is to be 50 to 55 % of a step without compression, as in the measurement of SqueezeNIC that the claim of 1.21
// is about.
const (
	commLow, commHigh = 0.50, 0.55
	commAim           = 0.525
	squeezeGoal       = 1.21
)

// Squeeze measures the steps of a training over limited links: a computation, then an all-reduce of what came of it, without
// and with compression in turns. The computation is a wait, as long as an accelerator's would be that leaves the processor to the
// network; its length is chosen once, so that the all-reduce without compression is 52.5 % of a step, and kept for all. After an
// error the report has the cases that were complete.
func Squeeze(ctx context.Context, o SqueezeOptions) (*report.Report, error) {
	if o.Rounds < 0 {
		return nil, fmt.Errorf("%d rounds: at least one is needed", o.Rounds)
	}
	if o.Rounds == 0 {
		o.Rounds = 9
	}
	if o.Log == nil {
		o.Log = io.Discard
	}
	if o.Cases == nil {
		o.Cases = squeezeTable
	}
	r := report.New(o.Command)
	r.Title = "Steps with and without compression"
	r.Machine.Driver, r.Machine.Mode = "veth behind tbf", "native"
	for _, c := range o.Cases {
		if err := o.measure(ctx, r, c); err != nil {
			err = fmt.Errorf("%d workers at %v: %w", c.Workers, c.Link, err)
			r.Interrupted = err.Error()
			return r, err
		}
	}
	return r, nil
}

func (o *SqueezeOptions) measure(ctx context.Context, r *report.Report, c SqueezeCase) (err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	s, err := newStar(c.Workers, c.Link)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	invalid, err := s.checkLink(o.Log)
	if err != nil {
		return err
	}
	plain, err := s.startNIC(ctx, "")
	if err != nil {
		return err
	}
	var squeezed []*nic
	defer func() {
		for _, k := range squeezed {
			for _, w := range k.workers {
				if w != nil {
					err = errors.Join(err, w.Close())
				}
			}
		}
		err = errors.Join(err, plain.Close())
	}()
	for i, name := range c.Codecs {
		spec := &dataplane.NativeSpec{ID: uint16(i + 2), Type: aggregation.Float32, Codec: name}
		elements := spec.FitElements(c.Workers, c.Link.MTU-inet.IPv4Len-inet.UDPLen-wire.HeaderLen)
		k := &nic{n: plain.n}
		squeezed = append(squeezed, k)
		if k.workers, err = s.join(ctx, plain.n, dataplane.JobSpec{Name: name, Elements: elements, Native: spec}); err != nil {
			return fmt.Errorf("codec %s: %w", name, err)
		}
	}

	// The first sums open the windows; then the computation is chosen.
	n := c.Bytes / 4
	var alone []float64
	for range 4 {
		t, err := plain.step(ctx, n, 0)
		if err != nil {
			return err
		}
		alone = append(alone, t.Seconds())
	}
	compute := time.Duration(report.Median(alone[1:]) * (1 - commAim) / commAim * float64(time.Second))
	for _, k := range squeezed {
		if _, err := k.step(ctx, n, 0); err != nil {
			return err
		}
	}
	var without, part []float64
	with := make([][]float64, len(squeezed))
	for range o.Rounds {
		t, err := plain.step(ctx, n, compute)
		if err != nil {
			return err
		}
		without = append(without, t.Seconds())
		part = append(part, 1-compute.Seconds()/t.Seconds())
		for i, k := range squeezed {
			t, err := k.step(ctx, n, compute)
			if err != nil {
				return fmt.Errorf("codec %s: %w", c.Codecs[i], err)
			}
			with[i] = append(with[i], t.Seconds())
			fmt.Fprintf(o.Log, "%d workers, %v, %s: step %v with %s, %.3f s without\n", c.Workers, c.Link, bytesString(c.Bytes), t.Round(time.Millisecond), c.Codecs[i], without[len(without)-1])
		}
	}
	name := fmt.Sprintf("%d-workers/%v/%s", c.Workers, c.Link, bytesString(c.Bytes))
	if m := report.Median(part); m < commLow || m > commHigh {
		invalid = fmt.Sprintf("INVALID: communication was %.1f %% of the step without compression", 100*m)
	}
	r.Add(report.Row{Name: "communication/" + name, Unit: "of the step", Note: invalid}, part, nil)
	r.Add(report.Row{Name: "step/none/" + name, Unit: "s", Note: invalid}, without, nil)
	for i, codec := range c.Codecs {
		row := report.Row{Name: "steps/" + codec + "/" + name, Unit: "a second", Against: "step/none/" + name, Bound: "the computation, and the link's rate", Note: invalid}
		if codec == "bfp16" {
			row.Goal = squeezeGoal
		}
		rate, base := make([]float64, len(without)), make([]float64, len(without))
		for k := range without {
			rate[k], base[k] = 1/with[i][k], 1/without[k]
		}
		r.Add(row, rate, base)
	}
	return nil
}

// step is a computation and the sum of n float32 after it, from the moment at which all workers begin to that at which the last
// one has the result.
func (k *nic) step(ctx context.Context, n int, compute time.Duration) (time.Duration, error) {
	w := len(k.workers)
	src, dst := make([][]float32, w), make([][]float32, w)
	for i := range w {
		src[i], dst[i] = make([]float32, n), make([]float32, n)
		for j := range n {
			src[i][j] = float32(i+1) * float32(1-2*(j&1))
		}
	}
	if err := each(w, func(i int) error {
		_, err := native.Barrier(ctx, k.workers[i])
		return err
	}); err != nil {
		return 0, err
	}
	begin := time.Now()
	if err := each(w, func(i int) error {
		time.Sleep(compute)
		_, err := native.AllReduce(ctx, k.workers[i], dst[i], src[i])
		return err
	}); err != nil {
		return 0, err
	}
	t := time.Since(begin)
	job := k.workers[0].Job()
	total := float64(w*(w+1)) / 2
	off := 0.0
	switch job.Codec { // what the codecs may lose of these values, on both ways
	case "qsgd": // a level is sqrt(512)/127 of equal values
		off = total * 0.36
	case "mxfp4":
		off = total / 4
	case "mxfp8-e4m3":
		off = total / 16
	}
	for i := range w {
		for j, v := range dst[i] {
			if want := total * float64(1-2*(j&1)); float64(v) < want-off || float64(v) > want+off {
				return 0, fmt.Errorf("worker %d: element %d is %v, want %v", i, j, v, want)
			}
		}
	}
	return t, nil
}
