package kernel

import (
	"fmt"
	"math"
	"math/big"
	"testing"

	"gradnic/internal/cpu"
)

// TestPolicyFloats sends one special value from one of 1, 2, 8 and 64 workers, whose others send 1, and looks at what
// the slot and the wire hold and how often it is flagged. The value stands in one lane among ordinary ones.
func TestPolicyFloats(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	cases := []struct {
		value float64
		slot  map[Type]float64 // result of one worker under Propagate where it is not the value itself
	}{
		{0, nil},
		{1e-30, map[Type]float64{Float16: 0, Float32: float64(float32(1e-30)), BFloat16: 0x1.44p-100}},
		{0x1p-149, map[Type]float64{Float16: 0, BFloat16: 0}},
		{0x1p-24, nil},
		{65504, map[Type]float64{BFloat16: 65536}},
		{65519, map[Type]float64{Float16: 65504, BFloat16: 65536}},
		{65520, map[Type]float64{Float16: inf, BFloat16: 65536}},
		{1e30, map[Type]float64{Float16: inf, Float32: float64(float32(1e30)), BFloat16: 0x1.94p99}},
		{math.MaxFloat32, map[Type]float64{Float16: inf, BFloat16: inf}},
		{inf, nil},
		{nan, nil},
	}
	largest := map[Type]float64{Float16: 65504, BFloat16: 0x1.fep127, Float32: math.MaxFloat32, Float64: math.MaxFloat64}
	for _, tier := range append(tiers(t), cpu.Off) {
		for _, typ := range []Type{Float16, BFloat16, Float32, Float64} {
			for _, policy := range []Policy{Propagate, Saturate} {
				s := Spec{Type: typ, Order: LittleEndian, Policy: policy}
				for _, c := range cases {
					for _, sign := range []float64{1, -1} {
						want, changed := c.slot[typ]
						if !changed {
							want = c.value
						}
						want *= sign
						flags := 0
						if math.IsInf(want, 0) || math.IsNaN(want) {
							flags = 1
						}
						if math.IsInf(want, 0) && policy == Saturate {
							want = math.Copysign(largest[typ], want)
						}
						name := fmt.Sprintf("%v %v at %v: %v", typ, policy, tier, sign*c.value)
						if slotOf(typ) == kindFloat64 {
							oneWorker[float64](t, name, s, tier, sign*c.value, want, flags)
						} else {
							oneWorker[float32](t, name, s, tier, sign*c.value, want, flags)
						}
					}
				}
			}
		}
	}
}

// oneWorker checks the case of one worker, and that the flag survives however many come before or after.
func oneWorker[A Element](t *testing.T, name string, s Spec, tier cpu.Tier, value, want float64, flags int) {
	t.Helper()
	const n, lane = 37, 21
	size := s.Type.Bytes()
	o := testOps[A](t, s, tier)
	special := make([]A, n)
	ones := make([]A, n)
	for i := range ones {
		special[i], ones[i] = elementOf[A](1), elementOf[A](1)
	}
	special[lane] = elementOf[A](value)
	out := make([]byte, n*size)
	if got := o.Put(out, special); got != flags {
		t.Errorf("%s: put flags %d elements, want %d", name, got, flags)
	}
	got := make([]A, n)
	o.Set(got, out)
	for i, v := range got {
		w := elementOf[A](1)
		if i == lane {
			w = elementOf[A](want)
		}
		if bitsOf(v) != bitsOf(w) && !(v != v && w != w) {
			t.Errorf("%s: element %d is %v, want %v", name, i, v, w)
		}
	}
	wire, specialWire, sent := make([]byte, n*size), make([]byte, n*size), make([]A, n)
	encode(s, wire, ones)
	encode(s, specialWire, special)
	decode(s, sent, specialWire)
	for _, workers := range []int{2, 8, 64} {
		for _, at := range []int{0, workers / 2, workers - 1} { // which worker sends the special value
			acc, flagged := make([]A, n), 0
			for w := range workers {
				src := wire
				if w == at {
					src = specialWire
				}
				if w == 0 {
					flagged += o.Set(acc, src)
				} else {
					flagged += o.Fold(acc, src)
				}
			}
			flagged += o.Put(out, acc)
			for i, v := range acc {
				if i != lane && v != elementOf[A](float64(workers)) {
					t.Errorf("%s: element %d of %d workers is %v", name, i, workers, v)
				}
			}
			// What is not finite on the wire can never become a finite result without a flag.
			if sent[lane]-sent[lane] != 0 && flagged == 0 {
				t.Errorf("%s: %d workers, sent by %d: nothing flagged, result %v", name, workers, at, acc[lane])
			}
			if s.Policy == Saturate && value == value && acc[lane]-acc[lane] != 0 {
				t.Errorf("%s: %d workers, sent by %d: saturated slot holds %v", name, workers, at, acc[lane])
			}
			if value != value && acc[lane] == acc[lane] {
				t.Errorf("%s: %d workers, sent by %d: NaN became %v", name, workers, at, acc[lane])
			}
		}
	}
}

func elementOf[A Element](v float64) (out A) {
	switch p := any(&out).(type) {
	case *float32:
		*p = float32(v)
	case *float64:
		*p = v
	}
	return out
}

// TestPolicyIntegers adds to the bounds, in every lane.
func TestPolicyIntegers(t *testing.T) {
	for _, tier := range append(tiers(t), cpu.Off) {
		for _, c := range []struct {
			a, b, wrap, saturate int32
			flag                 int
		}{
			{math.MaxInt32, 1, math.MinInt32, math.MaxInt32, 1},
			{math.MinInt32, -1, math.MaxInt32, math.MinInt32, 1},
			{math.MinInt32, math.MinInt32, 0, math.MinInt32, 1},
			{math.MaxInt32, math.MaxInt32, -2, math.MaxInt32, 1},
			{math.MaxInt32, -1, math.MaxInt32 - 1, math.MaxInt32 - 1, 0},
			{math.MinInt32, math.MaxInt32, -1, -1, 0},
			{-1, 1, 0, 0, 0},
		} {
			for _, policy := range []Policy{Propagate, Saturate} {
				s := Spec{Type: Int32, Policy: policy}
				want := c.wrap
				if policy == Saturate {
					want = c.saturate
				}
				const n = 77
				o := testOps[int32](t, s, tier)
				for lane := range n {
					acc, in := make([]int32, n), make([]int32, n)
					acc[lane], in[lane] = c.a, c.b
					src := make([]byte, 4*n)
					encode(s, src, in)
					if got := o.Fold(acc, src); got != c.flag || acc[lane] != want {
						t.Fatalf("%v at %v: %d + %d in lane %d is %d, %d flagged, want %d, %d", s, tier, c.a, c.b, lane, acc[lane], got, want, c.flag)
					}
				}
			}
		}
	}
}

// TestDivide checks means against rational arithmetic.
func TestDivide(t *testing.T) {
	exact := func(v int64, n int) int64 {
		q := new(big.Rat).SetFrac64(v, int64(n))
		twice := new(big.Rat).Add(q, q)
		floor := new(big.Int).Div(q.Num(), q.Denom()) // Euclidean: rounds down for a positive divisor
		half := new(big.Rat).Sub(twice, new(big.Rat).SetInt(new(big.Int).Lsh(floor, 1)))
		up := half.Cmp(big.NewRat(1, 1)) > 0 || half.Cmp(big.NewRat(1, 1)) == 0 && floor.Bit(0) == 1
		if up {
			floor.Add(floor, big.NewInt(1))
		}
		return floor.Int64()
	}
	values := []int64{0, 1, -1, 2, 3, -3, 5, 7, -7, 1000, math.MaxInt32, math.MinInt32, math.MaxInt32 - 1, 1<<30 + 1}
	wide := append([]int64{math.MaxInt64, math.MinInt64, math.MaxInt64 - 1, 1<<62 + 1}, values...)
	for _, tier := range append(tiers(t), cpu.Off) {
		for _, n := range []int{1, 2, 3, 4, 7, 8, 64, 1000, 1024, math.MaxInt32} {
			a, b := make([]int32, len(values)), make([]int64, len(wide))
			for i, v := range values {
				a[i] = int32(v)
			}
			copy(b, wide)
			testOps[int32](t, Spec{}, tier).Divide(a, n)
			testOps[int64](t, Spec{Type: Int64}, tier).Divide(b, n)
			for i, v := range values {
				if want := exact(v, n); int64(a[i]) != want {
					t.Errorf("int32 at %v: %d/%d = %d, want %d", tier, v, n, a[i], want)
				}
			}
			for i, v := range wide {
				if want := exact(v, n); b[i] != want {
					t.Errorf("int64 at %v: %d/%d = %d, want %d", tier, v, n, b[i], want)
				}
			}
		}
	}
}
