package kernel

import (
	"encoding/binary"
	"math"
)

// EncodeFP16 converts src to IEEE binary16, little-endian, nearest even.
// Magnitudes that round above 65504 become infinities; a NaN keeps its sign and
// the upper ten bits of its payload and is made quiet.
// len(dst) must be 2 * len(src).
func EncodeFP16(dst []byte, src []float32) {
	need(len(dst) == 2*len(src), "EncodeFP16: dst is not two bytes an element")
	done := 0
	if level != 0 {
		done = encodeFP16Fast(dst, src)
	}
	encodeFP16Go(dst[2*done:], src[done:])
}

// DecodeFP16 is exact; signalling NaNs become quiet. len(src) must be
// 2 * len(dst).
func DecodeFP16(dst []float32, src []byte) {
	need(len(src) == 2*len(dst), "DecodeFP16: src is not two bytes an element")
	done := 0
	if level != 0 {
		done = decodeFP16Fast(dst, src)
	}
	decodeFP16Go(dst[done:], src[2*done:])
}

// EncodeBF16 converts src to bfloat16, little-endian, nearest even. Magnitudes
// that round above the largest bfloat16 become infinities; a NaN keeps its sign
// and the upper bits of its payload and is made quiet.
// len(dst) must be 2 * len(src).
func EncodeBF16(dst []byte, src []float32) {
	need(len(dst) == 2*len(src), "EncodeBF16: dst is not two bytes an element")
	done := 0
	if level != 0 {
		done = encodeBF16Fast(dst, src)
	}
	encodeBF16Go(dst[2*done:], src[done:])
}

// DecodeBF16 is exact and changes no bit of a NaN. len(src) must be
// 2 * len(dst).
func DecodeBF16(dst []float32, src []byte) {
	need(len(src) == 2*len(dst), "DecodeBF16: src is not two bytes an element")
	done := 0
	if level != 0 {
		done = decodeBF16Fast(dst, src)
	}
	decodeBF16Go(dst[done:], src[2*done:])
}

func encodeFP16Go(dst []byte, src []float32) {
	for i, v := range src {
		binary.LittleEndian.PutUint16(dst[2*i:], fp16Bits(v))
	}
}

func fp16Bits(v float32) uint16 {
	w := math.Float32bits(v)
	sign := uint16(w >> 16 & 0x8000)
	a := w & absMask
	switch {
	case a > expMask: // NaN
		return sign | 0x7e00 | uint16(a>>13&0x3ff)
	case a >= 0x47800000: // 65536 and up
		return sign | 0x7c00
	case a < 0x38800000: // below 2^-14: steps of 2^-24
		const magic = 126 << 23 // 0.5, whose last bit weighs 2^-24
		return sign | uint16(math.Float32bits(math.Float32frombits(a)+0.5)-magic)
	}
	r := a + 0xfff + a>>13&1
	return sign | uint16(r>>13-112<<10)
}

func decodeFP16Go(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = fp16Value(binary.LittleEndian.Uint16(src[2*i:]))
	}
}

func fp16Value(h uint16) float32 {
	sign := uint32(h) & 0x8000 << 16
	mag := uint32(h) & 0x7fff
	switch {
	case mag > 0x7c00: // NaN
		return math.Float32frombits(sign | mag<<13&(1<<23-1) | 0x7fc00000)
	case mag == 0x7c00:
		return math.Float32frombits(sign | expMask)
	case mag < 0x400: // subnormal
		return math.Float32frombits(sign | math.Float32bits(float32(mag)*0x1p-24))
	}
	return math.Float32frombits(sign | (mag<<13 + 112<<23))
}

func encodeBF16Go(dst []byte, src []float32) {
	for i, v := range src {
		w := math.Float32bits(v)
		if w&absMask > expMask {
			w |= 1 << 22
		} else {
			w += 0x7fff + w>>16&1
		}
		binary.LittleEndian.PutUint16(dst[2*i:], uint16(w>>16))
	}
}

func decodeBF16Go(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(src[2*i:])) << 16)
	}
}
