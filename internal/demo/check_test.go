package demo

import (
	"math"
	"testing"

	"gradnic/codec"
	"gradnic/internal/gradients"
)

func realArrays(t *testing.T, workers int) [][]float32 {
	t.Helper()
	arrays := make([][]float32, workers)
	for r := range arrays {
		var err error
		if arrays[r], err = gradients.Load(r); err != nil {
			t.Fatal(err)
		}
	}
	return arrays
}

// TestCheckerAcceptsTheQuantiserAndNothingWorse sums the real gradients without any network: the right result passes, and
// an error of two bounds in any element does not.
func TestCheckerAcceptsTheQuantiserAndNothingWorse(t *testing.T) {
	for _, packet := range []int{64, 256} {
		arrays := realArrays(t, 8)
		c := newChecker(arrays, packet)
		result := make([]float32, gradients.Elements)
		for lo := 0; lo < len(result); lo += packet {
			hi := min(lo+packet, len(result))
			exp := codec.MinExponent
			for _, a := range arrays {
				e, _ := codec.MaxExponent(a[lo:hi])
				exp = max(exp, e)
			}
			sum, part := make([]int32, hi-lo), make([]int32, hi-lo)
			for _, a := range arrays {
				codec.Quantise(part, a[lo:hi], exp, len(arrays))
				for i := range sum {
					sum[i] += part[i]
				}
			}
			codec.Dequantise(result[lo:hi], sum, exp, len(arrays))
		}
		wrong, maxErr := c.check(result)
		if wrong != 0 || maxErr == 0 || maxErr > c.maxBound {
			t.Errorf("packets of %d: %d wrong, largest error %g, bound %g", packet, wrong, maxErr, c.maxBound)
		}
		for i := 0; i < len(result); i += 1009 {
			good := result[i]
			// The right side is a float32 apart by more than the bound, whatever it rounds to.
			result[i] = math.Nextafter32(float32(c.sum[i]+2*c.bound[i]), float32(math.Inf(1)))
			if wrong, _ := c.check(result); wrong != 1 {
				t.Fatalf("packets of %d: element %d off by two bounds: %d wrong, want 1", packet, i, wrong)
			}
			result[i] = good
		}
	}
}

func TestCheckerRefuses(t *testing.T) {
	arrays := [][]float32{{1, 2, 3, 0}, {4, -5, 6, 0}}
	c := newChecker(arrays, 64)
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, x := range []struct {
		name   string
		result []float32
		wrong  int
	}{
		{"right", []float32{5, -3, 9, 0}, 0},
		{"one contribution lost", []float32{1, -3, 9, 0}, 1},
		{"not a number", []float32{5, nan, 9, 0}, 1},
		{"infinite", []float32{5, -3, inf, 0}, 1},
		{"zero is not small", []float32{5, -3, 9, 1e-6}, 1},
		{"too short", []float32{5, -3, 9}, 4},
		{"nothing", nil, 4},
	} {
		if wrong, _ := c.check(x.result); wrong != x.wrong {
			t.Errorf("%s: %d wrong, want %d", x.name, wrong, x.wrong)
		}
	}
	if n := differing([]float32{0, 1, nan}, []float32{float32(math.Copysign(0, -1)), 1, nan}); n != 1 {
		t.Errorf("%d elements differ, want the signed zero alone", n)
	}
}

func TestHalfULP(t *testing.T) {
	for _, v := range []float32{1, 1.5, 0.07, 3e38, 1e-30, 1e-40, math.SmallestNonzeroFloat32} {
		want := (float64(math.Nextafter32(v, float32(math.Inf(1)))) - float64(v)) / 2
		if v == 3e38 { // the next float32 up still exists
			want = math.Ldexp(1, 127-24)
		}
		if got := halfULP(float64(v)); got != want {
			t.Errorf("halfULP(%g) = %g, want %g", v, got, want)
		}
	}
}
