package kernel

import (
	"encoding/binary"
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"

	"gradnic/internal/cpu"
)

// The model: one element at a time, in arithmetic that is exact or is the language's own, with the policy spelled out.

func modelFloat(s Spec, v, largest float64) (float64, bool) {
	switch {
	case math.IsNaN(v):
		return math.NaN(), true
	case math.IsInf(v, 0):
		if s.Policy == Saturate {
			return math.Copysign(largest, v), true
		}
		return v, true
	}
	return v, false
}

func modelInt(s Spec, exact *big.Int, bits uint) (int64, bool) {
	low := new(big.Int).Neg(new(big.Int).Lsh(big.NewInt(1), bits-1))
	high := new(big.Int).Sub(new(big.Int).Neg(low), big.NewInt(1))
	if exact.Cmp(low) >= 0 && exact.Cmp(high) <= 0 {
		return exact.Int64(), false
	}
	if s.Policy == Saturate {
		if exact.Sign() < 0 {
			return low.Int64(), true
		}
		return high.Int64(), true
	}
	wrapped := new(big.Int).Sub(exact, low)
	wrapped.And(wrapped, new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), bits), big.NewInt(1)))
	return wrapped.Add(wrapped, low).Int64(), true
}

func modelMinMax(op Op, a, b float64) float64 {
	switch {
	case math.IsNaN(a) || math.IsNaN(b):
		return math.NaN()
	case op == Min:
		return math.Min(a, b)
	}
	return math.Max(a, b)
}

// modelFold gives the new slot and whether it is flagged.
func modelFold[A Element](s Spec, acc, in A) (A, bool) {
	switch a := any(acc).(type) {
	case int32:
		v, flag := modelIntegers(s, int64(a), int64(any(in).(int32)), 32)
		return any(int32(v)).(A), flag
	case int64:
		v, flag := modelIntegers(s, a, any(in).(int64), 64)
		return any(v).(A), flag
	case float32:
		b := any(in).(float32)
		v := float64(a + b)
		if s.Op != Sum {
			v = modelMinMax(s.Op, float64(a), float64(b))
		}
		v, flag := modelFloat(s, v, math.MaxFloat32)
		return any(float32(v)).(A), flag
	case float64:
		b := any(in).(float64)
		v := a + b
		if s.Op != Sum {
			v = modelMinMax(s.Op, a, b)
		}
		v, flag := modelFloat(s, v, math.MaxFloat64)
		return any(v).(A), flag
	}
	panic("no such slot")
}

func modelIntegers(s Spec, a, b int64, bits uint) (int64, bool) {
	switch s.Op {
	case Min:
		return min(a, b), false
	case Max:
		return max(a, b), false
	}
	v, flag := modelInt(s, new(big.Int).Add(big.NewInt(a), big.NewInt(b)), bits)
	return v, flag
}

// modelDecode reads one element.
func modelDecode[A Element](s Spec, b []byte) (v A) {
	var order binary.ByteOrder = binary.BigEndian
	if s.Order == LittleEndian {
		order = binary.LittleEndian
	}
	switch p := any(&v).(type) {
	case *int32:
		if s.Type == Int8 {
			*p = int32(int8(b[0]))
		} else {
			*p = int32(order.Uint32(b))
		}
	case *int64:
		*p = int64(order.Uint64(b))
	case *float32:
		switch s.Type {
		case Float32:
			*p = math.Float32frombits(order.Uint32(b))
		case Float16:
			*p = float32(halfFormats[Float16].value(order.Uint16(b)))
		case BFloat16:
			*p = float32(halfFormats[BFloat16].value(order.Uint16(b)))
		}
	case *float64:
		*p = math.Float64frombits(order.Uint64(b))
	}
	return v
}

// modelPut encodes one element and tells whether it is flagged.
func modelPut[A Element](s Spec, v A) ([]byte, bool) {
	var order binary.AppendByteOrder = binary.BigEndian
	if s.Order == LittleEndian {
		order = binary.LittleEndian
	}
	switch v := any(v).(type) {
	case int32:
		if s.Type == Int8 {
			w, flag := modelInt(s, big.NewInt(int64(v)), 8)
			return []byte{byte(w)}, flag
		}
		return order.AppendUint32(nil, uint32(v)), false
	case int64:
		return order.AppendUint64(nil, uint64(v)), false
	case float32:
		if f, ok := halfFormats[s.Type]; ok {
			w, flag := f.round(s, float64(v))
			return order.AppendUint16(nil, w), flag
		}
		w, flag := modelFloat(s, float64(v), math.MaxFloat32)
		return order.AppendUint32(nil, math.Float32bits(float32(w))), flag
	case float64:
		w, flag := modelFloat(s, v, math.MaxFloat64)
		bits := math.Float64bits(w)
		if math.IsNaN(w) {
			bits = nan64 // Go's math.NaN has a payload
		}
		return order.AppendUint64(nil, bits), flag
	}
	panic("no such slot")
}

// halfFormat is a 16-bit float by its parameters.
type halfFormat struct{ exponent, mantissa int }

var halfFormats = map[Type]halfFormat{Float16: {5, 10}, BFloat16: {8, 7}}

func (f halfFormat) bias() int { return 1<<(f.exponent-1) - 1 }

// value is the definition of the format.
func (f halfFormat) value(h uint16) float64 {
	sign := 1.0
	if h>>15 == 1 {
		sign = -1
	}
	e, m := int(h>>f.mantissa)&(1<<f.exponent-1), int(h)&(1<<f.mantissa-1)
	switch {
	case e == 1<<f.exponent-1 && m != 0:
		return math.NaN()
	case e == 1<<f.exponent-1:
		return math.Inf(int(sign))
	case e == 0:
		return sign * math.Ldexp(float64(m), 1-f.bias()-f.mantissa)
	}
	return sign * math.Ldexp(float64(m+1<<f.mantissa), e-f.bias()-f.mantissa)
}

// round finds the nearest value by trying: of the largest encoding that is not above |v| and the one after it, the
// nearer, or on a tie the even one. Beyond the largest, the next encoding stands for twice the largest power.
func (f halfFormat) round(s Spec, v float64) (uint16, bool) {
	infinity := uint16(1<<f.exponent-1) << f.mantissa
	if math.IsNaN(v) {
		return infinity | 1<<(f.mantissa-1), true
	}
	sign := uint16(math.Float64bits(v) >> 63 << 15)
	v = math.Abs(v)
	below, above := uint16(0), infinity
	for above-below > 1 {
		if mid := below + (above-below)/2; f.value(mid) <= v {
			below = mid
		} else {
			above = mid
		}
	}
	next := f.value(above)
	if above == infinity {
		next = math.Ldexp(1, f.bias()+1)
	}
	near := below
	if d, e := v-f.value(below), next-v; d > e || d == e && below&1 == 1 {
		near = above
	}
	if near == infinity {
		if s.Policy == Saturate {
			return sign | infinity - 1, true
		}
		return sign | infinity, true
	}
	return sign | near, false
}

// TestHalfExhaustive checks both 16-bit formats against their definitions: all values, all midpoints and the floats
// next to them.
func TestHalfExhaustive(t *testing.T) {
	for typ, f := range halfFormats {
		s := Spec{Type: typ, Order: BigEndian}
		for _, tier := range append(tiers(t), cpu.Off) {
			o := testOps[float32](t, s, tier)
			all := make([]byte, 2<<16)
			for h := range 1 << 16 {
				binary.BigEndian.PutUint16(all[2*h:], uint16(h))
			}
			acc := make([]float32, 1<<16)
			o.Set(acc, all)
			for h, got := range acc {
				want := float32(f.value(uint16(h)))
				if math.IsNaN(float64(want)) {
					want = math.Float32frombits(nan32)
				}
				if math.Float32bits(got) != math.Float32bits(want) {
					t.Fatalf("%v at %v: %#04x decodes to %v, want %v", typ, tier, h, got, want)
				}
			}
			var probes []float32
			for h := range uint16(1<<f.exponent-1) << f.mantissa {
				a, b := f.value(h), f.value(h+1)
				if math.IsInf(b, 0) {
					b = math.Ldexp(1, f.bias()+1)
				}
				mid := float32((a + b) / 2)
				for _, v := range []float32{float32(a), mid, math.Nextafter32(mid, 0), math.Nextafter32(mid, math.MaxFloat32)} {
					probes = append(probes, v, -v)
				}
			}
			out := make([]byte, 2*len(probes))
			o.Put(out, probes)
			for i, v := range probes {
				want, _ := f.round(s, float64(v))
				if got := binary.BigEndian.Uint16(out[2*i:]); got != want {
					t.Fatalf("%v at %v: %v encodes to %#04x, want %#04x", typ, tier, v, got, want)
				}
			}
		}
	}
}

// TestModel folds a few contributions and encodes the result, at every level, against the model.
func TestModel(t *testing.T) {
	levels := append(tiers(t), cpu.Off)
	all := specs()
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.SampledFrom(all).Draw(t, "spec")
		forSlot(s,
			func() { checkModel[int32](t, s, levels) },
			func() { checkModel[int64](t, s, levels) },
			func() { checkModel[float32](t, s, levels) },
			func() { checkModel[float64](t, s, levels) })
	})
}

func checkModel[A Element](t *rapid.T, s Spec, levels []cpu.Tier) {
	n := rapid.IntRange(1, 70).Draw(t, "elements")
	workers := rapid.IntRange(1, 5).Draw(t, "workers")
	rng := rapidRand(t)
	size := s.Type.Bytes()
	sent := make([][]byte, workers)
	for w := range sent {
		sent[w] = make([]byte, n*size)
		randomWire[A](rng, s, sent[w], mood(rapid.IntRange(0, 2).Draw(t, "mood")))
	}
	for _, tier := range levels {
		o, err := newOps[A](s, tier)
		if err != nil {
			t.Fatal(err)
		}
		acc, out := make([]A, n), make([]byte, n*size)
		var flags []int
		flags = append(flags, o.Set(acc, sent[0]))
		for w := 1; w < workers-1; w++ {
			flags = append(flags, o.Fold(acc, sent[w]))
		}
		if workers > 1 {
			flags = append(flags, o.FoldPut(out, acc, sent[workers-1]))
		} else {
			flags = append(flags, o.Put(out, acc))
		}
		want := make([]int, len(flags))
		for i := range n {
			at := func(w int) []byte { return sent[w][i*size : (i+1)*size] }
			v, flag := modelSet(s, modelDecode[A](s, at(0)))
			want[0] += count(flag)
			for w := 1; w < workers; w++ {
				v, flag = modelFold(s, v, modelDecode[A](s, at(w)))
				if w < workers-1 {
					want[w] += count(flag)
				}
			}
			encoded, put := modelPut(s, v)
			want[len(want)-1] += count(put || workers > 1 && flag)
			if string(out[i*size:(i+1)*size]) != string(encoded) {
				t.Fatalf("%v at %v: element %d of %d workers is % x, want % x", s, tier, i, workers, out[i*size:(i+1)*size], encoded)
			}
		}
		for i := range flags {
			if flags[i] != want[i] {
				t.Fatalf("%v at %v: contribution %d of %d flags %d elements, want %d", s, tier, i, workers, flags[i], want[i])
			}
		}
	}
}

// modelSet is the policy on a first contribution.
func modelSet[A Element](s Spec, v A) (A, bool) {
	switch f := any(v).(type) {
	case float32:
		w, flag := modelFloat(s, float64(f), math.MaxFloat32)
		return any(float32(w)).(A), flag
	case float64:
		w, flag := modelFloat(s, f, math.MaxFloat64)
		return any(w).(A), flag
	}
	return v, false
}

func count(flag bool) int {
	if flag {
		return 1
	}
	return 0
}
