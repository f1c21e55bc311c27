package kernel

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"gradnic/internal/cpu"
)

// tiers are the levels of assembly that this machine has.
func tiers(t testing.TB) (have []cpu.Tier) {
	for _, tier := range []cpu.Tier{cpu.AVX2, cpu.AVX512} {
		if tier <= best() {
			have = append(have, tier)
		} else {
			t.Logf("this machine has no %v: not tested", tier)
		}
	}
	return have
}

// specs are all of them; Int8 has no byte order.
func specs() (all []Spec) {
	for _, typ := range Types() {
		for order := range orders {
			for op := range ops {
				for policy := range policies {
					if typ != Int8 || order == 0 {
						all = append(all, Spec{typ, order, op, policy})
					}
				}
			}
		}
	}
	return all
}

// how wild random elements are.
type mood int

const (
	tame   mood = iota // nothing overflows
	sparse             // an element in 64 is wild
	wild               // any bits, and many special values
)

func (m mood) next(r *rand.Rand) bool {
	return m == wild || m == sparse && r.IntN(64) == 0
}

// specialFloats are where formats and policies change their mind.
var specialFloats = []float64{0, math.Copysign(0, -1), 1e-30, 1e-40, 5e-324, 0x1p-24, 0x1p-25, 0x1.8p-25, 0x1p-14, 0x1.ffcp-15,
	1, 2048, 2049, 65504, 65519.99, 65520, 1e30, math.MaxFloat32, 0x1.ffp127, 0x1.fefffep127, 0x1.fep127, math.MaxFloat64,
	math.Inf(1), math.NaN()}

// randomSlot fills a slot with elements of the given mood.
func randomSlot[A Element](r *rand.Rand, acc []A, m mood) {
	for i := range acc {
		isWild := m.next(r)
		switch p := any(&acc[i]).(type) {
		case *int32:
			*p = r.Int32N(2000) - 1000
			if isWild {
				*p = []int32{math.MinInt32, math.MaxInt32, math.MinInt32 + 1, -1, 127, 128, -128, -129, int32(r.Uint32())}[r.IntN(9)]
			}
		case *int64:
			*p = r.Int64N(1<<40) - 1<<39
			if isWild {
				*p = []int64{math.MinInt64, math.MaxInt64, -1, 1, int64(r.Uint64()), math.MinInt32}[r.IntN(6)]
			}
		case *float32:
			*p = float32(r.NormFloat64())
			if isWild {
				*p = math.Float32frombits(r.Uint32())
				switch r.IntN(8) {
				case 0, 1, 2:
					*p = float32(specialFloats[r.IntN(len(specialFloats))])
				case 3:
					*p = -float32(specialFloats[r.IntN(len(specialFloats))])
				case 4: // NaN with a payload, quiet or signalling
					*p = math.Float32frombits(0x7f800001 + r.Uint32N(1<<23-1) | r.Uint32()&(1<<31))
				}
			}
		case *float64:
			*p = r.NormFloat64()
			if isWild {
				*p = math.Float64frombits(r.Uint64())
				switch r.IntN(8) {
				case 0, 1, 2:
					*p = specialFloats[r.IntN(len(specialFloats))]
				case 3:
					*p = -specialFloats[r.IntN(len(specialFloats))]
				case 4:
					*p = math.Float64frombits(0x7ff0000000000001 + r.Uint64N(1<<52-1) | r.Uint64()&(1<<63))
				}
			}
		}
	}
}

// randomWire fills wire bytes of a spec with elements of the given mood.
func randomWire[A Element](r *rand.Rand, s Spec, dst []byte, m mood) {
	size := s.Type.Bytes()
	elements := make([]A, len(dst)/size)
	randomSlot(r, elements, m)
	encode(s, dst, elements)
	if s.Type == Int8 || s.Type == Float16 || s.Type == BFloat16 {
		for i := 0; i < len(dst); i += size { // bits that no rounding would give: payloads of NaN
			if m.next(r) && r.IntN(2) == 0 {
				for j := range size {
					dst[i+j] = byte(r.Uint32())
				}
			}
		}
	}
}

// bits compares elements as bits, so that NaN and -0 count.
func sameBits[A Element](a, b []A) (at int, same bool) {
	for i := range a {
		if bitsOf(a[i]) != bitsOf(b[i]) {
			return i, false
		}
	}
	return 0, len(a) == len(b)
}

// forSlot calls the version of a generic test that fits the spec's slot.
func forSlot(s Spec, i32, i64, f32, f64 func()) {
	[]func(){i32, i64, f32, f64}[slotOf(s.Type)]()
}

func testOps[A Element](t testing.TB, s Spec, tier cpu.Tier) *Ops[A] {
	t.Helper()
	o, err := newOps[A](s, tier)
	if err != nil {
		t.Fatal(err)
	}
	if has := o.loops.step != 0; has != (tier != cpu.Off) {
		t.Fatalf("%v at %v: assembly %v", s, tier, has)
	}
	return o
}

// rapidRand gives a generator that rapid can replay and shrink by its seed.
func rapidRand(t *rapid.T) *rand.Rand {
	return rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
}
