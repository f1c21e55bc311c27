package native

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"gradnic/aggregation"
	"gradnic/codec"
	"gradnic/dataplane"
)

// thcRigs are a NIC for the norms and one for the values, which lose, double and reorder.
func thcRigs(t *testing.T, workers int) (norms, sums *rig) {
	t.Helper()
	job := func(x dataplane.NativeSpec) *rig {
		x.Deadline = 20 * time.Second
		r := newRig(t, dataplane.JobSpec{Workers: workers, Slots: 8, Elements: 200, Native: &x})
		r.kill(badLink)
		return r
	}
	return job(dataplane.NativeSpec{Type: aggregation.Float32, Op: aggregation.Max}), job(dataplane.NativeSpec{Type: aggregation.Int8})
}

func badLink(int) dataplane.Impairment {
	return dataplane.Impairment{IngressLoss: 0.03, EgressLoss: 0.03, Duplicate: 0.05, Reorder: 0.1, ReorderBy: 5}
}

func newTHCs(t *testing.T, norms, sums []*Worker, seed uint64) []*THC {
	t.Helper()
	all := make([]*THC, len(norms))
	for rank := range all {
		var err error
		if all[rank], err = NewTHC(norms[rank], sums[rank], seed); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// What comes back is, bit by bit, what the table makes of the sum of all workers' table values, at every worker, whatever is
// lost on the way and when the NIC dies in the middle; and it is near the true sum.
func TestTHC(t *testing.T) {
	for _, workers := range []int{1, 3, 8, 15} {
		t.Run(fmt.Sprint(workers), func(t *testing.T) {
			const seed = 7
			a, b := thcRigs(t, workers)
			all := newTHCs(t, a.join(), b.join(), seed)
			table, err := codec.NewTHC(map[bool]int{true: 30, false: 16}[workers <= 8])
			if err != nil {
				t.Fatal(err)
			}
			for k, n := range []int{3000, 0, 1, 1024, 5} {
				inputs, outs := make([][]float32, workers), make([][]float32, workers)
				for rank := range inputs {
					inputs[rank], outs[rank] = gauss(uint64(20*k+rank), n), make([]float32, n)
					for i := range min(n, 1024) { // blocks and workers differ in scale
						inputs[rank][i] *= float32(rank+1) * 1e-3
					}
				}
				done := make(chan struct{})
				go func() {
					defer close(done)
					if k == 0 {
						time.Sleep(5 * time.Millisecond)
						b.kill(badLink)
					}
				}()
				each(t, workers, func(ctx context.Context, rank int) error {
					return all[rank].AllReduce(ctx, outs[rank], inputs[rank], uint64(k))
				})
				<-done

				most := make([]float32, codec.THCBlocks(n))
				for _, x := range inputs {
					own := make([]float32, len(most))
					codec.THCNorms(own, x)
					for i, v := range own {
						most[i] = max(most[i], v)
					}
				}
				acc, want := make([]uint8, codec.THCPadded(n)), make([]float32, n)
				for rank, x := range inputs {
					indices := make([]byte, len(acc)/2)
					table.Encode(indices, x, most, &codec.State{Seed: seed, Round: uint64(k), Worker: uint32(rank)})
					table.Add(acc, indices)
				}
				table.DecodeSum(want, acc, workers, most, &codec.State{Seed: seed, Round: uint64(k)})
				var off, energy float64
				for rank := range outs {
					if i, ok := firstDifference(outs[rank], want); !ok {
						t.Fatalf("call %d of %d elements, rank %d, element %d: %v, want %v", k, n, rank, i, outs[rank][i], want[i])
					}
				}
				for i := range want {
					sum := 0.0
					for _, x := range inputs {
						sum += float64(x[i])
					}
					off, energy = off+(float64(want[i])-sum)*(float64(want[i])-sum), energy+sum*sum
				}
				if n >= 1024 && off > 0.08*energy {
					t.Errorf("%d elements: the error has %.3f of the sum's energy", n, off/energy)
				}
			}
		})
	}
}

// One worker's NaN makes its block NaN at all workers, and no other.
func TestTHCKeepsNaN(t *testing.T) {
	a, b := thcRigs(t, 2)
	all := newTHCs(t, a.join(), b.join(), 1)
	outs := [][]float32{make([]float32, 2048), make([]float32, 2048)}
	each(t, 2, func(ctx context.Context, rank int) error {
		x := gauss(uint64(rank), 2048)
		if rank == 1 {
			x[1500] = float32(math.NaN())
		}
		return all[rank].AllReduce(ctx, outs[rank], x, 0)
	})
	for rank, x := range outs {
		for i, v := range x {
			if (v != v) != (i >= 1024) {
				t.Fatalf("rank %d, element %d: %v", rank, i, v)
			}
		}
	}
}

func TestTHCRefused(t *testing.T) {
	worker := func(rank, workers int, x dataplane.NativeSpec) *Worker {
		t.Helper()
		r := newRig(t, dataplane.JobSpec{Workers: workers, Native: &x})
		return r.join()[rank]
	}
	norms := worker(0, 2, dataplane.NativeSpec{Type: aggregation.Float32, Op: aggregation.Max})
	sums := worker(0, 2, dataplane.NativeSpec{Type: aggregation.Int8})
	for _, c := range []struct {
		norms, sums *Worker
		say         string
	}{
		{sums, sums, "must be max of float32"},
		{worker(0, 2, dataplane.NativeSpec{Type: aggregation.Float32}), sums, "must be max of float32"},
		{worker(0, 2, dataplane.NativeSpec{Type: aggregation.Float32, Op: aggregation.Max, Codec: "bfp16"}), sums, "without"},
		{norms, norms, "must be sum of int8"},
		{norms, worker(0, 2, dataplane.NativeSpec{Type: aggregation.Int8, Op: aggregation.Max}), "must be sum of int8"},
		{norms, worker(1, 2, dataplane.NativeSpec{Type: aggregation.Int8}), "rank 1"},
		{norms, worker(0, 3, dataplane.NativeSpec{Type: aggregation.Int8}), "of 3"},
		{worker(0, 16, dataplane.NativeSpec{Type: aggregation.Float32, Op: aggregation.Max}), worker(0, 16, dataplane.NativeSpec{Type: aggregation.Int8}), "at most 15"},
	} {
		if _, err := NewTHC(c.norms, c.sums, 0); err == nil || !strings.Contains(err.Error(), c.say) {
			t.Errorf("%v, want %q", err, c.say)
		}
	}
	x, err := NewTHC(norms, sums, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := x.AllReduce(t.Context(), make([]float32, 3), make([]float32, 4), 0); err == nil {
		t.Error("dst and src of different lengths")
	}
}

// A worker that adds something else on the same jobs is noticed where the sum shows it.
func TestTHCSumOfOtherValues(t *testing.T) {
	a, b := thcRigs(t, 2)
	norms, sums := a.join(), b.join()
	x, err := NewTHC(norms[0], sums[0], 0)
	if err != nil {
		t.Fatal(err)
	}
	each(t, 2, func(ctx context.Context, rank int) error {
		if rank == 0 {
			src := gauss(1, 100)
			if err := x.AllReduce(ctx, src, src, 0); err == nil || !strings.Contains(err.Error(), "not all of them use THC") {
				return fmt.Errorf("the sum was taken: %v", err)
			}
			return nil
		}
		most := make([]float32, 1)
		if _, err := AllReduce(ctx, norms[1], most, most); err != nil {
			return err
		}
		values := make([]int8, 1024)
		for i := range values {
			values[i] = 100
		}
		_, err := AllReduce(ctx, sums[1], values, values)
		return err
	})
}
