package aggregation

import (
	"encoding/binary"
	"math"
	"math/big"
	"math/bits"
)

// numbers is the model of one version's values: one element at a time, in
// arithmetic that is exact or is the language's own, with every rounding and
// every policy spelled out.
type numbers struct {
	Spec
	ints     []int64
	floats   []float64 // of slots of float32, too: each value is one
	flags    Flags
	counters *Counters
}

// take folds a contribution, and gives the result if it is the last of count.
func (m *numbers) take(first bool, wire []byte, count int) []byte {
	flagged := make([]bool, m.Elements)
	ints, floats := m.decode(wire)
	for e := range m.Elements {
		switch {
		case first && m.integer():
			m.ints = append(m.ints[:e], ints[e])
		case first:
			m.floats = append(m.floats[:e], m.settle(floats[e], &flagged[e]))
		case m.integer():
			m.ints[e] = m.foldInt(m.ints[e], ints[e], &flagged[e])
		default:
			m.floats[e] = m.settle(m.foldFloat(m.floats[e], floats[e]), &flagged[e])
		}
	}
	if count > 0 {
		return m.finish(flagged, count)
	}
	m.account(flagged, false)
	return nil
}

// finish divides and encodes; flagged are the elements that the last step flagged.
func (m *numbers) finish(flagged []bool, count int) []byte {
	if m.Op == Mean {
		for e := range m.Elements {
			switch {
			case m.integer():
				m.ints[e] = divideNearestEven(m.ints[e], int64(count))
			case m.Type == Float64:
				m.floats[e] /= float64(count)
			default:
				m.floats[e] = float64(float32(m.floats[e]) / float32(count))
			}
		}
	}
	out := m.encode(flagged)
	m.account(flagged, true)
	return out
}

func (m *numbers) account(flagged []bool, final bool) {
	for e, f := range flagged {
		nan := !m.integer() && math.IsNaN(m.floats[e])
		switch {
		case !f:
		case m.integer() && m.Policy == Propagate:
			m.flags |= FlagWrapped
			m.counters.Wrapped++
		case m.Policy == Saturate && !nan:
			m.flags |= FlagSaturated
			m.counters.Saturated++
		case final:
			m.flags |= FlagNonFinite
			m.counters.NonFinite++
		}
	}
}

func (m *numbers) integer() bool { return m.Type <= Int8 }

func (m *numbers) bits() uint {
	return []uint{Int32: 32, Int64: 64, Int8: 8}[m.Type]
}

func (m *numbers) foldInt(a, b int64, flagged *bool) int64 {
	switch m.Op {
	case Min:
		return min(a, b)
	case Max:
		return max(a, b)
	}
	exact := new(big.Int).Add(big.NewInt(a), big.NewInt(b))
	if m.Type == Int8 {
		return exact.Int64() // its slot is wide enough
	}
	return m.fit(exact, m.bits(), flagged)
}

// fit applies the policy to an integer.
func (m *numbers) fit(v *big.Int, width uint, flagged *bool) int64 {
	half := new(big.Int).Lsh(big.NewInt(1), width-1)
	low, high := new(big.Int).Neg(half), new(big.Int).Sub(half, big.NewInt(1))
	switch {
	case v.Cmp(low) >= 0 && v.Cmp(high) <= 0:
		return v.Int64()
	case m.Policy == Propagate:
		*flagged = true
		w := new(big.Int).Mod(new(big.Int).Sub(v, low), new(big.Int).Lsh(half, 1))
		return w.Add(w, low).Int64()
	case v.Sign() < 0:
		*flagged = true
		return low.Int64()
	}
	*flagged = true
	return high.Int64()
}

func (m *numbers) foldFloat(a, b float64) float64 {
	switch {
	case m.Op == Min:
		return min(a, b)
	case m.Op == Max:
		return max(a, b)
	case m.Type == Float64:
		return a + b
	}
	return float64(float32(a) + float32(b))
}

// settle applies the policy to a float in the slot.
func (m *numbers) settle(v float64, flagged *bool) float64 {
	if v-v == 0 {
		return v
	}
	*flagged = true
	if m.Policy == Saturate && !math.IsNaN(v) {
		largest := math.MaxFloat32
		if m.Type == Float64 {
			largest = math.MaxFloat64
		}
		return math.Copysign(largest, v)
	}
	return v
}

func divideNearestEven(v, n int64) int64 {
	q, r := new(big.Int).DivMod(big.NewInt(v), big.NewInt(n), new(big.Int))
	twice := r.Lsh(r, 1).Cmp(big.NewInt(n))
	if twice > 0 || twice == 0 && q.Bit(0) == 1 {
		q.Add(q, big.NewInt(1))
	}
	return q.Int64()
}

// unsigned reads and append writes the bits of one element.
func (m *numbers) unsigned(b []byte) (v uint64) {
	for _, x := range b {
		v = v<<8 | uint64(x)
	}
	if m.ByteOrder == LittleEndian {
		v = bits.ReverseBytes64(v) >> (64 - 8*len(b))
	}
	return v
}

func (m *numbers) append(dst []byte, v uint64, size int) []byte {
	if m.ByteOrder == LittleEndian {
		return append(dst, binary.LittleEndian.AppendUint64(nil, v)[:size]...)
	}
	return append(dst, binary.BigEndian.AppendUint64(nil, v)[8-size:]...)
}

// half is a 16-bit float: bits of the fraction, exponent of the smallest normal
// number, and the first power that is too large.
type half struct{ fraction, smallest, over int }

var halves = map[Type]half{Float16: {10, -14, 16}, BFloat16: {7, -126, 128}}

func (h half) value(w uint64) float64 {
	fields := w & 0x7fff
	e, f := int(fields>>h.fraction), float64(fields&(1<<h.fraction-1))
	v := math.Ldexp(f, h.smallest-h.fraction)
	switch {
	case e == 1<<(15-h.fraction)-1 && f != 0:
		return math.NaN()
	case e == 1<<(15-h.fraction)-1:
		v = math.Inf(1)
	case e > 0:
		v = math.Ldexp(f+math.Ldexp(1, h.fraction), e-1+h.smallest-h.fraction)
	}
	if w>>15 == 1 {
		return -v
	}
	return v
}

// round gives the bits of the nearest number, ties to even; 1<<over and up is
// infinity.
func (h half) round(v float64) (w uint64) {
	infinity := uint64(1<<(15-h.fraction)-1) << h.fraction
	if math.IsNaN(v) {
		return infinity | 1<<(h.fraction-1)
	}
	if math.Signbit(v) {
		w, v = 1<<15, -v
	}
	if math.IsInf(v, 0) {
		return w | infinity
	}
	if v == 0 {
		return w
	}
	_, e := math.Frexp(v)
	e = max(e-1, h.smallest)
	steps := math.RoundToEven(math.Ldexp(v, h.fraction-e)) // of which a binade has 1<<fraction
	if math.Ldexp(steps, e-h.fraction) >= math.Ldexp(1, h.over) {
		return w | infinity
	}
	// Numbers above the smallest normal one carry into the exponent's field.
	return w | uint64(steps) + uint64(e-h.smallest)<<h.fraction
}

func (m *numbers) decode(wire []byte) (ints []int64, floats []float64) {
	if m.Type == BFP16 {
		n := (m.Elements + 15) / 16
		for e := range m.Elements {
			step := math.Ldexp(1, int(wire[16*n+e/16])-133)
			if wire[16*n+e/16] == 255 {
				step = math.NaN()
			}
			floats = append(floats, float64(float32(float64(int8(wire[e]))*step)))
		}
		return nil, floats
	}
	size := len(wire) / m.Elements
	for e := range m.Elements {
		u := m.unsigned(wire[e*size : (e+1)*size])
		switch m.Type {
		case Int32:
			ints = append(ints, int64(int32(u)))
		case Int64:
			ints = append(ints, int64(u))
		case Int8:
			ints = append(ints, int64(int8(u)))
		case Float32:
			floats = append(floats, float64(math.Float32frombits(uint32(u))))
		case Float64:
			floats = append(floats, math.Float64frombits(u))
		default:
			floats = append(floats, halves[m.Type].value(u))
		}
	}
	return ints, floats
}

// encode gives the result, and marks the elements that do not fit or are not
// finite.
func (m *numbers) encode(flagged []bool) (out []byte) {
	if m.Type == BFP16 {
		return m.encodeBlocks(flagged)
	}
	for e := range m.Elements {
		switch m.Type {
		case Int32:
			out = m.append(out, uint64(m.ints[e]), 4)
			continue
		case Int64:
			out = m.append(out, uint64(m.ints[e]), 8)
			continue
		case Int8:
			out = append(out, byte(m.fit(big.NewInt(m.ints[e]), 8, &flagged[e])))
			continue
		}
		v := m.settle(m.floats[e], &flagged[e])
		switch m.Type {
		case Float32:
			u := math.Float32bits(float32(v))
			if math.IsNaN(v) {
				u = 0x7fc00000
			}
			out = m.append(out, uint64(u), 4)
		case Float64:
			u := math.Float64bits(v)
			if math.IsNaN(v) {
				u = 0x7ff8 << 48
			}
			out = m.append(out, u, 8)
		default:
			h := halves[m.Type]
			w := h.round(v)
			if math.IsInf(h.value(w), 0) {
				flagged[e] = true
				if m.Policy == Saturate {
					w-- // the largest finite number
				}
			}
			out = m.append(out, w, 2)
		}
	}
	return out
}

func (m *numbers) encodeBlocks(flagged []bool) (out []byte) {
	var scales []byte
	for b := 0; b < m.Elements; b += 16 {
		block := make([]float64, 16)
		copy(block, m.floats[b:min(b+16, m.Elements)])
		exponent, finite := 7, true
		for i, v := range block {
			if v-v != 0 {
				flagged[b+i], finite = true, false
			} else if _, e := math.Frexp(v); v != 0 {
				exponent = max(exponent, e-1+127)
			}
		}
		for _, v := range block {
			q := math.RoundToEven(math.Ldexp(v, 133-exponent))
			switch {
			case !finite && v-v != 0:
				out = append(out, 0x80)
			case !finite:
				out = append(out, 0)
			default:
				out = append(out, byte(int8(max(min(q, 127), -127))))
			}
		}
		if !finite {
			exponent = 255
		}
		scales = append(scales, byte(exponent))
	}
	return append(out, scales...)
}

// result is the model's for contributions in the order given, all that come.
func result(s Spec, counters *Counters, contributions ...[]byte) ([]byte, Flags) {
	return resultOf(s, counters, false, contributions...)
}

// resultOf is result where the last contribution does not complete it when it
// is partial: the deadline does.
func resultOf(s Spec, counters *Counters, partial bool, contributions ...[]byte) (out []byte, _ Flags) {
	m := &numbers{Spec: s, counters: counters}
	n := len(contributions)
	for i, c := range contributions {
		count := 0
		if i == n-1 && !partial {
			count = n
		}
		out = m.take(i == 0, c, count)
	}
	if partial {
		out = m.finish(make([]bool, s.Elements), n)
	}
	return out, m.flags
}

// wireValues is what worker w contributes to round k of a slot in the tests, in
// any type: the same for the same arguments. Half of the rounds are tame, and
// nothing in them overflows; in the others a few elements are special or any
// bits at all.
func wireValues(s Spec, slot, w int, k uint32) []byte {
	m := &numbers{Spec: s}
	state := uint64(k)<<32 ^ uint64(slot)<<24 ^ uint64(w)
	next := func() uint64 { // splitmix64
		state += 0x9e3779b97f4a7c15
		z := (state ^ state>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		return z ^ z>>31
	}
	wild := (k*0x9e3779b1^uint32(slot))>>13&1 == 1
	var raw []uint64 // bits of elements that are not numbers of the model
	for range s.Elements {
		r := next()
		anyBits, special := wild && r>>60 == 0, wild && r>>60 == 1
		raw = append(raw, 0)
		switch {
		case m.integer():
			v := int64(r<<20) >> (64 - m.bits() + 8) // 8 bits below the type's range
			switch {
			case anyBits:
				v = int64(r<<20) >> (64 - m.bits())
			case special:
				edge := int64(1) << (m.bits() - 1)
				v = []int64{edge - 1, -edge, 0, -1, edge - 2, 1}[r%6]
			}
			m.ints = append(m.ints, v)
			continue
		case anyBits:
			raw[len(raw)-1] = r | 1<<20
		}
		v := math.Ldexp(float64(int32(r)), int(r>>32&15)-40)
		if special {
			v = specialFloats[r%uint64(len(specialFloats))]
		}
		if m.Type != Float64 {
			v = float64(float32(v))
		}
		m.floats = append(m.floats, v)
	}
	out := m.encode(make([]bool, s.Elements))
	for e, r := range raw {
		switch size := len(out) / s.Elements; {
		case r == 0:
		case s.Type == BFP16:
			n := (s.Elements + 15) / 16
			out[e] = byte(r)
			if r>>8&3 == 0 {
				out[16*n+e/16] = byte(r >> 24)
			}
		default:
			copy(out[e*size:], m.append(nil, r, size))
		}
	}
	return out
}

// specialFloats are where formats and policies change their mind.
var specialFloats = []float64{0, math.Copysign(0, -1), 1e-30, 1e-40, 0x1p-149, 5e-324, 0x1p-24, 0x1p-25, 0x1.8p-25, 0x1p-14,
	1, 2048, 2049, 65504, 65519.99, 65520, -65504, 1e30, -1e30, math.MaxFloat32, -math.MaxFloat32, 0x1.fep127,
	math.MaxFloat64, math.Inf(1), math.Inf(-1), math.NaN()}
