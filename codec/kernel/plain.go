package kernel

import (
	"encoding/binary"
	"math"
)

// PutFloats writes src as little-endian binary32. len(dst) must be
// 4 * len(src).
func PutFloats(dst []byte, src []float32) {
	need(len(dst) == 4*len(src), "PutFloats: dst is not four bytes an element")
	done := 0
	if level != 0 {
		done = putFloatsFast(dst, src)
	}
	dst, src = dst[4*done:], src[done:]
	for i, v := range src {
		binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(v))
	}
}

// GetFloats reads little-endian binary32. len(src) must be 4 * len(dst).
func GetFloats(dst []float32, src []byte) {
	need(len(src) == 4*len(dst), "GetFloats: src is not four bytes an element")
	done := 0
	if level != 0 {
		done = getFloatsFast(dst, src)
	}
	dst, src = dst[done:], src[4*done:]
	for i := range dst {
		dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
	}
}
