package training

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
)

// exact is an all-reduce in memory: the mean, added by rank.
func exact(workers int) Reduce {
	var mu sync.Mutex
	cond := sync.NewCond(&mu)
	parts := make([][]float32, workers)
	arrived, gone, turn := 0, 0, 0
	var mean []float32
	return func(rank int, dst, src []float32) error {
		mu.Lock()
		defer mu.Unlock()
		mine := turn
		parts[rank] = src
		if arrived++; arrived == workers {
			mean = make([]float32, len(src))
			for _, p := range parts {
				for i, v := range p {
					mean[i] += v
				}
			}
			for i := range mean {
				mean[i] /= float32(workers)
			}
			arrived, gone = 0, 0
			turn++
			cond.Broadcast()
		}
		for turn == mine {
			cond.Wait()
		}
		copy(dst, mean)
		gone++
		return nil
	}
}

// The gradient is that of finite differences.
func TestGradient(t *testing.T) {
	s := Size{Embed: 5, Hidden: 7, Steps: 6, Batch: 3}
	m, g, tp := newModel(s), newModel(s), newTape(s)
	m.initialise(3)
	at := []int{100, 2000, 777}
	m.forward(tp, text, at)
	m.backward(tp, g, text, at)
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		i := r.IntN(len(m.flat))
		const d = 1e-2
		v := m.flat[i]
		m.flat[i] = v + d
		up := m.forward(tp, text, at)
		m.flat[i] = v - d
		down := m.forward(tp, text, at)
		m.flat[i] = v
		if want := (up - down) / (2 * d); math.Abs(want-float64(g.flat[i])) > 2e-4+0.02*math.Abs(want) {
			t.Fatalf("parameter %d: gradient %v, differences give %v", i, g.flat[i], want)
		}
	}
}

// It learns, and the same run gives the same losses to the last bit.
func TestLearnsAndRepeats(t *testing.T) {
	o := Options{Size: Size{Embed: 8, Hidden: 24, Steps: 16, Batch: 4}, Workers: 3, Steps: 60, Rate: 1e-2, Seed: 1}
	a, err := Run(o, exact(3))
	if err != nil {
		t.Fatal(err)
	}
	if a.Losses[0] < 4.5 || a.Final > 3.4 || a.Held > 3.6 || a.Final > a.Losses[0]-1 {
		t.Errorf("losses from %.3f to %.3f, %.3f on text that was held back", a.Losses[0], a.Final, a.Held)
	}
	b, err := Run(o, exact(3))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(a.Losses, b.Losses) || a.Held != b.Held {
		t.Error("the same run gave other losses")
	}
}

// Workers that get different results are found.
func TestReplicasMustAgree(t *testing.T) {
	o := Options{Size: Size{Embed: 4, Hidden: 4, Steps: 4, Batch: 1}, Workers: 2, Steps: 2}
	if _, err := Run(o, func(rank int, dst, src []float32) error { copy(dst, src); return nil }); err == nil {
		t.Error("each has its own gradient, and nobody says so")
	}
}

func BenchmarkStep(b *testing.B) {
	m, g, t := newModel(DefaultSize), newModel(DefaultSize), newTape(DefaultSize)
	m.initialise(1)
	at := make([]int, DefaultSize.Batch)
	for i := range at {
		at[i] = i * 1000
	}
	for b.Loop() {
		m.forward(t, text, at)
		m.backward(t, g, text, at)
	}
}
