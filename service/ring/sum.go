package ring

import (
	"math"

	"gradnic/aggregation/kernel"
)

// adder is the arithmetic on one frame: decode, add, encode, and what goes to the host. It has scratch for a slice.
type adder struct {
	sum *kernel.Ops[float32]
	acc []float32
	in  []float32
}

func newAdder(slice int) (*adder, error) {
	sum, err := kernel.ForValues(kernel.Sum, kernel.Propagate)
	if err != nil {
		return nil, err
	}
	return &adder{sum: sum, acc: make([]float32, slice), in: make([]float32, slice)}, nil
}

// local puts n values of the host from index at on into acc; what is past the end are zeros.
func (a *adder) local(data []float32, at, n int) []float32 {
	acc := a.acc[:n]
	have := 0
	if at < len(data) {
		have = copy(acc, data[at:])
	}
	clear(acc[have:])
	return acc
}

// add adds a received payload to acc and returns how many sums are infinite or NaN. The payload has the cut's size.
func (a *adder) add(k *cut, acc []float32, payload []byte) (flagged int, err error) {
	if k.plain {
		return a.sum.Fold(acc, payload), nil
	}
	in := a.in[:len(acc)]
	if err := k.codec.Decode(in, payload, nil); err != nil {
		return 0, err
	}
	return a.sum.Fold(acc, kernel.Bytes(in)), nil
}

// deliver gives n finished values to the host: as they are, or as new weights.
func (r *request) deliver(at int, values []float32) {
	if at >= len(r.Data) {
		return
	}
	out := r.Data[at:]
	n := min(len(out), len(values))
	out, values = out[:n], values[:n]
	if r.Weights == nil {
		copy(out, values)
		return
	}
	step(out, r.Weights[at:at+n], values, -r.LearningRate)
}

// step computes dst = w + a*g, rounded once, as fused multiply-add hardware does. All have one length.
func step(dst, w, g []float32, a float32) {
	if len(w) != len(dst) || len(g) != len(dst) {
		panic("ring: step on slices of different lengths")
	}
	for i := range dst {
		dst[i] = fma(a, g[i], w[i])
	}
}

// fma is a*b + c in float32, rounded once to nearest even. The product of two float32 is exact in float64; the sum is
// rounded to odd there, so that the second rounding is the only one (Boldo and Melquiond, "Emulation of FMA and correctly
// rounded sums: proved algorithms using rounding to odd", IEEE Trans. Computers 57(4), 2008).
func fma(a, b, c float32) float32 {
	p, d := float64(a)*float64(b), float64(c)
	s := p + d
	// The error of the sum, exact (Knuth's two-sum).
	t := s - p
	e := (p - (s - t)) + (d - t)
	bits := math.Float64bits(s)
	if e != 0 && e == e && bits&1 == 0 && !math.IsInf(s, 0) {
		// The exact value is between s and its neighbour on the side of e: the one of the two that is odd is wanted.
		if (e > 0) == (s > 0) {
			bits++
		} else {
			bits--
		}
		s = math.Float64frombits(bits)
	}
	return float32(s)
}
