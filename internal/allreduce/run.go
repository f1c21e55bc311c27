package allreduce

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"gradnic/internal/npy"
	"gradnic/worker"
)

// MaxElements bounds a random array.
const MaxElements = 1 << 30

// Options say what a worker reduces.
type Options struct {
	// Worker is the worker's part; see there for its zero values.
	Worker worker.Config

	// Input is an .npy file of int32 or float32; "{rank}" in its name stands for
	// the rank. Otherwise Random has the lengths of random arrays, made from Seed.
	Input  string
	Random []int
	Seed   uint64
	// Output takes the sum, the last one, as an .npy file; "{rank}" in its name stands for the rank, "" for none.
	Output string
	// Type is int32 or float32; "" is the file's type, and float32 for random arrays.
	Type string
	// Iterations are timed and checked, after Warmup that are only checked. At
	// least one iteration.
	Iterations, Warmup int
	// Check compares every element of every sum with what it must be.
	Check bool
	// Deadline bounds each all-reduce; 0 waits for ever, as SwitchML does.
	Deadline time.Duration
	// JoinTimeout bounds joining, which waits for all workers; 0 is Deadline.
	JoinTimeout time.Duration
}

// Validate says whether Run would take the options.
func (o *Options) Validate() error {
	switch {
	case o.Input == "" && len(o.Random) == 0:
		return errors.New("nothing to reduce: give an input file, or the length of a random array")
	case o.Input != "" && len(o.Random) > 0:
		return errors.New("an input file and a random array exclude each other")
	case o.Type != "" && o.Type != typeInt32 && o.Type != typeFloat32:
		return fmt.Errorf("type %q: legal are %s, %s", o.Type, typeInt32, typeFloat32)
	case o.Iterations < 1:
		return fmt.Errorf("%d iterations: at least 1", o.Iterations)
	case o.Warmup < 0:
		return fmt.Errorf("%d iterations to warm up: at least 0", o.Warmup)
	case o.Deadline < 0:
		return fmt.Errorf("deadline %v is negative", o.Deadline)
	case o.JoinTimeout < 0:
		return fmt.Errorf("join timeout %v is negative", o.JoinTimeout)
	case o.Check && o.Input != "" && o.Worker.Workers > 1 && !strings.Contains(o.Input, rankMark):
		return fmt.Errorf("to check sums, the files of all ranks are read: write %s for the rank in the input's name", rankMark)
	}
	for _, n := range o.Random {
		if n < 0 || n > MaxElements {
			return fmt.Errorf("random array of %d elements: legal are 0 to %d", n, MaxElements)
		}
	}
	return nil
}

// Run joins the session and reduces. The report is there also with an error, and
// says how far it came; wrong elements are an error.
func Run(ctx context.Context, o Options) (*Report, error) {
	if err := o.Validate(); err != nil {
		return &Report{Error: err.Error()}, err
	}
	if o.Type == "" {
		o.Type = typeFloat32
		if o.Input != "" {
			var err error
			if o.Type, err = typeOf(rankedName(o.Input, o.Worker.Rank)); err != nil {
				return &Report{Error: err.Error()}, err
			}
		}
	}
	r := &Report{Rank: o.Worker.Rank, Workers: o.Worker.Workers, Type: ncclName(o.Type), Checked: o.Check}
	var err error
	if o.Type == typeInt32 {
		err = run(ctx, &o, r, (*worker.Worker).AllReduceInt32, worker.CheckInt32)
	} else {
		err = run(ctx, &o, r, (*worker.Worker).AllReduceFloat32, func(got []float32, in [][]float32) worker.Check {
			return worker.CheckFloat32(got, in, r.PacketElements, r.Threads)
		})
	}
	if err == nil && r.wrong() > 0 {
		err = wrongSums(r.wrong(), o.Worker.Controller)
	}
	if err != nil {
		r.Error = err.Error()
	}
	r.OK = err == nil
	return r, err
}

// wrongSums is the error of sums that are not what they should be.
func wrongSums(n int64, controller string) error {
	if controller == "" { // nobody has said to the NIC where this run begins
		return fmt.Errorf("%d elements of the sums are wrong: without a controller a job is for one run of its workers, or its slots are not where they begin (gradnic remove job, install job)", n)
	}
	return fmt.Errorf("%d elements of the sums are wrong", n)
}

func run[T npy.Element](ctx context.Context, o *Options, r *Report,
	reduce func(*worker.Worker, context.Context, []T, []T) (worker.Stats, error), check func([]T, [][]T) worker.Check) (err error) {
	// Before joining: who cannot read or write must not make the others wait.
	if err := canHold(rankedName(o.Output, o.Worker.Rank)); err != nil {
		return err
	}
	var sources []source[T]
	if o.Input != "" {
		sources = append(sources, fromFiles[T](o.Input))
	}
	for _, n := range o.Random {
		sources = append(sources, fromSeed[T](o.Seed, n))
	}
	type arrays struct {
		mine  []T
		every [][]T
	}
	inputs := make([]arrays, len(sources))
	for i, s := range sources {
		if inputs[i].mine, inputs[i].every, err = s.load(o.Worker.Rank, o.Worker.Workers, o.Check); err != nil {
			return err
		}
	}
	joining, cancel := bounded(ctx, cmp.Or(o.JoinTimeout, o.Deadline))
	w, err := worker.Join(joining, o.Worker)
	cancel()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	c := w.Config()
	r.PacketElements, r.Threads, r.Outstanding = c.Elements, c.Threads, c.Outstanding

	var out []T
	for _, in := range inputs {
		out = make([]T, len(in.mine))
		row := newRow(len(in.mine), r)
		for i := range o.Warmup + o.Iterations {
			clear(out) // what an earlier sum left would pass the check
			stats, err := one(ctx, o.Deadline, func(ctx context.Context) (worker.Stats, error) { return reduce(w, ctx, out, in.mine) })
			if err != nil {
				return err
			}
			if i >= o.Warmup {
				row.time(stats)
			}
			if o.Check {
				row.check(check(out, in.every))
			}
		}
		row.finish()
		r.Rows = append(r.Rows, row)
	}
	if o.Output != "" {
		return npy.Save(rankedName(o.Output, o.Worker.Rank), out)
	}
	return nil
}

func one(ctx context.Context, deadline time.Duration, reduce func(context.Context) (worker.Stats, error)) (worker.Stats, error) {
	ctx, cancel := bounded(ctx, deadline)
	defer cancel()
	stats, err := reduce(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w: gradnic show job at the NIC names the ranks that it waits for", err)
	}
	return stats, err
}
