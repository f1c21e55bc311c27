package worker_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"gradnic/worker"
)

func TestNonFinite(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, v := range []float32{nan, inf, -inf, math.MaxFloat32, float32(math.Ldexp(1, 126)), -float32(math.Ldexp(1, 127))} {
		t.Run(fmt.Sprint(v), func(t *testing.T) {
			f := newFabric(t, 3, worker.Config{Elements: 64, Outstanding: 4}, nil)
			ctx := deadline(t)
			const n, at = 64*10 - 5, 64*6 + 7
			in, out := make([][]float32, 3), make([][]float32, 3)
			for r := range in {
				in[r] = randomFloats(r, n, 5)
			}
			in[1][at] = v
			_, errs := f.each(func(r int, w *worker.Worker) (worker.Stats, error) {
				out[r] = slices.Clone(in[r])
				return w.AllReduceFloat32(ctx, out[r], out[r])
			})
			for r, err := range errs {
				var e *worker.NonFiniteError
				if !errors.As(err, &e) {
					t.Fatalf("rank %d: %v, want a NonFiniteError", r, err)
				}
				if e.First != 64*6 || e.Last != 64*7 {
					t.Errorf("rank %d: block [%d, %d)", r, e.First, e.Last)
				}
				if r == 1 && (e.Index != at || math.Float32bits(e.Value) != math.Float32bits(v)) || r != 1 && e.Index != -1 {
					t.Errorf("rank %d: element %d is %v", r, e.Index, e.Value)
				}
				if c := worker.CheckFloat32(out[r], in, 64, 1); c.Wrong != 0 {
					t.Errorf("rank %d: %+v", r, c)
				}
			}
			f.reduceFloats(t, 1000, 1) // the session goes on
		})
	}
}

func TestSaturate(t *testing.T) {
	f := newFabric(t, 2, worker.Config{Elements: 64, Outstanding: 4, NonFinite: worker.Saturate}, nil)
	ctx := deadline(t)
	in := [][]float32{make([]float32, 200), make([]float32, 200)}
	in[0][3], in[0][70], in[0][130] = float32(math.Inf(1)), float32(math.NaN()), 1
	in[1][70], in[1][130], in[1][71] = 1, 2, -math.MaxFloat32
	out := [][]float32{make([]float32, 200), make([]float32, 200)}
	stats, errs := f.each(func(r int, w *worker.Worker) (worker.Stats, error) {
		return w.AllReduceFloat32(ctx, out[r], in[r])
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	big := math.Ldexp(1, 126)
	for r, s := range stats {
		if s.Saturated != 2 {
			t.Errorf("rank %d: %d blocks saturated, want 2", r, s.Saturated)
		}
		if got := float64(out[r][3]); math.Abs(got-big) > big*1e-6 {
			t.Errorf("rank %d: an infinity became %g", r, got)
		}
		if got := float64(out[r][71]); math.Abs(got+big) > big*1e-6 {
			t.Errorf("rank %d: -MaxFloat32 became %g", r, got)
		}
		if got := float64(out[r][130]); math.Abs(got-3) > 1e-6 {
			t.Errorf("rank %d: 1 + 2 = %g", r, got)
		}
	}
	if !math.IsInf(float64(in[0][3]), 1) {
		t.Error("the input was changed")
	}
}

// The flag of one that saturates is an error for one that does not.
func TestSaturateAndRefuseTogether(t *testing.T) {
	policies := []worker.NonFinite{worker.Saturate, worker.Refuse}
	f := newFabric(t, 2, worker.Config{Elements: 64, Outstanding: 4}, nil)
	for r, w := range f.workers {
		c := w.Config()
		c.NonFinite = policies[r]
		w.Close()
		var err error
		if f.workers[r], err = worker.Join(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	ctx := deadline(t)
	in := [][]float32{{1, float32(math.Inf(-1))}, {1, 1}}
	_, errs := f.each(func(r int, w *worker.Worker) (worker.Stats, error) {
		return w.AllReduceFloat32(ctx, make([]float32, 2), in[r])
	})
	var e *worker.NonFiniteError
	if errs[0] != nil || !errors.As(errs[1], &e) {
		t.Fatalf("saturating: %v; refusing: %v", errs[0], errs[1])
	}
}

func TestZerosAndSmallBlocks(t *testing.T) {
	f := newFabric(t, 4, worker.Config{Elements: 64, Outstanding: 4}, nil)
	ctx := deadline(t)
	for _, v := range []float32{0, float32(math.Copysign(0, -1)), 1e-45, 1e-38, 1e-30, 1e30, 8.5e37} {
		in, out := make([][]float32, 4), make([][]float32, 4)
		for r := range in {
			in[r], out[r] = make([]float32, 130), make([]float32, 130)
			in[r][0], in[r][129] = v, v
		}
		_, errs := f.each(func(r int, w *worker.Worker) (worker.Stats, error) {
			return w.AllReduceFloat32(ctx, out[r], in[r])
		})
		for r := range out {
			if errs[r] != nil {
				t.Fatalf("%g: %v", v, errs[r])
			}
			if c := worker.CheckFloat32(out[r], in, 64, 1); c.Wrong != 0 {
				t.Errorf("%g: %+v", v, c)
			}
			for i := 1; i < 64; i++ {
				if out[r][i] != 0 {
					t.Fatalf("%g: element %d is %g, want 0", v, i, out[r][i])
				}
			}
		}
	}
}
