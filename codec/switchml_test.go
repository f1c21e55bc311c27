package codec

import (
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

func TestMaxExponent(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	p := func(e int) float32 { return float32(math.Ldexp(1, e)) }
	for _, c := range []struct {
		name   string
		block  []float32
		exp    int8
		finite bool
	}{
		{"empty", nil, MinExponent, true},
		{"zeros", []float32{0, float32(math.Copysign(0, -1))}, -126, true},
		{"smallest subnormal", []float32{math.SmallestNonzeroFloat32}, -126, true},
		{"largest subnormal", []float32{math.Float32frombits(0x007fffff)}, -126, true},
		{"smallest normal", []float32{p(-126)}, -125, true},
		{"one", []float32{1}, 1, true},
		{"below one", []float32{math.Nextafter32(1, 0), -0.25}, 0, true},
		{"negative decides", []float32{1, -8}, 4, true},
		{"largest good", []float32{math.Nextafter32(p(126), 0)}, 126, true},
		{"2^126", []float32{0, -p(126)}, PoisonExponent, false},
		{"2^127", []float32{p(127)}, PoisonExponent, false},
		{"max float", []float32{math.MaxFloat32}, PoisonExponent, false},
		{"inf", []float32{1, inf}, PoisonExponent, false},
		{"minus inf", []float32{-inf}, PoisonExponent, false},
		{"nan", []float32{nan, 1}, PoisonExponent, false},
	} {
		exp, finite := MaxExponent(c.block)
		if exp != c.exp || finite != c.finite {
			t.Errorf("%s: got %d %v, want %d %v", c.name, exp, finite, c.exp, c.finite)
		}
	}
}

// The rule of the protocol by exact arithmetic.
func slowQuantise(v float32, exp int8, workers int) int32 {
	x := new(big.Rat).SetFloat64(float64(v))
	x.Mul(x, big.NewRat(math.MaxInt32, int64(workers)))
	two := new(big.Rat).SetInt64(2)
	if exp < 0 {
		for range -int(exp) {
			x.Mul(x, two)
		}
	} else {
		for range int(exp) {
			x.Quo(x, two)
		}
	}
	// Nearest even: floor(x), then look at the remainder.
	num, den := x.Num(), x.Denom()
	q, r := new(big.Int).DivMod(num, den, new(big.Int))
	switch r.Lsh(r, 1).Cmp(den) {
	case 1:
		q.Add(q, big.NewInt(1))
	case 0:
		if q.Bit(0) == 1 {
			q.Add(q, big.NewInt(1))
		}
	}
	return int32(q.Int64())
}

func TestQuantiseMatchesExactRule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		workers := rapid.IntRange(1, 64).Draw(t, "workers")
		e := rapid.IntRange(int(MinExponent), 126).Draw(t, "exp")
		frac := rapid.Float64Range(-1, 1).Draw(t, "frac")
		v := float32(math.Ldexp(frac, e))
		own, _ := MaxExponent([]float32{v})
		if int(own) > e {
			t.Skip("rounded up to the next power of two")
		}
		var got [1]int32
		Quantise(got[:], []float32{v}, int8(e), workers)
		// The float64 product has a relative error of 2^-52, which matters
		// only within 2^-20 of a tie: allow the neighbour there.
		want := slowQuantise(v, int8(e), workers)
		if d := int64(got[0]) - int64(want); d != 0 {
			x := float64(v) * quantiseScale(int8(e), workers)
			if tie := math.Abs(x - math.Trunc(x)); d > 1 || d < -1 || math.Abs(tie-0.5) > 1e-6 {
				t.Fatalf("%g e=%d n=%d: got %d, want %d", v, e, workers, got[0], want)
			}
		}
	})
}

func TestSumOfQuantisedWithinBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		workers := rapid.IntRange(1, 32).Draw(t, "workers")
		n := rapid.IntRange(1, 40).Draw(t, "n")
		scale := rapid.IntRange(-149, 125).Draw(t, "scale")
		blocks := make([][]float32, workers)
		exp := int8(math.MinInt8)
		for w := range blocks {
			blocks[w] = make([]float32, n)
			for i := range blocks[w] {
				blocks[w][i] = float32(math.Ldexp(rapid.Float64Range(-1, 1).Draw(t, "v"), scale))
			}
			e, finite := MaxExponent(blocks[w])
			if !finite {
				t.Fatal("finite block called not finite")
			}
			exp = max(exp, e)
		}
		sum := make([]int64, n)
		q := make([]int32, n)
		for _, b := range blocks {
			Quantise(q, b, exp, workers)
			for i, v := range q {
				sum[i] += int64(v)
			}
		}
		for i, s := range sum {
			if s > math.MaxInt32 || s < -math.MaxInt32 {
				t.Fatalf("sum wraps: %d", s)
			}
			q[i] = int32(s)
		}
		got := make([]float32, n)
		Dequantise(got, q, exp, workers)
		for i := range got {
			want := 0.0
			for _, b := range blocks {
				want += float64(b[i])
			}
			ulp := math.Max(math.Abs(want)*0x1p-23, 0x1p-149)
			if err := math.Abs(float64(got[i]) - want); err > QuantiseErrorBound(exp, workers)+ulp {
				t.Fatalf("element %d: %g, want %g, error %g over bound %g", i, got[i], want, err, QuantiseErrorBound(exp, workers))
			}
		}
	})
}

func TestPoisonReachesEveryWorker(t *testing.T) {
	good := []float32{1, 2, 3}
	bad := []float32{1, float32(math.NaN()), 3}
	eg, _ := MaxExponent(good)
	eb, finite := MaxExponent(bad)
	if finite {
		t.Fatal("a block with NaN passed as finite")
	}
	e := max(eg, eb) // what the switch does
	q := make([]int32, 3)
	for _, b := range [][]float32{good, bad} {
		Quantise(q, b, e, 2)
		for _, v := range q {
			if v != 0 {
				t.Fatalf("poisoned block sent %d", v)
			}
		}
	}
	out := make([]float32, 3)
	Dequantise(out, q, e, 2)
	for _, v := range out {
		if v == v {
			t.Fatalf("poisoned block came back as %g", v)
		}
	}
	if !math.IsInf(QuantiseErrorBound(e, 2), 1) {
		t.Fatal("a poisoned block has a finite bound")
	}
}

func TestQuantiseClampAndNaN(t *testing.T) {
	q := make([]int32, 4)
	Quantise(q, []float32{100, -100, float32(math.NaN()), 0.5}, 0, 3)
	lim := QuantiseLimit(3)
	if q[0] != lim || q[1] != -lim || q[2] != 0 {
		t.Fatalf("got %v, limit %d", q, lim)
	}
	if got := QuantiseLimit(3); got != 715827882 {
		t.Fatalf("limit %d", got)
	}
}

func TestZeroBlockStaysZero(t *testing.T) {
	src := []float32{0, float32(math.Copysign(0, -1)), 0}
	e, _ := MaxExponent(src)
	q := make([]int32, 3)
	Quantise(q, src, e, 32)
	out := []float32{1, 1, 1}
	Dequantise(out, q, e, 32)
	for i := range out {
		if q[i] != 0 || out[i] != 0 {
			t.Fatalf("zero became %d, %g", q[i], out[i])
		}
	}
}
