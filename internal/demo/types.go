package demo

import (
	"context"
	endian "encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"gradnic/aggregation"
	"gradnic/aggregation/kernel"
	"gradnic/dataplane"
	"gradnic/internal/element"
	"gradnic/worker"
	"gradnic/worker/native"
)

// Types are the element types that the native protocol carries, in the order in which they are shown.
var Types = []aggregation.Type{
	aggregation.Int32, aggregation.Int64, aggregation.Int8,
	aggregation.Float32, aggregation.Float64, aggregation.Float16, aggregation.BFloat16, aggregation.BFP16,
}

// ParseTypes reads "all", or names of types separated by commas.
func ParseTypes(s string) ([]aggregation.Type, error) {
	if s == "all" {
		return Types, nil
	}
	var types []aggregation.Type
	for _, name := range strings.Split(s, ",") {
		t, err := aggregation.ParseType(name)
		if err != nil || !slices.Contains(Types, t) {
			return nil, fmt.Errorf("element type %q: legal are all, or of %v", name, Types)
		}
		types = append(types, t)
	}
	return types, nil
}

// nativePayload is the bytes of values in a packet of 1500 bytes: less IPv4, UDP and the native header.
const nativePayload = 1500 - 28 - 32

// RunTypes sums the gradients in each of the types over the native protocol: once as contributions arrive, and shuffles
// times by rank, with the workers starting in another order each time. Integers must be exact, floats within the stated
// bound, and what was added by rank the same to the last bit in every run, and as computed here. Options.Elements, Iterations
// and Mode are as for Run, but Elements does not count.
func RunTypes(ctx context.Context, o Options, types []aggregation.Type, shuffles int) (*TypesReport, error) {
	r := &TypesReport{Rows: []TypeRow{}}
	err := r.conduct(ctx, &o, shuffles, &r.NIC, func(n *seriesNIC) error { return n.types(ctx, r, types, shuffles) })
	return r, err
}

func (n *seriesNIC) types(ctx context.Context, r *TypesReport, types []aggregation.Type, shuffles int) error {
	for i, t := range types {
		for _, order := range []aggregation.Order{aggregation.Arrival, aggregation.Ranked} {
			runs := 1
			if order == aggregation.Ranked {
				runs = shuffles
			}
			job := nativeJob(t, n.o.Workers)
			job.Name = fmt.Sprintf("%v-%v", t, order)
			job.Native.ID, job.Native.Order = uint16(2*i+int(order)+1), order
			row, err := n.oneType(ctx, job, runs)
			r.Rows = append(r.Rows, row)
			if err != nil {
				return fmt.Errorf("%v in order %v: %w", t, order, err)
			}
		}
	}
	for _, row := range r.Rows {
		if row.Wrong > 0 || row.Differing > 0 {
			return fmt.Errorf("%d elements of %s are wrong, %d differ between runs", row.Wrong, row.Type, row.Differing)
		}
	}
	return nil
}

// nativeJob is a job of a type in frames of 1500 bytes.
func nativeJob(t aggregation.Type, workers int) dataplane.JobSpec {
	spec := &dataplane.NativeSpec{Type: t}
	return dataplane.JobSpec{
		Protocol: dataplane.ProtocolNative, Workers: workers, Elements: spec.FitElements(workers, nativePayload), Slots: 256, Native: spec,
	}
}

// startNIC makes the fabric and a NIC on it. stop ends both and gives the NIC's counters.
func startNIC(ctx context.Context, o *Options) (nic *dataplane.NIC, f fabric, stop func(*dataplane.Counters) error, err error) {
	if o.Transport == XDP {
		f, err = newVethFabric(o)
	} else {
		f = newMemFabric(o)
	}
	if err != nil {
		return nil, nil, nil, err
	}
	nic, err = dataplane.New(dataplane.Config{MAC: nicMAC, IP: nicIP, FramesPerQueue: f.framesPerQueue(), Seed: o.Seed, Logger: o.Logger}, f.ports()...)
	if err == nil {
		err = nic.Start(ctx)
	}
	if err != nil {
		return nil, nil, nil, errors.Join(fmt.Errorf("start the NIC: %w", err), f.close())
	}
	return nic, f, func(c *dataplane.Counters) error {
		ctx, cancel := context.WithTimeout(context.Background(), stopDeadline)
		defer cancel()
		err := nic.Stop(ctx)
		last := nic.Snapshot()
		*c = last.Total
		return errors.Join(err, last.Check(), f.close())
	}, nil
}

func (n *seriesNIC) oneType(ctx context.Context, job dataplane.JobSpec, runs int) (TypeRow, error) {
	t := job.Native.Type
	row := TypeRow{Type: t.String(), Order: job.Native.Order.String(), Runs: runs, PacketElements: job.Elements, Exact: t < aggregation.Float32}
	err := n.with(ctx, job, &row.Resent, func(ctx context.Context, ws []*native.Worker) (err error) {
		row, err = reduceAs(ctx, ws, job, n.inputs, row)
		return err
	})
	return row, err
}

// reduceAs runs the sums of a row in its type.
func reduceAs(ctx context.Context, ws []*native.Worker, job dataplane.JobSpec, inputs [][]float32, row TypeRow) (TypeRow, error) {
	switch job.Native.Type {
	case aggregation.Int32:
		return reduceType[int32](ctx, ws, job, inputs, row)
	case aggregation.Int64:
		return reduceType[int64](ctx, ws, job, inputs, row)
	case aggregation.Int8:
		return reduceType[int8](ctx, ws, job, inputs, row)
	case aggregation.Float32:
		return reduceType[float32](ctx, ws, job, inputs, row)
	case aggregation.Float64:
		return reduceType[float64](ctx, ws, job, inputs, row)
	case aggregation.BFP16:
		model, err := newBlockModel(job, inputs)
		if err != nil {
			return row, err
		}
		return reduceModel(ctx, ws, job, model, row)
	}
	return reduceType[uint16](ctx, ws, job, inputs, row)
}

// joinNative brings the workers of a job together. leave, which is there also with an error, closes them and adds up what they
// sent again.
func joinNative(ctx context.Context, o *Options, f fabric, job dataplane.JobSpec) (ws []*native.Worker, leave func(resent *uint64) error, err error) {
	ws = make([]*native.Worker, o.Workers)
	err = atOnce(o.Workers, func(rank int) error {
		var way worker.Config
		if err := f.attach(rank, &way); err != nil {
			return err
		}
		w, err := native.Join(ctx, native.Config{
			Rank: rank, Job: job.Native.ID, Workers: o.Workers, NIC: nicIP, NICMAC: nicMAC, IP: workerIP(rank), MAC: workerMAC(rank),
			Link: link(way), Conn: way.Conn,
		})
		ws[rank] = w
		return err
	})
	return ws, func(resent *uint64) (err error) {
		for _, w := range ws {
			if w != nil {
				*resent += w.Counts().Resent
				err = errors.Join(err, w.Close())
			}
		}
		return err
	}, err
}

// link keeps a nil interface nil.
func link(c worker.Config) interface {
	Send([]byte) error
	Recv([]byte, time.Time) (int, error)
} {
	if c.Link == nil {
		return nil
	}
	return c.Link
}

func reduceType[T native.Element](ctx context.Context, ws []*native.Worker, job dataplane.JobSpec, inputs [][]float32, row TypeRow) (TypeRow, error) {
	model, err := newTypeModel[T](job, inputs)
	if err != nil {
		return row, err
	}
	return reduceModel(ctx, ws, job, model, row)
}

// reduceModel runs the all-reduces of a row and compares what comes out with the model.
func reduceModel[T native.Element](ctx context.Context, ws []*native.Worker, job dataplane.JobSpec, model *typeModel[T], row TypeRow) (TypeRow, error) {
	row.Bound = model.maxBound
	out := make([][]T, len(ws))
	for rank := range out {
		out[rank] = make([]T, len(model.sum))
	}
	var before []byte
	var times []time.Duration
	r := rand.New(rand.NewPCG(1, uint64(job.Native.ID)))
	for range row.Runs {
		turn := r.Perm(len(ws))
		started := time.Now()
		if err := atOnce(len(ws), func(rank int) error {
			clear(out[rank])
			time.Sleep(time.Duration(turn[rank]) * 100 * time.Microsecond)
			_, err := native.AllReduce(ctx, ws[rank], out[rank], model.in[rank])
			return err
		}); err != nil {
			return row, err
		}
		times = append(times, time.Since(started))
		first := bytesOf(out[0])
		for rank := range out {
			b := first
			if rank > 0 {
				b = bytesOf(out[rank])
				row.Differing += differ(first, b, size(model.typ))
			}
			wrong, off := model.check(b)
			row.Wrong += wrong
			row.MaxErr = max(row.MaxErr, off)
		}
		if job.Native.Order == aggregation.Ranked {
			row.Differing += differ(model.ranked, first, size(model.typ))
			if before != nil {
				row.Differing += differ(before, first, size(model.typ))
			}
			before = first
		}
	}
	slices.Sort(times)
	row.TimeUs = float64(times[len(times)/2].Nanoseconds()) / 1000
	return row, nil
}

// atOnce runs f for each rank and returns the errors of all.
func atOnce(n int, f func(rank int) error) error {
	errs := make([]error, n)
	var g sync.WaitGroup
	for rank := range n {
		g.Go(func() {
			if err := f(rank); err != nil {
				errs[rank] = fmt.Errorf("rank %d: %w", rank, err)
			}
		})
	}
	g.Wait()
	return errors.Join(errs...)
}

// typeModel is what the workers send in a type, and what must come of it.
type typeModel[T native.Element] struct {
	typ      aggregation.Type // of the arrays
	in       [][]T
	sum      []float64 // of what is sent, exactly or nearly so
	bound    []float64
	maxBound float64
	ranked   []byte // the result in order of rank
}

// newTypeModel brings the gradients into a type: scaled for the integers, such that the sum of all workers fits.
func newTypeModel[T native.Element](job dataplane.JobSpec, inputs [][]float32) (*typeModel[T], error) {
	t := job.Native.Type
	n := len(inputs[0])
	m := &typeModel[T]{typ: t, sum: make([]float64, n), bound: make([]float64, n), ranked: make([]byte, n*size(t))}
	var largest float64
	for _, in := range inputs {
		for _, v := range in {
			largest = max(largest, math.Abs(float64(v)))
		}
	}
	scale := 1.0
	switch t {
	case aggregation.Int8:
		scale = math.Floor(127/float64(len(inputs))) / largest
	case aggregation.Int32:
		scale = math.Floor(math.MaxInt32/float64(len(inputs))) / largest
	case aggregation.Int64:
		scale = 0x1p50 / largest // the sums are exact in float64
	}
	wire := make([][]byte, len(inputs))
	magnitude := make([]float64, n)
	for rank, in := range inputs {
		b, err := encode(t, in, scale)
		if err != nil {
			return nil, err
		}
		wire[rank] = b
		v := make([]T, n)
		valuesOf(v, b)
		m.in = append(m.in, v)
		for i, x := range decode(t, b) {
			m.sum[i] += x
			magnitude[i] += math.Abs(x)
		}
	}
	spec := aggregation.Spec{
		Rule: aggregation.Rounds, Workers: len(inputs), Slots: 1, Elements: job.Elements, Type: t, ByteOrder: aggregation.LittleEndian, Order: aggregation.Ranked,
	}
	spec.Bound(m.bound, magnitude, len(inputs))
	for i := range m.bound {
		m.bound[i] += magnitude[i] * 0x1p-49 // the sum here is rounded, too
		m.maxBound = max(m.maxBound, m.bound[i])
	}
	if t < aggregation.Float32 {
		clear(m.bound)
		m.maxBound = 0
	}
	for lo := 0; lo < n; lo += job.Elements {
		spec.Elements = min(job.Elements, n-lo)
		parts := make([][]byte, len(wire))
		for rank := range wire {
			parts[rank] = wire[rank][lo*size(t) : (lo+spec.Elements)*size(t)]
		}
		if _, err := aggregation.Reference(spec, parts, m.ranked[lo*size(t):]); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// check counts the elements that are out of bound.
func (m *typeModel[T]) check(result []byte) (wrong int, largest float64) {
	for i, v := range decode(m.typ, result) {
		off := math.Abs(v - m.sum[i])
		if !(off <= m.bound[i]) {
			wrong++
			off = min(off, math.MaxFloat64)
		}
		largest = max(largest, off)
	}
	return wrong, largest
}

func size(t aggregation.Type) int { return aggregation.Spec{Elements: 1, Type: t}.WireBytes() }

// encode brings values into the wire's bytes.
func encode(t aggregation.Type, v []float32, scale float64) ([]byte, error) {
	b := make([]byte, 0, len(v)*size(t))
	switch t {
	case aggregation.Float16, aggregation.BFloat16:
		k := kernel.Float16
		if t == aggregation.BFloat16 {
			k = kernel.BFloat16
		}
		ops, err := kernel.For[float32](kernel.Spec{Type: k, Order: kernel.LittleEndian})
		if err != nil {
			return nil, err
		}
		b = b[:len(v)*2]
		ops.Put(b, v)
		return b, nil
	}
	for _, x := range v {
		y := math.RoundToEven(float64(x) * scale)
		switch t {
		case aggregation.Int8:
			b = append(b, byte(int8(y)))
		case aggregation.Int32:
			b = endian.LittleEndian.AppendUint32(b, uint32(int32(y)))
		case aggregation.Int64:
			b = endian.LittleEndian.AppendUint64(b, uint64(int64(y)))
		case aggregation.Float32:
			b = endian.LittleEndian.AppendUint32(b, math.Float32bits(x))
		case aggregation.Float64:
			b = endian.LittleEndian.AppendUint64(b, math.Float64bits(float64(x)))
		}
	}
	return b, nil
}

// decode reads wire bytes as numbers.
func decode(t aggregation.Type, b []byte) []float64 {
	v := make([]float64, 0, len(b)/size(t))
	for ; len(b) > 0; b = b[size(t):] {
		v = append(v, element.Type(t).Value(b))
	}
	return v
}

// bytesOf and valuesOf are the wire's bytes of a slice and back.
func bytesOf[T native.Element](v []T) []byte {
	b, err := endian.Append(nil, endian.LittleEndian, v)
	if err != nil {
		panic(err) // all of T have a fixed size
	}
	return b
}

func valuesOf[T native.Element](v []T, b []byte) {
	if _, err := endian.Decode(b, endian.LittleEndian, v); err != nil {
		panic(err) // as long as it is
	}
}

// differ counts the elements of two results that differ in any bit.
func differ(a, b []byte, size int) (n int) {
	for i := 0; i < len(a); i += size {
		if string(a[i:i+size]) != string(b[i:i+size]) {
			n++
		}
	}
	return n
}
