package kernel

import "math"

const (
	maxFloat16  = 65504      // largest finite binary16
	maxBFloat16 = 0x1.fep127 // largest finite bfloat16
)

// Bits of floats.
const (
	overFloat16  = uint32(0x477ff000) // 65520, the smallest magnitude that rounds to infinity in binary16
	overBFloat16 = uint32(0x7f7f8000) // and in bfloat16
	infinity32   = uint32(0x7f800000)
	infinity64   = uint64(0x7ff0 << 48)
	nan32        = uint32(0x7fc00000) // the one NaN that loops write
	nan64        = uint64(0x7ff8 << 48)
)

// fromFloat16 widens a binary16. NaN stays some NaN.
func fromFloat16(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	rest := uint32(h & 0x7fff)
	switch {
	case rest >= 0x7c00: // infinity, NaN
		return math.Float32frombits(sign | 0x7f800000 | rest&0x3ff<<13)
	case rest >= 0x0400:
		return math.Float32frombits(sign | (rest<<13 + (127-15)<<23))
	}
	v := float32(rest) * 0x1p-24 // zero, denormal
	return math.Float32frombits(sign | math.Float32bits(v))
}

// toFloat16 rounds to nearest even. It keeps infinities, and a NaN must be the canonical one.
func toFloat16(f float32) uint16 {
	bits := math.Float32bits(f)
	sign := uint16(bits >> 16 & 0x8000)
	bits &= 0x7fffffff
	switch {
	case bits > infinity32:
		return sign | 0x7e00
	case bits >= overFloat16:
		return sign | 0x7c00
	case bits >= 0x38800000: // 2^-14: normal
		bits += 0xfff + bits>>13&1
		return sign | uint16(bits>>13-(127-15)<<10)
	}
	// Adding 0.5 leaves a unit of 2^-24 in the last place, which is a denormal's: the machine rounds.
	return sign | uint16(math.Float32bits(math.Float32frombits(bits)+0.5)-math.Float32bits(0.5))
}

func fromBFloat16(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// toBFloat16 rounds to nearest even. A NaN must be the canonical one.
func toBFloat16(f float32) uint16 {
	bits := math.Float32bits(f)
	return uint16((bits + 0x7fff + bits>>16&1) >> 16)
}
