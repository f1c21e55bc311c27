package aggregation

import (
	"bytes"
	"fmt"
	"math"
	"testing"
)

// special is a value in one lane of one worker, where all others send 0, and
// what the result has there: the value as the type's own bits have it under
// Propagate, and how it is flagged.
type special struct {
	value float64
	wire  map[Type]float64 // what an encoder makes of it, where that is another number
}

var specials = []special{
	{0, nil},
	{math.Copysign(0, -1), nil},
	{1e-30, map[Type]float64{Float32: float64(float32(1e-30)), Float16: 0, BFloat16: 0x1.44p-100, BFP16: 0x1.44p-100}},
	{0x1p-149, map[Type]float64{Float16: 0, BFloat16: 0, BFP16: 0}},
	{-0x1p-24, nil},
	{65504, map[Type]float64{BFloat16: 65536, BFP16: 65024}},
	{65520, map[Type]float64{Float16: math.Inf(1), BFloat16: 65536, BFP16: 65024}},
	{1e30, map[Type]float64{Float32: float64(float32(1e30)), Float16: math.Inf(1), BFloat16: 0x1.94p99, BFP16: 0x1.94p99}},
	{math.MaxFloat32, map[Type]float64{Float16: math.Inf(1), BFloat16: math.Inf(1), BFP16: 0x1.fcp127}},
	{math.Inf(1), map[Type]float64{BFP16: math.NaN()}},
	{math.Inf(-1), map[Type]float64{BFP16: math.NaN()}},
	{math.NaN(), nil},
}

var largest = map[Type]float64{Float16: 65504, BFloat16: 0x1.fep127, Float32: math.MaxFloat32, Float64: math.MaxFloat64}

// A special value in one lane of one worker, for 1, 2, 8 and 64 workers, every
// float type and both orders: the policy, exactly, the flags and the counters.
func TestSpecialValues(t *testing.T) {
	const n, lane = 37, 21
	for _, typ := range []Type{Float32, Float64, Float16, BFloat16, BFP16} {
		for _, c := range specials {
			for _, policy := range []Policy{Propagate, Saturate} {
				for i, workers := range []int{1, 2, 8, 64, 64} {
					s := Spec{Rule: Rounds, Workers: workers, Slots: 1, Elements: n, Type: typ, Policy: policy, Order: Order(i & 1)}
					at := []int{0, workers / 2, workers - 1}[i%3]
					out, p := playSpecial(t, s, c.value, lane, at)

					want, changed := c.wire[typ]
					if !changed {
						want = c.value
					}
					if want == 0 && (workers > 1 || typ == BFP16) {
						want = 0 // -0 + 0 is 0, and BFP16 has no -0
					}
					var flags Flags
					var counters Counters
					poisoned := 1 // elements that are NaN with it
					if typ == BFP16 {
						poisoned = 16
					}
					switch {
					case math.IsNaN(want):
						flags, counters.NonFinite = FlagNonFinite, uint64(poisoned)
					case math.IsInf(want, 0) && policy == Propagate:
						flags, counters.NonFinite = FlagNonFinite, 1
					case math.IsInf(want, 0):
						flags, want = FlagSaturated, math.Copysign(largest[typ], want)
					}
					name := fmt.Sprintf("%v %v %v: %v of worker %d of %d", typ, policy, s.Order, c.value, at, workers)
					_, got := (&numbers{Spec: s}).decode(out)
					for e, v := range got {
						w := 0.0
						if e == lane {
							w = want
						} else if typ == BFP16 && math.IsNaN(want) && e/16 == lane/16 {
							w = math.NaN()
						}
						if math.Float64bits(v) != math.Float64bits(w) && !(v != v && w != w) {
							t.Errorf("%s: element %d is %v, want %v", name, e, v, w)
						}
					}
					f, cs := p.Flags(0, 0), p.Counters()
					if flags == FlagSaturated && cs.Saturated > 0 {
						counters.Saturated = cs.Saturated // once by each step that clamps
					}
					if f != flags || cs != counters {
						t.Errorf("%s: %v %+v, want %v %+v", name, f, cs, flags, counters)
					}
				}
			}
		}
	}
}

// playSpecial runs one round.
func playSpecial(t *testing.T, s Spec, value float64, lane, at int) ([]byte, *Pool) {
	t.Helper()
	p := mustPool(t, s)
	out := make([]byte, s.WireBytes())
	for w := range s.Workers {
		sender := Spec{Elements: s.Elements, Type: s.Type, ByteOrder: s.ByteOrder} // rounds as IEEE 754 says, whatever the policy
		m := &numbers{Spec: sender, floats: make([]float64, s.Elements)}
		if w == at {
			m.floats[lane] = value
			if s.Type != Float64 {
				m.floats[lane] = float64(float32(value))
			}
		}
		p.Contribute(&Contribution{Worker: w, Values: m.encode(make([]bool, s.Elements))}, 0, out)
	}
	if p.State(0, 0).Phase != Complete {
		t.Fatal("the round did not complete")
	}
	return out, p
}

// All workers send the same value, and the sum does not fit; or infinities of
// both signs. By hand.
func TestOverflow(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	for _, c := range []struct {
		typ                 Type
		op                  Op
		sent                []float64
		propagate, saturate float64
		flagP, flagS        Flags
	}{
		{Float16, Sum, []float64{65504, 65504}, inf, 65504, FlagNonFinite, FlagSaturated},
		{Float16, Mean, []float64{65504, 65504}, 65504, 65504, 0, 0}, // the slot is wide enough
		{Float16, Sum, []float64{65504, 65504, -65504}, 65504, 65504, 0, 0},
		{Float16, Sum, []float64{65504, 8, 7}, 65504, 65504, 0, 0},                     // below the tie
		{Float16, Sum, []float64{65504, 16}, inf, 65504, FlagNonFinite, FlagSaturated}, // the tie
		{BFloat16, Sum, []float64{-0x1.fep127, -0x1.fep127}, -inf, -0x1.fep127, FlagNonFinite, FlagSaturated},
		{BFloat16, Max, []float64{-0x1.fep127, 0x1.fep127}, 0x1.fep127, 0x1.fep127, 0, 0},
		{Float32, Sum, []float64{math.MaxFloat32, math.MaxFloat32}, inf, math.MaxFloat32, FlagNonFinite, FlagSaturated},
		{Float32, Sum, []float64{math.MaxFloat32, 1e30, -1e30}, math.MaxFloat32, math.MaxFloat32, 0, 0},
		{Float32, Sum, []float64{inf, -inf}, nan, -math.MaxFloat32, FlagNonFinite, FlagSaturated},
		{Float32, Sum, []float64{inf, nan}, nan, nan, FlagNonFinite, FlagNonFinite | FlagSaturated},
		{Float32, Mean, []float64{math.MaxFloat32, math.MaxFloat32}, inf, math.MaxFloat32 / 2, FlagNonFinite, FlagSaturated},
		{Float32, Min, []float64{inf, 1}, 1, 1, 0, FlagSaturated},
		{Float32, Min, []float64{nan, 1}, nan, nan, FlagNonFinite, FlagNonFinite},
		{Float32, Max, []float64{1, nan}, nan, nan, FlagNonFinite, FlagNonFinite},
		{Float32, Min, []float64{0, math.Copysign(0, -1)}, math.Copysign(0, -1), math.Copysign(0, -1), 0, 0},
		{Float64, Sum, []float64{math.MaxFloat64, math.MaxFloat64}, inf, math.MaxFloat64, FlagNonFinite, FlagSaturated},
		{Float64, Sum, []float64{math.MaxFloat32, math.MaxFloat32}, 2 * math.MaxFloat32, 2 * math.MaxFloat32, 0, 0},
		{BFP16, Sum, []float64{0x1.fcp127, 0x1.fcp127}, nan, 0x1.fcp127, FlagNonFinite, FlagSaturated},
	} {
		for _, policy := range []Policy{Propagate, Saturate} {
			s := Spec{Rule: Rounds, Workers: len(c.sent), Slots: 1, Elements: 1, Type: c.typ, Op: c.op, Policy: policy}
			p := mustPool(t, s)
			out := make([]byte, s.WireBytes())
			sender := Spec{Elements: 1, Type: c.typ}
			for w, v := range c.sent {
				m := &numbers{Spec: sender, floats: []float64{v}}
				p.Contribute(&Contribution{Worker: w, Values: m.encode(make([]bool, 1))}, 0, out)
			}
			want, flags := c.propagate, c.flagP
			if policy == Saturate {
				want, flags = c.saturate, c.flagS
			}
			_, got := (&numbers{Spec: s}).decode(out)
			if f := p.Flags(0, 0); math.Float64bits(got[0]) != math.Float64bits(want) && !(got[0] != got[0] && want != want) || f != flags {
				t.Errorf("%v %v of %v, %v: %v %v, want %v %v", c.typ, c.op, c.sent, policy, got[0], f, want, flags)
			}
		}
	}
}

// Integers at the ends of their ranges. By hand.
func TestIntegerOverflow(t *testing.T) {
	for _, c := range []struct {
		typ            Type
		op             Op
		sent           []int64
		wrap, saturate int64
		counted        uint64
	}{
		{Int32, Sum, []int64{math.MaxInt32, 1}, math.MinInt32, math.MaxInt32, 1},
		{Int32, Sum, []int64{math.MinInt32, -1}, math.MaxInt32, math.MinInt32, 1},
		{Int32, Sum, []int64{math.MaxInt32, math.MinInt32}, -1, -1, 0},
		{Int32, Mean, []int64{math.MaxInt32, math.MaxInt32 - 2}, -2, math.MaxInt32/2 + 1, 1},
		{Int32, Mean, []int64{3, 4}, 4, 4, 0}, // 3.5, to even
		{Int32, Mean, []int64{2, 3}, 2, 2, 0}, // 2.5, to even
		{Int32, Mean, []int64{-3, -4}, -4, -4, 0},
		{Int32, Min, []int64{math.MinInt32, math.MaxInt32}, math.MinInt32, math.MinInt32, 0},
		{Int64, Sum, []int64{math.MaxInt64, 1}, math.MinInt64, math.MaxInt64, 1},
		{Int64, Sum, []int64{math.MinInt64, math.MinInt64}, 0, math.MinInt64, 1},
		{Int64, Sum, []int64{math.MaxInt32, math.MaxInt32}, 2 * math.MaxInt32, 2 * math.MaxInt32, 0},
		{Int8, Sum, []int64{127, 1}, -128, 127, 1},
		{Int8, Sum, []int64{-128, -128, -128}, -128, -128, 1},
		{Int8, Sum, []int64{127, 127, -127}, 127, 127, 0}, // the slot is wide enough
		{Int8, Mean, []int64{127, 127}, 127, 127, 0},
		{Int8, Max, []int64{-128, -127}, -127, -127, 0},
	} {
		for _, policy := range []Policy{Propagate, Saturate} {
			for _, give := range []bool{true, false} { // a caller that does not want the result gets the flags
				s := Spec{Rule: Rounds, Workers: len(c.sent), Slots: 1, Elements: 3, Type: c.typ, Op: c.op, Policy: policy, ByteOrder: LittleEndian}
				p := mustPool(t, s)
				out := make([]byte, s.WireBytes())
				for w, v := range c.sent {
					m := &numbers{Spec: s, ints: []int64{0, v, 0}}
					dst := out
					if !give {
						dst = nil
					}
					p.Contribute(&Contribution{Worker: w, Values: m.encode(make([]bool, 3))}, 0, dst)
				}
				if !give {
					p.Result(0, 0, out)
				}
				want, flags, counters := c.wrap, FlagWrapped, Counters{Wrapped: c.counted}
				if policy == Saturate {
					want, flags, counters = c.saturate, FlagSaturated, Counters{Saturated: c.counted}
				}
				if c.counted == 0 {
					flags = 0
				}
				got, _ := (&numbers{Spec: s}).decode(out)
				if got[0] != 0 || got[1] != want || got[2] != 0 || p.Flags(0, 0) != flags || p.Counters() != counters {
					t.Errorf("%v %v of %v, %v: %v %v %+v, want %v %v %+v", c.typ, c.op, c.sent, policy, got, p.Flags(0, 0), p.Counters(), want, flags, counters)
				}
			}
		}
	}
}

// Flags do not stay in the slot for its next round, and Reset clears counters.
func TestFlagsEndWithTheRound(t *testing.T) {
	for _, rule := range []Rule{SwitchML, Rounds} {
		p := mustPool(t, Spec{Rule: rule, Workers: 1, Slots: 1, Elements: 1, Type: Float16})
		for k, v := range [][]byte{{0x7c, 0}, {0x3c, 0}, {0x3c, 0}, {0xfe, 1}, {0, 0}, {0, 0}} {
			out := make([]byte, 2)
			p.Contribute(&Contribution{Set: k & 1, Round: uint32(k), Values: v}, 0, out)
			want := Flags(0)
			if k%3 == 0 {
				want = FlagNonFinite
			}
			if f := p.Flags(0, k&1); f != want || p.State(0, k&1).Flags != want {
				t.Errorf("%v round %d: %v, want %v", rule, k, f, want)
			}
			if k == 3 && !bytes.Equal(out, []byte{0x7e, 0}) {
				t.Errorf("%v: NaN is %x", rule, out)
			}
		}
		if p.Counters().NonFinite != 2 {
			t.Errorf("%v: %+v", rule, p.Counters())
		}
		if p.Reset(); p.Counters() != (Counters{}) {
			t.Errorf("%v: %+v after Reset", rule, p.Counters())
		}
	}
	if s := (FlagSaturated | FlagPartial).String() + Flags(0).String(); s != "saturated+partial-" {
		t.Errorf("flags are written %q", s)
	}
}
