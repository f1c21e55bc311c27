package demo

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"gradnic/aggregation"
	"gradnic/codec"
	"gradnic/dataplane"
	"gradnic/internal/allreduce"
	"gradnic/worker/native"
)

// Codecs are the codecs that RunCodecs shows for "all".
var Codecs = []string{
	"none", "bfp16", "bfp16-intel", "fp16", "bf16", "mxfp8-e4m3", "mxfp8-e5m2", "mxfp4", "mxint8", "int8", "block16e8m4s", "topk", "qsgd", "lossless",
}

// ParseCodecs reads "all", or names of codecs separated by commas.
func ParseCodecs(s string) ([]string, error) {
	if s == "all" {
		return Codecs, nil
	}
	names := strings.Split(s, ",")
	for _, name := range names {
		if _, err := codec.ByName(name); err != nil {
			return nil, err
		}
	}
	return names, nil
}

// CodecsReport is what RunCodecs measured. Its JSON is documented in docs/json.md.
type CodecsReport struct {
	Series
	Rows []CodecRow         `json:"rows"`
	NIC  dataplane.Counters `json:"nic"`
}

// CodecRow is one codec in one order.
type CodecRow struct {
	Codec          string `json:"codec"`
	Result         string `json:"result_codec"`
	Order          string `json:"order"`
	Runs           int    `json:"runs"`
	PacketElements int    `json:"packet_elements"`
	// Packets is how many a worker sends for one sum; Ratio how many fewer than without a codec.
	Packets int     `json:"packets"`
	Ratio   float64 `json:"ratio"`
	// Wrong counts elements that are not what the contributions, as they were encoded, give; Differing those that differ in any
	// bit between workers, and in order ranked between runs.
	Wrong     int `json:"wrong"`
	Differing int `json:"differing"`
	// Loss is the sum of squared errors over the sum of squares (NMSE) of the result against the sum of the gradients
	// themselves: what the codec cost.
	Loss   float64 `json:"nmse"`
	TimeUs float64 `json:"time_us"` // median
	Resent uint64  `json:"resent"`
}

// RunCodecs sums the gradients over the native protocol with each of the codecs, once as contributions arrive and runs times by
// rank. What comes out must be what the workers' contributions as they were encoded give, and by rank the same bits in every run.
func RunCodecs(ctx context.Context, o Options, codecs []string, runs int) (*CodecsReport, error) {
	r := &CodecsReport{Rows: []CodecRow{}}
	err := r.conduct(ctx, &o, runs, &r.NIC, func(n *seriesNIC) error { return n.codecs(ctx, r, codecs, runs) })
	return r, err
}

func (n *seriesNIC) codecs(ctx context.Context, r *CodecsReport, codecs []string, runs int) error {
	for i, name := range codecs {
		for _, order := range []aggregation.Order{aggregation.Arrival, aggregation.Ranked} {
			spec := &dataplane.NativeSpec{ID: uint16(2*i + int(order) + 1), Type: aggregation.Float32, Order: order, Codec: name}
			job := dataplane.JobSpec{
				Name: fmt.Sprintf("%s-%v", strings.ReplaceAll(name, ":", "-"), order), Protocol: dataplane.ProtocolNative, Workers: n.o.Workers, Slots: 256,
				Elements: spec.FitElements(n.o.Workers, nativePayload), Native: spec,
			}
			times := 1
			if order == aggregation.Ranked {
				times = runs
			}
			row, err := n.codec(ctx, job, times)
			r.Rows = append(r.Rows, row)
			if err != nil {
				return fmt.Errorf("codec %s in order %v: %w", name, order, err)
			}
		}
	}
	for _, row := range r.Rows {
		if row.Wrong > 0 || row.Differing > 0 {
			return fmt.Errorf("codec %s: %d elements are wrong, %d differ between workers or runs", row.Codec, row.Wrong, row.Differing)
		}
	}
	return nil
}

func (n *seriesNIC) codec(ctx context.Context, job dataplane.JobSpec, runs int) (CodecRow, error) {
	row := CodecRow{Codec: job.Native.Codec, Order: job.Native.Order.String(), Runs: runs, PacketElements: job.Elements}
	err := n.with(ctx, job, &row.Resent, func(ctx context.Context, ws []*native.Worker) error {
		return row.measure(ctx, ws, job, n.inputs)
	})
	return row, err
}

// measure runs the sums of a row.
func (row *CodecRow) measure(ctx context.Context, ws []*native.Worker, job dataplane.JobSpec, inputs [][]float32) error {
	n := len(inputs[0])
	row.Result = ws[0].Job().Result
	row.Packets = (n + job.Elements - 1) / job.Elements
	row.Ratio = float64((n+nativePayload/4-1)/(nativePayload/4)) / float64(row.Packets)
	check, err := allreduce.NewCoded(ws[0].Job(), 0, false)
	if err != nil {
		return err
	}
	outs := make([][]float32, len(ws))
	for rank := range outs {
		outs[rank] = make([]float32, n)
	}
	var before []byte
	var times []time.Duration
	for range row.Runs {
		started := time.Now()
		if err := atOnce(len(ws), func(rank int) error {
			clear(outs[rank])
			_, err := native.AllReduce(ctx, ws[rank], outs[rank], inputs[rank])
			return err
		}); err != nil {
			return err
		}
		times = append(times, time.Since(started))
		first := bytesOf(outs[0])
		for rank := range outs {
			row.Differing += differ(first, bytesOf(outs[rank]), 4)
		}
		if check != nil {
			c, err := check.Check(outs[0], inputs)
			if err != nil {
				return err
			}
			row.Wrong += c.Wrong
		}
		// What rounds at random does so anew in each run.
		if c, _ := codec.ByName(row.Codec); job.Native.Order == aggregation.Ranked && !c.Info().Stochastic {
			if before != nil {
				row.Differing += differ(before, first, 4)
			}
			before = first
		}
	}
	row.Loss = nmse(outs[0], inputs)
	slices.Sort(times)
	row.TimeUs = float64(times[len(times)/2].Nanoseconds()) / 1000
	return nil
}

// nmse compares a sum with that of the inputs.
func nmse(got []float32, inputs [][]float32) float64 {
	var e, s float64
	for i, v := range got {
		var sum float64
		for _, in := range inputs {
			sum += float64(in[i])
		}
		e += (float64(v) - sum) * (float64(v) - sum)
		s += sum * sum
	}
	return e / math.Max(s, math.SmallestNonzeroFloat64)
}

// impairAll sets the loss that is asked for on every worker's port.
func impairAll(nic *dataplane.NIC, o *Options) error {
	if o.Loss <= 0 {
		return nil
	}
	for rank := range o.Workers {
		if err := nic.Impair(portName(rank), dataplane.Impairment{IngressLoss: o.Loss, EgressLoss: o.Loss}); err != nil {
			return fmt.Errorf("set loss of port %s: %w", portName(rank), err)
		}
	}
	return nil
}

// Table writes the report.
func (r *CodecsReport) Table(w io.Writer) error {
	p := &printer{w: w}
	r.heading(p, "compressed by every codec")
	p.f("#\n# %-13s %-13s %-8s %4s %8s %7s %9s %9s %10s %10s %8s\n", "codec", "results", "order", "runs", "packets", "ratio", "nmse", "wrong", "differing", "time (us)", "resent")
	for _, row := range r.Rows {
		p.f("  %-13s %-13s %-8s %4d %8d %7.2f %9.2g %9d %10d %10.0f %8d\n", row.Codec, row.Result, row.Order, row.Runs, row.Packets, row.Ratio, row.Loss, row.Wrong, row.Differing, row.TimeUs, row.Resent)
	}
	p.f("#\n# nmse: against the sum of what was not compressed. wrong: not what the encoded contributions give.\n#\n")
	p.counters(&r.NIC)
	return p.err
}
