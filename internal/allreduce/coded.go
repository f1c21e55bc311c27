package allreduce

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"

	"gradnic/aggregation"
	"gradnic/codec"
	wire "gradnic/wire/native"
	"gradnic/worker/native"
)

// Coded is what a run over a job with codecs has beside the rest: error feedback, and what it takes to check sums. It must see
// every call of a worker from its first one on, since what is rounded at random depends on the number of the packet.
type Coded struct {
	job      native.Job
	in, out  codec.Codec
	seed     uint64
	feedback bool

	chunk    uint64      // number of the next packet, over all calls
	residual [][]float32 // by rank, for the check
}

// NewCoded is nil for a job without codecs. seed is the workers'; feedback takes error feedback where the codec is meant to be
// used with it.
func NewCoded(job native.Job, seed uint64, feedback bool) (*Coded, error) {
	c := &Coded{job: job, seed: seed}
	names := [2]string{job.Codec, job.Result}
	if job.Type == wire.BFP16 {
		names = [2]string{"bfp16", "bfp16"}
	}
	if names == [2]string{"none", "none"} {
		return nil, nil
	}
	var err error
	if c.in, err = codec.ByName(names[0]); err != nil {
		return nil, err
	}
	if c.out, err = codec.ByName(names[1]); err != nil {
		return nil, err
	}
	c.feedback = feedback && c.in.Info().ID == codec.IDTopK
	return c, nil
}

// begin starts with arrays of another length: what was left out of the last ones is forgotten.
func (c *Coded) begin(w *native.Worker, every [][]float32, n int) (*native.Feedback, error) {
	if !c.feedback {
		return nil, nil
	}
	c.residual = make([][]float32, len(every))
	for rank, x := range every {
		c.residual[rank] = make([]float32, len(x))
	}
	return w.NewFeedback(n)
}

// reduce is one all-reduce.
func (c *Coded) reduce(ctx context.Context, w *native.Worker, out, in []float32, f *native.Feedback) (native.Stats, error) {
	if f != nil {
		return native.AllReduceFeedback(ctx, w, out, in, f)
	}
	return native.AllReduce(ctx, w, out, in)
}

// check compares a result with what the workers' contributions give: it encodes as they did, adds the decoded values by rank,
// and allows what encoding the sum may lose; and in order of arrival what another order may give. By rank and with a codec that
// does not round at random every value must be right to the bit.
func (c *Coded) check(row *NativeRow, got []float32, every [][]float32) error {
	r, err := c.Check(got, every)
	row.Wrong += int64(r.Wrong)
	row.MaxErr, row.Bound = max(row.MaxErr, r.MaxErr), max(row.Bound, r.Bound)
	return err
}

// CodedCheck is what Check found: elements that are wrong, and the largest error and bound.
type CodedCheck struct {
	Wrong         int
	MaxErr, Bound float64
}

// Check looks at the result of the next call with these arrays, by rank: every element of got is compared as said above.
func (c *Coded) Check(got []float32, every [][]float32) (r CodedCheck, err error) {
	n, elements := len(got), c.job.Elements
	sum, decoded := make([]float32, elements), make([]float32, elements)
	magnitudes, bounds, loss := make([]float64, elements), make([]float64, elements), make([]float64, elements)
	plain := aggregation.Spec{
		Rule: aggregation.Rounds, Workers: len(every), Slots: 1, Elements: elements, Type: aggregation.Float32, ByteOrder: aggregation.LittleEndian,
		Op: aggregation.Op(c.job.Op), Order: aggregation.Ranked,
	}
	if c.job.Saturate {
		plain.Policy = aggregation.Saturate
	}
	exact := c.job.Ranked && !c.out.Info().Stochastic
	state := codec.NewState(c.out, elements, codec.StateOptions{Seed: c.seed})
	for lo := 0; lo < n || lo == 0; lo += elements {
		hi := min(lo+elements, n)
		parts := make([][]byte, len(every))
		clear(magnitudes)
		for rank := range every {
			if err := c.contribution(decoded, every[rank], rank, lo, hi); err != nil {
				return r, err
			}
			for i, v := range decoded {
				magnitudes[i] += math.Abs(float64(v))
			}
			parts[rank], _ = binary.Append(nil, binary.LittleEndian, decoded)
		}
		c.chunk++
		raw := make([]byte, 4*elements)
		if _, err := aggregation.Reference(plain, parts, raw); err != nil {
			return r, err
		}
		if _, err := binary.Decode(raw, binary.LittleEndian, sum); err != nil {
			return r, err
		}
		clear(bounds)
		if !c.job.Ranked {
			plain.Bound(bounds, magnitudes, len(every))
		}
		if exact {
			b := make([]byte, c.out.MaxEncoded(elements))
			k, err := c.out.Encode(b, sum, state)
			if err == nil {
				err = c.out.Decode(sum, b[:k], state)
			}
			if err != nil {
				return r, err
			}
		} else {
			for i, v := range sum {
				decoded[i] = float32(math.Abs(float64(v)) + bounds[i])
			}
			c.out.Bound(loss, decoded)
			for i := range bounds {
				bounds[i] = 2*bounds[i] + loss[i]
			}
		}
		for i, v := range got[lo:hi] {
			r.Bound = max(r.Bound, bounds[i])
			off := math.Abs(float64(v) - float64(sum[i]))
			if v != v && sum[i] != sum[i] || v == sum[i] {
				off = 0
			}
			if !(off <= bounds[i]) {
				r.Wrong++
				off = min(off, math.MaxFloat64)
			}
			r.MaxErr = max(r.MaxErr, off)
		}
	}
	return r, nil
}

// contribution writes to dst what rank's contribution of elements lo to hi decodes to.
func (c *Coded) contribution(dst, x []float32, rank, lo, hi int) error {
	src := make([]float32, len(dst))
	copy(src, x[lo:hi])
	st := codec.NewState(c.in, len(dst), codec.StateOptions{Seed: c.seed, Worker: uint32(rank), Feedback: c.feedback})
	st.Round = c.chunk
	b := make([]byte, c.in.MaxEncoded(len(dst)))
	encode := c.in.Encode
	if c.feedback {
		copy(st.Residual(), c.residual[rank][lo:hi])
		encode = func(b []byte, src []float32, st *codec.State) (int, error) {
			return codec.EncodeFeedback(c.in, b, src, st)
		}
	}
	k, err := encode(b, src, st)
	if err != nil {
		return fmt.Errorf("check the contribution of rank %d: %w", rank, err)
	}
	if c.feedback {
		copy(c.residual[rank][lo:hi], st.Residual())
	}
	return c.in.Decode(dst, b[:k], st)
}
