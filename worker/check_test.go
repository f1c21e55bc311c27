package worker_test

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"gradnic/codec"
	"gradnic/worker"
)

func TestCheckInt32(t *testing.T) {
	in := [][]int32{{1, math.MaxInt32, -5}, {2, 1, 5}}
	if c := worker.CheckInt32([]int32{3, math.MinInt32, 0}, in); c.Wrong != 0 || c.First != -1 {
		t.Errorf("right and wrapped: %+v", c)
	}
	if c := worker.CheckInt32([]int32{3, math.MaxInt32, 1}, in); c.Wrong != 2 || c.First != 1 {
		t.Errorf("two wrong: %+v", c)
	}
}

func TestCheckFloat32(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	in := [][]float32{{1, 2, 3}, {4, 5, 6}}
	large := slices.Repeat([][]float32{{8e37, -8e37, 6e37}}, 5)
	for _, c := range []struct {
		name  string
		got   []float32
		in    [][]float32
		wrong int
		first int
	}{
		{"right", []float32{5, 7, 9}, in, 0, -1},
		{"within the bound", []float32{0.0020005, 1001}, [][]float32{{0.001, 1000}, {0.001, 1}}, 0, -1},
		{"just outside", []float32{0.002002, 1001}, [][]float32{{0.001, 1000}, {0.001, 1}}, 1, 0},
		{"off", []float32{5, 7.001, 9}, in, 1, 1},
		{"not a number", []float32{nan, 7, 9}, in, 1, 0},
		{"infinite", []float32{5, 7, inf}, in, 1, 2},
		{"beyond the range", []float32{inf, -inf, inf}, large, 1, 2},
		{"beyond the range, the other sign", []float32{-inf, inf, 3e38}, large, 2, 0},
		{"beyond the range, and finite", []float32{math.MaxFloat32, -inf, 3e38}, large, 1, 0},
		{"a contribution missing", []float32{1, 2, 3}, in, 3, 0},
		{"lost and said so", []float32{nan, nan, nan}, [][]float32{{1, 2, inf}, {4, 5, 6}}, 0, -1},
		{"lost and a finite number", []float32{5, nan, nan}, [][]float32{{1, 2, nan}, {4, 5, 6}}, 1, 0},
	} {
		if got := worker.CheckFloat32(c.got, c.in, 64, 1); got.Wrong != c.wrong || got.First != c.first {
			t.Errorf("%s: %+v, want %d wrong, the first %d", c.name, got, c.wrong, c.first)
		}
	}
	// Blocks begin anew in each thread's share: [0, 3) and [3, 5) here.
	shared := [][]float32{{1, 1, 1, 1e-9, 1e-9}}
	if c := worker.CheckFloat32([]float32{1, 1, 1, 1e-9, 1.1e-9}, shared, 64, 2); c.Wrong != 1 || c.First != 4 {
		t.Errorf("two threads: %+v", c)
	}
	if c := worker.CheckFloat32([]float32{1, 1, 1, 1e-9, 1.1e-9}, shared, 64, 1); c.Wrong != 0 {
		t.Errorf("one thread: %+v", c)
	}
}

// The bound holds for the format's own arithmetic, whatever the values, also where many large ones add up to an infinity.
func TestSumBoundHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		workers := rapid.IntRange(1, worker.MaxWorkers).Draw(t, "workers")
		in := make([][]float32, workers)
		exp := codec.MinExponent
		for w := range in {
			in[w] = make([]float32, 4)
			for i := range in[w] {
				bits := rapid.Uint32Range(0, 0x7e7fffff).Draw(t, "magnitude") // below 2^126
				in[w][i] = math.Float32frombits(bits | uint32(rapid.IntRange(0, 1).Draw(t, "sign"))<<31)
			}
			e, finite := codec.MaxExponent(in[w])
			if !finite {
				t.Fatalf("%v cannot be carried", in[w])
			}
			exp = max(exp, e)
		}
		sum, part, got := make([]int32, 4), make([]int32, 4), make([]float32, 4)
		for w := range in {
			codec.Quantise(part, in[w], exp, workers)
			for i := range sum {
				sum[i] += part[i]
			}
		}
		codec.Dequantise(got, sum, exp, workers)
		if c := worker.CheckFloat32(got, in, 64, 1); c.Wrong != 0 || c.MaxAbsErr > c.MaxBound {
			t.Fatalf("%+v", c)
		}
	})
}
