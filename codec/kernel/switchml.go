package kernel

import "math"

// QuantiseInt32 writes the integer nearest to v * scale, ties to even, clamped to
// +-limit, for every v of src; NaN gives 0. The product is that of float64; limit
// is a whole number of at most 2^31-1. len(dst) must be len(src).
func QuantiseInt32(dst []int32, src []float32, scale, limit float64) {
	need(len(dst) == len(src), "QuantiseInt32: lengths differ")
	done := 0
	if level != 0 {
		done = quantiseInt32Fast(dst, src, scale, limit)
	}
	dst, src = dst[done:], src[done:]
	for i, v := range src {
		x := math.RoundToEven(float64(v) * scale)
		switch {
		case x > limit:
			x = limit
		case x < -limit:
			x = -limit
		case x != x:
			x = 0
		}
		dst[i] = int32(x)
	}
}

// DequantiseInt32 writes float32(float64(s) * step) for every s of src.
// len(dst) must be len(src).
func DequantiseInt32(dst []float32, src []int32, step float64) {
	need(len(dst) == len(src), "DequantiseInt32: lengths differ")
	done := 0
	if level != 0 {
		done = dequantiseInt32Fast(dst, src, step)
	}
	dst, src = dst[done:], src[done:]
	for i, s := range src {
		dst[i] = float32(float64(s) * step)
	}
}
