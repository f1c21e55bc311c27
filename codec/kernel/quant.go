package kernel

import "math"

// MaxAbs returns the bits of the largest magnitude in x (0 when x is empty).
// Bits of 0x7f800000 and up say that x holds an infinity or a NaN.
func MaxAbs(x []float32) uint32 {
	done := 0
	var m uint32
	if level != 0 {
		m, done = maxAbsFast(x)
	}
	for _, v := range x[done:] {
		m = max(m, math.Float32bits(v)&absMask)
	}
	return m
}

// SumSquares returns the sum of squares of x in float64. Lane j of eight sums
// the elements i = j modulo 8 in order, and the lanes are added as
// ((0+4)+(2+6)) + ((1+5)+(3+7)).
func SumSquares(x []float32) float64 {
	var s [8]float64
	done := 0
	if level != 0 {
		done = sumSquaresFast(x, &s)
	}
	for i, v := range x[done:] {
		// The product of two float32 is exact in float64, so a fused
		// multiply-add gives the same.
		s[i&7] += float64(v) * float64(v)
	}
	return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]))
}

// RoundInt8 writes the integer nearest to v * scale, ties to even, clamped to
// [-127, 127], for every v of src; src * scale must be finite.
// len(dst) must be len(src).
func RoundInt8(dst []byte, src []float32, scale float32) {
	need(len(dst) == len(src), "RoundInt8: lengths differ")
	done := 0
	if level != 0 {
		done = roundInt8Fast(dst, src, scale)
	}
	dst, src = dst[done:], src[done:]
	for i, v := range src {
		x := max(min(float32(v*scale), 127), -127)
		dst[i] = byte(int32(math.Float32bits(float32(x+roundMagic))) - roundMagicBits)
	}
}

// ScaleInt8 writes float32(q) * scale for every int8 q of src.
// len(dst) must be len(src).
func ScaleInt8(dst []float32, src []byte, scale float32) {
	need(len(dst) == len(src), "ScaleInt8: lengths differ")
	done := 0
	if level != 0 {
		done = scaleInt8Fast(dst, src, scale)
	}
	dst, src = dst[done:], src[done:]
	for i := range dst {
		dst[i] = float32(int8(src[i])) * scale
	}
}

// StochasticInt8 writes sign(v) * (floor(L) + B) with L = min(|v| * scale, 127)
// and B one with probability L - floor(L), decided by the upper 24 bits of the
// word that r gives the element: B = 1 when they are below the fraction in
// units of 2^-24. len(dst) must be len(src) and src finite.
func StochasticInt8(dst []byte, src []float32, scale float32, r *Philox) {
	need(len(dst) == len(src), "StochasticInt8: lengths differ")
	done := 0
	if level != 0 {
		done = stochasticInt8Fast(dst, src, scale, r) // a multiple of 4
	}
	stochasticInt8Go(dst[done:], src[done:], scale, r, uint32(done/4))
}

func stochasticInt8Go(dst []byte, src []float32, scale float32, r *Philox, from uint32) {
	var w [4]uint32
	for i, v := range src {
		if i&3 == 0 {
			w = r.Block(from + uint32(i/4))
		}
		bits := math.Float32bits(v)
		l := min(math.Float32frombits(bits&absMask)*scale, 127)
		k := int32(l)
		// The fraction times 2^24 is exact.
		if float32(w[i&3]>>8) < float32(l-float32(k))*0x1p24 {
			k++
		}
		neg := int32(bits) >> 31
		dst[i] = byte((k ^ neg) - neg)
	}
}

// HadamardBlock is the length of the transform of [Hadamard].
const HadamardBlock = 1024

// Hadamard replaces x, HadamardBlock elements, by its Walsh-Hadamard transform
// in natural (Hadamard) order times 1/32, which makes it its own inverse.
// Stage h = 1, 2, 4 .. 512 adds and subtracts elements h apart.
func Hadamard(x []float32) {
	need(len(x) == HadamardBlock, "Hadamard: not one block")
	if level != 0 && hadamardFast(x) {
		return
	}
	hadamardGo(x)
}

func hadamardGo(x []float32) {
	for h := 1; h < HadamardBlock; h *= 2 {
		for i := 0; i < HadamardBlock; i += 2 * h {
			for j := i; j < i+h; j++ {
				a, b := x[j], x[j+h]
				x[j], x[j+h] = a+b, a-b
			}
		}
	}
	for i := range x {
		x[i] *= 1.0 / 32
	}
}

// FlipSigns negates element i of x where bit i mod 32 of word i / 32 of the
// stream of r is one.
func FlipSigns(x []float32, r *Philox) {
	p := *r
	var w [32]uint32 // for 1024 elements
	for len(x) > 0 {
		n := min(len(x), 1024)
		p.Fill(w[:(n+127)/128*4])
		for i := 0; i < n; i += 128 {
			bits := (*[4]uint32)(w[i/32:])
			if level != 0 && n-i >= 128 {
				flipSignsFast(x[i:i+128], bits)
				continue
			}
			flipSignsGo(x[i:min(i+128, n)], bits)
		}
		x = x[n:]
		p.Base += 8
	}
}

func flipSignsGo(x []float32, bits *[4]uint32) {
	for i := range x {
		bit := bits[i>>5&3] >> (i & 31) << 31
		x[i] = math.Float32frombits(math.Float32bits(x[i]) ^ bit)
	}
}
