package worker_test

import (
	"context"
	"errors"
	"testing"

	"gradnic/worker"
)

// BenchmarkAllReduce is what one of eight workers and the NIC cost together, over memory ports: 1 MiB a worker.
func BenchmarkAllReduce(b *testing.B) {
	const n, elements = 8, 1 << 18
	f := newFabric(b, n, worker.Config{Elements: 256}, nil)
	ints, floats := make([][]int32, n), make([][]float32, n)
	for r := range n {
		ints[r], floats[r] = randomInts(r, elements, 1), randomFloats(r, elements, 1)
	}
	out, fout := make([][]int32, n), make([][]float32, n)
	for r := range n {
		out[r], fout[r] = make([]int32, elements), make([]float32, elements)
	}
	run := func(b *testing.B, do func(r int, w *worker.Worker) (worker.Stats, error)) {
		b.SetBytes(4 * elements)
		b.ReportAllocs()
		var resent uint64
		for b.Loop() {
			stats, errs := f.each(do)
			if err := errors.Join(errs...); err != nil {
				b.Fatal(err)
			}
			for _, s := range stats {
				resent += s.Resent
			}
		}
		b.ReportMetric(float64(resent)/float64(b.N), "resent/op")
	}
	b.Run("int32", func(b *testing.B) {
		run(b, func(r int, w *worker.Worker) (worker.Stats, error) {
			return w.AllReduceInt32(context.Background(), out[r], ints[r])
		})
	})
	b.Run("float32", func(b *testing.B) {
		run(b, func(r int, w *worker.Worker) (worker.Stats, error) {
			return w.AllReduceFloat32(context.Background(), fout[r], floats[r])
		})
	})
}
