package dataplane

import (
	"runtime"
	"testing"

	"pgregory.net/rapid"
)

// TestSPSCAgainstQueue compares with a slice.
func TestSPSCAgainstQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newSPSC[int](rapid.IntRange(1, 20).Draw(t, "room"))
		var model []int
		next := 0
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			n := rapid.IntRange(0, 9).Draw(t, "n")
			if rapid.Bool().Draw(t, "push") {
				v := make([]int, n)
				for i := range v {
					v[i] = next + i
				}
				took := r.push(v)
				if want := min(n, len(r.buf)-len(model)); took != want {
					t.Fatalf("pushed %d of %d, want %d", took, n, want)
				}
				model = append(model, v[:took]...)
				next += took
			} else {
				out := make([]int, n)
				got := r.pop(out)
				if got != min(n, len(model)) {
					t.Fatalf("popped %d of %d", got, len(model))
				}
				for i := range got {
					if out[i] != model[i] {
						t.Fatalf("popped %v, want %v", out[:got], model[:got])
					}
				}
				model = model[got:]
			}
			if r.len() != len(model) || r.empty() != (len(model) == 0) || r.full() != (len(model) == len(r.buf)) {
				t.Fatalf("len %d empty %v full %v, want %d", r.len(), r.empty(), r.full(), len(model))
			}
		}
	})
}

// TestSPSCOrder passes numbers from one goroutine to another.
func TestSPSCOrder(t *testing.T) {
	const total = 200000
	r := newSPSC[uint64](64)
	go func() {
		var v [7]uint64
		for sent := uint64(0); sent < total; {
			n := min(uint64(len(v)), total-sent)
			for i := range n {
				v[i] = sent + i
			}
			k := r.push(v[:n])
			if k == 0 {
				runtime.Gosched()
			}
			sent += uint64(k)
		}
	}()
	var out [11]uint64
	for want := uint64(0); want < total; {
		n := r.pop(out[:])
		if n == 0 {
			runtime.Gosched()
		}
		for _, v := range out[:n] {
			if v != want {
				t.Fatalf("got %d, want %d", v, want)
			}
			want++
		}
	}
}
