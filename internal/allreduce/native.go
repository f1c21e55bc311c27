package allreduce

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"gradnic/aggregation"
	"gradnic/internal/element"
	"gradnic/internal/ncclstyle"
	"gradnic/internal/npy"
	wire "gradnic/wire/native"
	"gradnic/worker/native"
)

// NativeOptions say what a worker of the native protocol reduces.
type NativeOptions struct {
	Worker native.Config
	// Type, Op and Order are what the job must have; "" takes what it has.
	Type, Op, Order string
	// Input is an .npy file of the job's element type; "{rank}" in its name stands for the rank. Otherwise Random has the
	// lengths of random arrays, made from Seed.
	Input  string
	Random []int
	Seed   uint64
	Output string // as Options.Output
	// Iterations are timed and checked, after Warmup that are only checked.
	Iterations, Warmup int
	Check              bool
	// Feedback takes error feedback where the job's codec is meant to be used with it.
	Feedback bool
	// Deadline bounds each all-reduce and joining; 0 waits as long as the job does.
	Deadline time.Duration
	// JoinTimeout bounds joining alone; 0 is Deadline.
	JoinTimeout time.Duration
}

// Validate says whether RunNative would take the options.
func (o *NativeOptions) Validate() error {
	base := Options{Input: o.Input, Random: o.Random, Iterations: o.Iterations, Warmup: o.Warmup, Deadline: o.Deadline, JoinTimeout: o.JoinTimeout, Check: o.Check}
	base.Worker.Workers = 2
	if err := base.Validate(); err != nil {
		return err
	}
	if o.Type != "" {
		if _, err := aggregation.ParseType(o.Type); err != nil {
			return err
		}
	}
	if o.Op != "" {
		if _, err := aggregation.ParseOp(o.Op); err != nil {
			return err
		}
	}
	if o.Order != "" {
		if _, err := aggregation.ParseOrder(o.Order); err != nil {
			return err
		}
	}
	return nil
}

// NativeReport is what a run measured at this worker. Its JSON is documented in docs/json.md.
type NativeReport struct {
	OK    bool       `json:"ok"`
	Error string     `json:"error,omitempty"`
	Rank  int        `json:"rank"`
	Job   native.Job `json:"job"`
	Type  string     `json:"type"`
	Op    string     `json:"op"`
	Order string     `json:"order"`
	// Feedback says that what the codec left out of one sum was added to the next one's contribution.
	Feedback bool          `json:"feedback"`
	Checked  bool          `json:"checked"`
	Rows     []NativeRow   `json:"rows"`
	Counts   native.Counts `json:"counts"`
}

// NativeRow is one array's length, over all iterations.
type NativeRow struct {
	Bytes    int64   `json:"size"`
	Elements int64   `json:"count"`
	TimeUs   float64 `json:"time_us"` // mean
	AlgBW    float64 `json:"algbw_gbps"`
	BusBW    float64 `json:"busbw_gbps"`
	Wrong    int64   `json:"wrong"` // over all iterations and those that warmed up; -1 if not checked
	MaxErr   float64 `json:"max_err"`
	Bound    float64 `json:"bound"`
	Flags    uint8   `json:"flags"` // of docs/protocol.md

	table ncclstyle.Row
}

// RunNative joins the job and reduces. The report is there also with an error, and says how far it came.
func RunNative(ctx context.Context, o NativeOptions) (*NativeReport, error) {
	r := &NativeReport{Rank: o.Worker.Rank, Checked: o.Check, Rows: []NativeRow{}}
	err := o.Validate()
	if err == nil {
		err = runNative(ctx, &o, r)
	}
	if err == nil {
		for _, row := range r.Rows {
			if row.Wrong > 0 {
				err = fmt.Errorf("%d elements of the sums are wrong", row.Wrong)
			}
		}
	}
	if err != nil {
		r.Error = err.Error()
	}
	r.OK = err == nil
	return r, err
}

func runNative(ctx context.Context, o *NativeOptions, r *NativeReport) (err error) {
	// Before joining: who cannot read or write must not make the others wait.
	if o.Input != "" {
		if _, err := npy.Stat(rankedName(o.Input, o.Worker.Rank)); err != nil {
			return fmt.Errorf("input file: %w", err)
		}
	}
	if err := canHold(rankedName(o.Output, o.Worker.Rank)); err != nil {
		return err
	}
	joining, cancel := bounded(ctx, cmp.Or(o.JoinTimeout, o.Deadline))
	w, err := native.Join(joining, o.Worker)
	cancel()
	if err != nil {
		return err
	}
	defer func() {
		r.Counts = w.Counts()
		err = errors.Join(err, w.Close())
	}()
	r.Job = w.Job()
	r.Type, r.Op, r.Order = r.Job.Type.String(), r.Job.Op.String(), "arrival"
	if r.Job.Ranked {
		r.Order = "ranked"
	}
	for _, f := range []struct{ name, want, is string }{{"elements", o.Type, r.Type}, {"operation", o.Op, r.Op}, {"order", o.Order, r.Order}} {
		if f.want != "" && f.want != f.is {
			return fmt.Errorf("the job's %s: %s, not %s: install it so, or ask for what it is", f.name, f.is, f.want)
		}
	}
	if err := files(o, r.Job.Type); err != nil {
		return err
	}
	switch r.Job.Type {
	case wire.Int32:
		err = reduceNative[int32](ctx, o, r, w)
	case wire.Int64:
		err = reduceNative[int64](ctx, o, r, w)
	case wire.Int8:
		err = reduceNative[int8](ctx, o, r, w)
	case wire.Float32, wire.BFP16:
		err = reduceNative[float32](ctx, o, r, w)
	case wire.Float64:
		err = reduceNative[float64](ctx, o, r, w)
	default:
		err = reduceNative[uint16](ctx, o, r, w)
	}
	if err != nil {
		return err
	}
	// Nobody leaves before all have everything. That one of them does not hear so any more is no error.
	last, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	_, _ = native.Barrier(last, w)
	return nil
}

func bounded(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if d <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, d)
}

func reduceNative[T native.Element](ctx context.Context, o *NativeOptions, r *NativeReport, w *native.Worker) error {
	lengths := o.Random
	if o.Input != "" {
		lengths = []int{-1}
	}
	var out []T
	c, err := NewCoded(r.Job, o.Worker.Seed, o.Feedback)
	if err != nil {
		return err
	}
	r.Feedback = c != nil && c.feedback
	for _, n := range lengths {
		every, err := nativeInputs[T](o, r, n)
		if err != nil {
			return err
		}
		mine := every[o.Worker.Rank]
		n = len(mine)
		out = make([]T, n)
		size := max(r.Job.Type.Size(), nativeSize[T]())
		row := NativeRow{Bytes: int64(n * size), Elements: int64(n), Wrong: -1}
		if o.Check {
			row.Wrong = 0
		}
		reduce := func(ctx context.Context) (native.Stats, error) { return native.AllReduce(ctx, w, out, mine) }
		check := func() error { return checkNative(&row, r, out, every) }
		if c != nil {
			all, in, sum := any(every).([][]float32), any(mine).([]float32), any(out).([]float32)
			f, err := c.begin(w, all, n)
			if err != nil {
				return err
			}
			if f != nil {
				defer f.Close()
			}
			reduce = func(ctx context.Context) (native.Stats, error) { return c.reduce(ctx, w, sum, in, f) }
			check = func() error { return c.check(&row, sum, all) }
		}
		var total time.Duration
		for i := range o.Warmup + o.Iterations {
			clear(out)
			one, cancel := bounded(ctx, o.Deadline)
			stats, err := reduce(one)
			cancel()
			if err != nil {
				return err
			}
			row.Flags |= uint8(stats.Flags)
			if i >= o.Warmup {
				total += stats.Elapsed
			}
			if o.Check {
				if err := check(); err != nil {
					return err
				}
			}
		}
		row.table = ncclstyle.Row{Bytes: row.Bytes, Elements: row.Elements, Type: r.Type, RedOp: r.Op, Ranks: r.Job.Workers, Time: total / time.Duration(o.Iterations), Wrong: row.Wrong}
		row.TimeUs = float64(row.table.Time.Nanoseconds()) / 1e3
		row.AlgBW, row.BusBW = row.table.AlgBW(), row.table.BusBW()
		r.Rows = append(r.Rows, row)
	}
	if o.Output == "" {
		return nil
	}
	return npy.Save(rankedName(o.Output, o.Worker.Rank), out)
}

// files says whether a job's elements can be in a file.
func files(o *NativeOptions, t wire.Type) error {
	if t == wire.BFloat16 && (o.Input != "" || o.Output != "") {
		return errors.New("the job's elements are bfloat16, which .npy files cannot hold: take random arrays and no output, or another job")
	}
	return nil
}

// nativeSize is the bytes of an element in memory.
func nativeSize[T native.Element]() int {
	var zero T
	return binary.Size(zero)
}

// nativeInputs makes this rank's array, and with a check that of every rank, by rank.
func nativeInputs[T native.Element](o *NativeOptions, r *NativeReport, n int) ([][]T, error) {
	every := make([][]T, r.Job.Workers)
	for rank := range every {
		if rank != o.Worker.Rank && !o.Check {
			continue
		}
		var err error
		if o.Input == "" {
			every[rank] = randomNative[T](r.Job.Type, o.Seed, rank, n)
		} else if every[rank], err = npy.Load[T](rankedName(o.Input, rank)); err != nil {
			return nil, err
		}
		if o.Check && len(every[rank]) != len(every[0]) {
			return nil, fmt.Errorf("rank %d has %d elements, rank 0 has %d: all-reduce needs arrays of one length", rank, len(every[rank]), len(every[0]))
		}
	}
	return every, nil
}

// randomNative makes integers over their whole range, and floats from a normal distribution.
func randomNative[T native.Element](t wire.Type, seed uint64, rank, n int) []T {
	out := make([]T, n)
	fillRandom(out, seed, rank, n)
	if half, ok := any(out).([]uint16); ok && t == wire.Float16 {
		// The same value in 5 bits of exponent and as much of the significand as there is.
		for i, b := range half {
			exp := int(b>>7&255) - 127 + 15
			half[i] = b>>15<<15 | uint16(min(max(exp, 1), 30))<<10 | b&127<<3
		}
	}
	return out
}

// checkNative compares a result with what the workers' values give by rank: to the bit, or for floats in order of arrival
// within twice the bound of any order.
func checkNative[T native.Element](row *NativeRow, r *NativeReport, got []T, every [][]T) error {
	j := r.Job
	spec := aggregation.Spec{
		Rule: aggregation.Rounds, Workers: len(every), Slots: 1, Type: aggregation.Type(j.Type), Op: aggregation.Op(j.Op),
		ByteOrder: aggregation.LittleEndian, Order: aggregation.Ranked,
	}
	if j.Saturate {
		spec.Policy = aggregation.Saturate
	}
	typ := element.Type(j.Type)
	size := typ.Size()
	for lo := 0; lo < len(got); lo += aggregation.MaxElements {
		hi := min(lo+aggregation.MaxElements, len(got))
		spec.Elements = hi - lo
		parts := make([][]byte, len(every))
		magnitudes := make([]float64, hi-lo)
		for rank := range every {
			parts[rank] = nativeBytes(every[rank][lo:hi])
			for i := range magnitudes {
				magnitudes[i] += math.Abs(typ.Value(parts[rank][i*size:]))
			}
		}
		want := make([]byte, (hi-lo)*size)
		if _, err := aggregation.Reference(spec, parts, want); err != nil {
			return err
		}
		bounds := make([]float64, hi-lo)
		if !j.Ranked && spec.Type >= aggregation.Float32 {
			spec.Bound(bounds, magnitudes, len(every))
		}
		is := nativeBytes(got[lo:hi])
		for i, b := range bounds {
			row.Bound = max(row.Bound, 2*b)
			x, y := is[i*size:(i+1)*size], want[i*size:(i+1)*size]
			if string(x) == string(y) {
				continue
			}
			off := math.Abs(typ.Value(x) - typ.Value(y))
			if !(off <= 2*b) || off == 0 && b == 0 {
				row.Wrong++
				off = min(off, math.MaxFloat64)
			}
			row.MaxErr = max(row.MaxErr, off)
		}
	}
	return nil
}

func nativeBytes[T native.Element](v []T) []byte {
	b, err := binary.Append(nil, binary.LittleEndian, v)
	if err != nil {
		panic(err) // all of T have a fixed size
	}
	return b
}

// Table writes the report for people.
func (r *NativeReport) Table(w io.Writer) error {
	p := &printer{w: w}
	p.printf("# rank %d of %d, native protocol, %s of %s, order %s, %d elements a packet, %d slots\n", r.Rank, r.Job.Workers, r.Op, r.Type, r.Order, r.Job.Elements, r.Job.Slots)
	if r.Job.Codec != "none" || r.Job.Result != "none" {
		feedback := ""
		if r.Feedback {
			feedback = ", with error feedback"
		}
		p.printf("# codec %s, results %s%s; sizes are before compression\n", r.Job.Codec, r.Job.Result, feedback)
	}
	p.do(ncclstyle.WriteHeader(w))
	for _, row := range r.Rows {
		p.do(row.table.Write(w))
	}
	c := r.Counts
	p.printf("# packets %d, resent %d (%d timeouts); ignored: %d duplicate, %d stale, %d foreign; socket errors %d\n", c.Packets, c.Resent, c.Timeouts, c.Duplicates, c.Stale, c.Foreign, c.Socket)
	if c.Epochs > 1 {
		p.printf("# the network lost its memory %d times: %d results supplied, %d relayed\n", c.Epochs-1, c.Supplied, c.Relayed)
	}
	for _, row := range r.Rows {
		if flags := flagNames(wire.Flags(row.Flags)); flags != "" {
			p.printf("# %d: the results are %s\n", row.Elements, flags)
		}
		if r.Checked && row.Bound > 0 {
			p.printf("# %d: off the sum of what was sent, in order of rank, by at most %.3g, bound %.3g\n", row.Elements, row.MaxErr, row.Bound)
		}
	}
	return p.err
}

func flagNames(f wire.Flags) string {
	var names []string
	for _, n := range []struct {
		f wire.Flags
		s string
	}{{wire.FlagPartial, "PARTIAL"}, {wire.FlagSaturated, "SATURATED"}, {wire.FlagNonFinite, "NOT FINITE"}, {wire.FlagWrapped, "WRAPPED"}} {
		if f&n.f != 0 {
			names = append(names, n.s)
		}
	}
	return strings.Join(names, " and ")
}
