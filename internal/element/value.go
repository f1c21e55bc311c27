package element

import (
	"encoding/binary"
	"math"
)

// Value is the element that b starts with, little-endian as on the native wire, as a number: an int64 beyond 2^53 is rounded.
// It is NaN for BFP16, whose elements come in blocks, and for what is no type. It is for checks of results: one at a time, and
// independent of the kernels.
func (t Type) Value(b []byte) float64 {
	switch t {
	case Int8:
		return float64(int8(b[0]))
	case Int32:
		return float64(int32(binary.LittleEndian.Uint32(b)))
	case Int64:
		return float64(int64(binary.LittleEndian.Uint64(b)))
	case Float32:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
	case Float64:
		return math.Float64frombits(binary.LittleEndian.Uint64(b))
	case Float16:
		return half(binary.LittleEndian.Uint16(b))
	case BFloat16:
		return float64(math.Float32frombits(uint32(binary.LittleEndian.Uint16(b)) << 16))
	}
	return math.NaN()
}

// half is the value of an IEEE 754 binary16.
func half(h uint16) float64 {
	exp, frac := int(h>>10&31), float64(h&1023)
	var v float64
	switch exp {
	case 0:
		v = math.Ldexp(frac, -24)
	case 31:
		if v = math.Inf(1); frac != 0 {
			v = math.NaN()
		}
	default:
		v = math.Ldexp(1024+frac, exp-25)
	}
	if h>>15 == 1 {
		v = -v
	}
	return v
}
