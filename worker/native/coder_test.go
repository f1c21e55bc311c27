package native

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"gradnic/aggregation"
	"gradnic/codec"
	"gradnic/dataplane"
)

// gauss makes values like gradients.
func gauss(seed uint64, n int) []float32 {
	r := rand.New(rand.NewPCG(seed, uint64(n)))
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	return x
}

// codedModel says what the workers of a job with codecs must get: it encodes as they do, and adds in the order of ranks.
type codedModel struct {
	t        *testing.T
	job      dataplane.JobSpec
	spec     aggregation.Spec
	pool     *aggregation.Pool
	chunk    uint64
	residual [][]float32 // by rank, with error feedback
}

func newCodedModel(t *testing.T, r *rig) *codedModel {
	t.Helper()
	s, err := r.nic.Job("j")
	if err != nil {
		t.Fatal(err)
	}
	m := &codedModel{t: t, job: s.JobSpec, spec: aggregation.Spec{
		Rule: aggregation.Rounds, Workers: s.Workers, Slots: s.Slots, Elements: s.Elements, Type: s.Native.Type, ByteOrder: aggregation.LittleEndian,
		Op: s.Native.Op, Order: aggregation.Ranked, Policy: s.Native.Policy,
	}}
	if m.spec.Codec, m.spec.Result, err = s.Native.Codecs(s.Workers, s.Elements); err != nil {
		t.Fatal(err)
	}
	if m.pool, err = aggregation.NewPool(m.spec); err != nil {
		t.Fatal(err)
	}
	return m
}

func (m *codedModel) codecs() (in, out codec.Codec) {
	in, out = m.spec.Codec, m.spec.Result
	if m.spec.Type == aggregation.BFP16 {
		in, _ = codec.ByName("bfp16")
		out = in
	}
	none, _ := codec.ByName("none")
	if in == nil {
		in = none
	}
	if out == nil {
		out = none
	}
	return in, out
}

// allReduce gives the result of the next call.
func (m *codedModel) allReduce(inputs [][]float32) []float32 {
	m.t.Helper()
	in, out := m.codecs()
	n, elements := len(inputs[0]), m.job.Elements
	sum := make([]float32, n)
	for lo := 0; lo < n || lo == 0; lo += elements {
		hi := min(lo+elements, n)
		slot, round := int(m.chunk%uint64(m.job.Slots)), uint32(m.chunk/uint64(m.job.Slots))
		b := make([]byte, m.spec.ResultBytes())
		for rank := range inputs {
			x := make([]float32, elements)
			copy(x, inputs[rank][lo:hi])
			st := codec.NewState(in, elements, codec.StateOptions{Worker: uint32(rank), Feedback: true})
			st.Round = m.chunk
			c := make([]byte, in.MaxEncoded(elements))
			encode := in.Encode
			if m.residual != nil {
				copy(st.Residual(), m.residual[rank][lo:hi])
				encode = func(dst []byte, src []float32, st *codec.State) (int, error) {
					return codec.EncodeFeedback(in, dst, src, st)
				}
			}
			k, err := encode(c, x, st)
			if err != nil {
				m.t.Fatal(err)
			}
			if m.residual != nil {
				copy(m.residual[rank][lo:hi], st.Residual())
			}
			m.pool.Contribute(&aggregation.Contribution{Slot: slot, Round: round, Worker: rank, Values: c[:k]}, 0, b)
		}
		x := make([]float32, elements)
		if err := out.Decode(x, b[:m.pool.ResultLen(slot, int(round&1))], codec.NewState(out, elements, codec.StateOptions{})); err != nil {
			m.t.Fatal(err)
		}
		copy(sum[lo:hi], x)
		m.chunk++
	}
	return sum
}

// Jobs with every codec, over a network that loses, doubles and reorders, whose NIC dies in the middle: every worker gets
// the same bits, and they are those of the model.
func TestCodecsEndToEnd(t *testing.T) {
	for i, c := range []struct{ codec, result, keys string }{
		{"bfp16", "", ""}, {"bfp16-intel", "bfp16", ""}, {"fp16", "", ""}, {"bf16", "none", ""}, {"mxfp8-e4m3", "", ""}, {"mxfp8-e5m2", "fp16", ""}, {"mxfp4", "", ""}, {"mxint8", "", ""},
		{"int8", "", ""}, {"block16e8m4s", "", ""}, {"qsgd", "", ""}, {"topk:0.1", "", ""}, {"topk:0.1", "bfp16", ""}, {"lossless", "", ""}, {"none", "bfp16", ""}, {"type", "", ""},
		{"bfp16", "", "keys"}, {"topk:0.1", "none", "keys"},
	} {
		t.Run(fmt.Sprint(c.codec, "-", c.result, c.keys), func(t *testing.T) {
			x := dataplane.NativeSpec{Type: aggregation.Float32, Order: aggregation.Ranked, Codec: c.codec, Result: c.result, Deadline: 20 * time.Second}
			if c.codec == "type" {
				x.Type, x.Codec = aggregation.BFP16, ""
			}
			if c.keys != "" {
				x.Keys = testKeys(3)
			}
			r := newRig(t, dataplane.JobSpec{Workers: 3, Slots: 8, Elements: 100, Native: &x})
			m := newCodedModel(t, r)
			bad := dataplane.Impairment{IngressLoss: 0.03, EgressLoss: 0.03, Duplicate: 0.05, Reorder: 0.1, ReorderBy: 5}
			r.stop()
			r.cfg.Seed = uint64(i)
			r.start(func(int) dataplane.Impairment { return bad })
			ws := r.join()
			for k, n := range []int{3210, 0, 100, 7, 4000} {
				inputs, outs := make([][]float32, 3), make([][]float32, 3)
				for rank := range ws {
					inputs[rank], outs[rank] = gauss(uint64(10*k+rank), n), make([]float32, n)
				}
				done := make(chan struct{})
				go func() {
					defer close(done)
					if k%4 == 0 {
						time.Sleep(5 * time.Millisecond)
						r.kill(func(int) dataplane.Impairment { return bad })
					}
				}()
				each(t, 3, func(ctx context.Context, rank int) error {
					_, err := AllReduce(ctx, ws[rank], outs[rank], inputs[rank])
					return err
				})
				<-done
				want := m.allReduce(inputs)
				for rank := range ws {
					if i, ok := firstDifference(outs[rank], want); !ok {
						t.Fatalf("call %d of %d, rank %d, element %d: %v, want %v", k, n, rank, i, outs[rank][i], want[i])
					}
				}
			}
			if j := ws[0].Job(); c.codec != "type" && j.Codec != c.codec && !strings.HasPrefix(j.Codec, "topk=") {
				t.Errorf("%+v", j)
			}
		})
	}
}

func firstDifference(a, b []float32) (int, bool) {
	for i := range a {
		if math.Float32bits(a[i]) != math.Float32bits(b[i]) {
			return i, false
		}
	}
	return 0, true
}

// With error feedback what top-k leaves out of one call comes in later ones, and nothing counts twice, whatever is lost on
// the way: the sums are the model's, and their mean over many calls comes near the mean of what was given.
func TestErrorFeedback(t *testing.T) {
	const workers, n, calls = 3, 1234, 40
	r := newRig(t, dataplane.JobSpec{Workers: workers, Slots: 8, Elements: 200, Native: &dataplane.NativeSpec{Type: aggregation.Float32, Order: aggregation.Ranked, Codec: "topk:0.1"}})
	m := newCodedModel(t, r)
	r.stop()
	r.start(func(int) dataplane.Impairment { return dataplane.Impairment{IngressLoss: 0.05, EgressLoss: 0.05} })
	ws := r.join()
	inputs, outs, fs := make([][]float32, workers), make([][]float32, workers), make([]*Feedback, workers)
	for rank, w := range ws {
		inputs[rank], outs[rank] = gauss(uint64(rank), n), make([]float32, n)
		m.residual = append(m.residual, make([]float32, n))
		var err error
		if fs[rank], err = w.NewFeedback(n); err != nil {
			t.Fatal(err)
		}
	}
	total := make([]float64, n)
	for k := range calls {
		each(t, workers, func(ctx context.Context, rank int) error {
			_, err := AllReduceFeedback(ctx, ws[rank], outs[rank], inputs[rank], fs[rank])
			return err
		})
		want := m.allReduce(inputs)
		for rank := range ws {
			if i, ok := firstDifference(outs[rank], want); !ok {
				t.Fatalf("call %d, rank %d, element %d: %v, want %v", k, rank, i, outs[rank][i], want[i])
			}
		}
		for i, v := range want {
			total[i] += float64(v)
		}
	}
	// Nothing is lost: what was given in all calls is what came out and what is left.
	for i := range total {
		given, left := 0.0, 0.0
		for rank := range ws {
			given += calls * float64(inputs[rank][i])
			left += float64(fs[rank].Residual()[i])
		}
		if math.Abs(given-left-total[i]) > 1e-3 {
			t.Fatalf("element %d: %v given, %v came out, %v left", i, given, total[i], left)
		}
	}
}

func TestFeedbackRefused(t *testing.T) {
	r := newRig(t, dataplane.JobSpec{Workers: 1, Elements: 100, Native: &dataplane.NativeSpec{Type: aggregation.Float32, Codec: "topk:0.1"}})
	cfg := r.config(0)
	cfg.FeedbackBytes, cfg.Codec = 4000, "topk:0.1"
	w, err := Join(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	f, err := w.NewFeedback(900)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.NewFeedback(101); err == nil {
		t.Error("more than the limit")
	}
	if _, err := AllReduceFeedback(t.Context(), w, make([]float32, 5), make([]float32, 5), f); err == nil {
		t.Error("another length")
	}
	f.Close()
	f.Close()
	if _, err := w.NewFeedback(1000); err != nil {
		t.Error(err)
	}
	if _, err := w.NewFeedback(1); err == nil {
		t.Error("more than the limit after Close")
	}
	if _, err := AllGather(t.Context(), w, make([]float32, 5), make([]float32, 5)); err == nil {
		t.Error("all-gather by top-k")
	}
}

// Collectives that copy work with codecs, within what the codec loses.
func TestCopiesByCodec(t *testing.T) {
	r := newRig(t, dataplane.JobSpec{Workers: 3, Elements: 64, Native: &dataplane.NativeSpec{Type: aggregation.Float32, Codec: "bf16"}})
	ws := r.join()
	const n = 150
	every := gauss(1, 3*n)
	for i, v := range every {
		every[i] = math.Float32frombits(math.Float32bits(v) &^ 0xffff) // what bfloat16 holds
	}
	each(t, 3, func(ctx context.Context, rank int) error {
		got := make([]float32, 3*n)
		if _, err := AllGather(ctx, ws[rank], got, every[rank*n:(rank+1)*n]); err != nil {
			return err
		}
		if !slices.Equal(got, every) {
			return fmt.Errorf("all-gather: %v", got[:9])
		}
		clear(got)
		if rank == 1 {
			copy(got, every)
		}
		if _, err := Broadcast(ctx, ws[rank], got, 1); err != nil {
			return err
		}
		if !slices.Equal(got, every) {
			return fmt.Errorf("broadcast: %v", got[:9])
		}
		part := make([]float32, n)
		if _, err := ReduceScatter(ctx, ws[rank], part, every); err != nil {
			return err
		}
		for i, v := range part {
			if want := 3 * every[rank*n+i]; math.Abs(float64(v-want)) > math.Abs(float64(want))/256 {
				return fmt.Errorf("reduce-scatter: element %d is %v, want %v", i, v, want)
			}
		}
		return nil
	})
}

// A worker that asks for another codec than the job's is told which there is.
func TestCodecMustBeTheJobs(t *testing.T) {
	r := newRig(t, dataplane.JobSpec{Workers: 1, Elements: 100, Native: &dataplane.NativeSpec{Type: aggregation.Float32, Codec: "topk:0.1"}})
	for _, want := range []string{"bfp16", "none", "topk:0.2"} {
		cfg := r.config(0)
		cfg.Codec = want
		if w, err := Join(t.Context(), cfg); err == nil {
			w.Close()
			t.Errorf("joined with %s", want)
		} else if !strings.Contains(err.Error(), "topk=10, not "+want) {
			t.Error(err)
		}
	}
}

// Results that are much longer than the contributions, over several chunks, tagged, with losses.
func TestLongResults(t *testing.T) {
	for _, keys := range []bool{false, true} {
		x := dataplane.NativeSpec{Type: aggregation.Float32, Order: aggregation.Ranked, Codec: "topk=10", Result: "none"}
		if keys {
			x.Keys = testKeys(3)
		}
		r := newRig(t, dataplane.JobSpec{Workers: 3, Slots: 8, Elements: 64, Native: &x})
		r.stop()
		r.spec.Elements = 2000
		r.cfg.ChunkSize, r.cfg.LongestFrame = 2048, 9014
		r.start(func(int) dataplane.Impairment { return dataplane.Impairment{IngressLoss: 0.05, EgressLoss: 0.05} })
		m := newCodedModel(t, r)
		ws := r.join()
		inputs, outs := make([][]float32, 3), make([][]float32, 3)
		for rank := range ws {
			inputs[rank], outs[rank] = gauss(uint64(rank), 100_000), make([]float32, 100_000)
		}
		each(t, 3, func(ctx context.Context, rank int) error {
			_, err := AllReduce(ctx, ws[rank], outs[rank], inputs[rank])
			return err
		})
		want := m.allReduce(inputs)
		for rank := range ws {
			if i, ok := firstDifference(outs[rank], want); !ok {
				t.Fatalf("keys %t, rank %d, element %d: %v, want %v", keys, rank, i, outs[rank][i], want[i])
			}
		}
		var resent uint64
		for _, w := range ws {
			resent += w.Counts().Resent
			w.Close()
		}
		if resent == 0 {
			t.Error("nothing was lost")
		}
	}
}
