package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"gradnic/aggregation"
	"gradnic/codec"
	"gradnic/dataplane"
	"gradnic/internal/demo"
	"gradnic/internal/training"
	"gradnic/worker/native"
)

// workers is how many there are; payload is the bytes of values in a packet of 1500 bytes.
const (
	workers = 8
	payload = 1500 - 28 - 32
)

// patience is how long a round may wait for a worker: all of them compute on the CPUs that there are, and a busy machine takes its time.
const patience = 5 * time.Minute

// way is how gradients become their mean: jobs on a NIC, and what they cost a worker in each step.
type way struct {
	mean           func(rank int, dst, src []float32) error
	leave          func() error
	packets        int
	sent, received int // bytes of values
}

// add counts a job's packets for n elements.
func (w *way) add(n, elements int, shape aggregation.Spec) {
	shape.Elements = elements
	packets := (n + elements - 1) / elements
	w.packets += packets
	w.sent += packets * shape.WireBytes()
	w.received += packets * shape.ResultBytes()
}

// overCodec is a job whose contributions and results have a codec. Top-k has error feedback in the workers.
func overCodec(ctx context.Context, s *demo.Session, name string) (*way, error) {
	spec := &dataplane.NativeSpec{Type: aggregation.Float32, Op: aggregation.Mean, Order: aggregation.Ranked, Codec: name, Deadline: patience}
	job := dataplane.JobSpec{Name: "train", Slots: 256, Elements: spec.FitElements(workers, payload), Native: spec}
	in, out, err := spec.Codecs(workers, job.Elements)
	if err != nil {
		return nil, err
	}
	ws, leave, err := s.Join(ctx, job)
	if err != nil {
		return nil, err
	}
	w := &way{leave: leave}
	n := training.DefaultSize.Parameters()
	w.add(n, job.Elements, aggregation.Spec{Type: spec.Type, Codec: in, Result: out})
	feedback := make([]*native.Feedback, len(ws))
	if strings.HasPrefix(name, "topk") {
		for rank := range ws {
			if feedback[rank], err = ws[rank].NewFeedback(n); err != nil {
				return nil, errors.Join(err, leave())
			}
		}
	}
	w.mean = func(rank int, dst, src []float32) (err error) {
		if f := feedback[rank]; f != nil {
			_, err = native.AllReduceFeedback(ctx, ws[rank], dst, src, f)
		} else {
			_, err = native.AllReduce(ctx, ws[rank], dst, src)
		}
		return err
	}
	return w, nil
}

// overTHC is the two jobs of native.THC: maxima of norms, and sums of table values.
func overTHC(ctx context.Context, s *demo.Session, _ string) (*way, error) {
	n := training.DefaultSize.Parameters()
	w := &way{leave: func() error { return nil }}
	joined := [2][]*native.Worker{}
	for i, j := range []struct {
		name     string
		elements int // of the array
		spec     dataplane.NativeSpec
	}{
		{"norms", codec.THCBlocks(n), dataplane.NativeSpec{ID: 1, Type: aggregation.Float32, Op: aggregation.Max, Deadline: patience}},
		{"values", codec.THCPadded(n), dataplane.NativeSpec{ID: 2, Type: aggregation.Int8, Deadline: patience}},
	} {
		job := dataplane.JobSpec{Name: j.name, Slots: 256, Elements: min(j.elements, j.spec.FitElements(workers, payload)), Native: &j.spec}
		ws, leave, err := s.Join(ctx, job)
		if err != nil {
			return nil, errors.Join(err, w.leave())
		}
		before := w.leave
		w.leave = func() error { return errors.Join(leave(), before()) }
		w.add(j.elements, job.Elements, aggregation.Spec{Type: j.spec.Type})
		joined[i] = ws
	}
	var thc [workers]*native.THC
	for rank := range thc {
		var err error
		if thc[rank], err = native.NewTHC(joined[0][rank], joined[1][rank], 1); err != nil {
			return nil, errors.Join(err, w.leave())
		}
	}
	var rounds [workers]uint64 // each rank's are its own
	w.mean = func(rank int, dst, src []float32) error {
		err := thc[rank].AllReduce(ctx, dst, src, rounds[rank])
		rounds[rank]++
		for i := range dst {
			dst[i] /= workers
		}
		return err
	}
	return w, nil
}
