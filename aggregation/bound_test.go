package aggregation

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// exactly is the exact result of element e, and the sum of the magnitudes.
func exactly(s Spec, sent [][]byte, e int) (exact *big.Float, magnitude float64) {
	const precision = 2200 // holds sums of any float64
	exact = new(big.Float).SetPrec(precision)
	abs := new(big.Float).SetPrec(precision)
	for i, b := range sent {
		m := &numbers{Spec: s}
		ints, floats := m.decode(b)
		v := new(big.Float).SetPrec(precision)
		if m.integer() {
			v.SetInt64(ints[e])
		} else {
			v.SetFloat64(floats[e])
		}
		abs.Add(abs, new(big.Float).Abs(v))
		switch c := v.Cmp(exact); {
		case i == 0, s.Op == Min && c < 0, s.Op == Max && c > 0:
			exact.Set(v)
		case s.Op <= Mean:
			exact.Add(exact, v)
		}
	}
	if s.Op == Mean {
		exact.Quo(exact, new(big.Float).SetInt64(int64(len(sent))))
	}
	magnitude, _ = abs.Float64()
	return exact, magnitude
}

// distance is |got - exact|, rounded down.
func distance(s Spec, out []byte, e int, exact *big.Float) float64 {
	ints, floats := (&numbers{Spec: s}).decode(out)
	got := new(big.Float).SetPrec(2200)
	if s.Type <= Int8 {
		got.SetInt64(ints[e])
	} else {
		got.SetFloat64(floats[e])
	}
	d, _ := got.Sub(got, exact).Float64()
	return math.Abs(d)
}

// Every result that is not flagged is within its stated bound of the exact
// value: all types, operations and orders, shuffled arrivals, magnitudes from
// denormals to the ends of the range, some workers absent.
func TestResultsAreWithinTheirBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.OneOf(rapid.IntRange(1, 9), rapid.SampledFrom([]int{16, 33, 64, 200})).Draw(t, "workers")
		s := anyNumbers(t, Spec{Rule: Rounds, Workers: n, Slots: 1, Elements: rapid.IntRange(1, 18).Draw(t, "elements"), Stragglers: Partial, Deadline: 1})
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		ends := map[Type][2]int{Float32: {-149, 120}, Float64: {-1074, 1010}, Float16: {-24, 9}, BFloat16: {-133, 118}, BFP16: {-130, 115}}[s.Type]
		low := ends[0] + rng.IntN(ends[1]-ends[0]+1)
		spread := rng.IntN(30)
		var sent [][]byte
		p := mustPool(t, s)
		out := make([]byte, s.WireBytes())
		for _, w := range rng.Perm(n) {
			if rng.IntN(16) == 0 && len(sent) > 0 {
				continue // it does not come
			}
			m := &numbers{Spec: s}
			for range s.Elements {
				if m.integer() {
					m.ints = append(m.ints, int64(rng.Uint64())>>(64-m.bits()+8))
					continue
				}
				v := math.Ldexp(rng.Float64()*2-1, min(low+rng.IntN(spread+1), ends[1]))
				if s.Type != Float64 {
					v = float64(float32(v))
				}
				m.floats = append(m.floats, v)
			}
			sent = append(sent, m.encode(make([]bool, s.Elements)))
			p.Contribute(&Contribution{Worker: w, Values: sent[len(sent)-1]}, 0, out)
		}
		if len(sent) < n {
			p.CompletePartial(0, 0, out)
		}
		if f := p.Flags(0, 0) &^ FlagPartial; f != 0 {
			if s.Type != Int8 && s.Type != Float16 {
				t.Fatalf("%+v: flagged %v", s, f)
			}
			return
		}
		exact, magnitudes, bounds := make([]*big.Float, s.Elements), make([]float64, s.Elements), make([]float64, s.Elements)
		for e := range exact {
			exact[e], magnitudes[e] = exactly(s, sent, e)
		}
		s.Bound(bounds, magnitudes, len(sent))
		for e, b := range bounds {
			if d := distance(s, out, e, exact[e]); d > b {
				t.Fatalf("%+v of %d: element %d is %v off, bound %v, magnitude %v", s, len(sent), e, d, b, magnitudes[e])
			}
		}
	})
}

// Bounds are no wider than they must be: inputs that come close to them.
func TestBoundsAreTight(t *testing.T) {
	for _, c := range []struct {
		typ   Type
		op    Op
		sent  []float64
		ratio float64
	}{
		{Float32, Sum, []float64{1, 0x1p-24}, 0.99},
		{Float64, Sum, []float64{1, 0x1p-53}, 0.99},
		{Float32, Sum, []float64{1, 0x1p-24, 0x1p-24, 0x1p-24}, 0.99},
		{Float16, Sum, []float64{1, 0x1p-11}, 0.98},
		{BFloat16, Sum, []float64{1, 0x1p-8}, 0.98},
		{BFP16, Sum, []float64{1, 0x1p-7}, 0.98},
		{Int8, Mean, []float64{1, 2}, 1},
		{Float32, Mean, []float64{1, 0x1p-24}, 0.49},
	} {
		s := Spec{Rule: Rounds, Workers: len(c.sent), Slots: 1, Elements: 1, Type: c.typ, Op: c.op}
		var sent [][]byte
		for _, v := range c.sent {
			m := &numbers{Spec: s, ints: []int64{int64(v)}, floats: []float64{v}}
			sent = append(sent, m.encode(make([]bool, 1)))
		}
		out := make([]byte, s.WireBytes())
		if _, err := Reference(s, sent, out); err != nil {
			t.Fatal(err)
		}
		exact, magnitude := exactly(s, sent, 0)
		bound := make([]float64, 1)
		s.Bound(bound, []float64{magnitude}, len(sent))
		if d := distance(s, out, 0, exact); d > bound[0] || d < c.ratio*bound[0] {
			t.Errorf("%v %v of %v: %v off, which is %.3f of the bound %v", c.typ, c.op, c.sent, d, d/bound[0], bound[0])
		}
	}
}
