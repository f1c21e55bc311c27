package codec

import (
	"math"

	"gradnic/codec/kernel"
)

// PoisonExponent is the exponent of a block that the SwitchML format cannot
// carry: one that holds a NaN, an infinity or a magnitude of 2^126 or more.
// It is the largest int8, so it survives the switch's signed maximum: when one
// worker sends it, every worker receives it, and [Dequantise] then writes NaN
// to the whole block. The loss of a block is thus seen by all workers alike
// and never turns into a finite wrong number.
//
// Exponents on the wire for good blocks lie in [MinExponent, PoisonExponent-1].
const PoisonExponent int8 = math.MaxInt8

// MinExponent is the exponent of an all-zero block and of a block of
// subnormals: every magnitude in it is below 2^MinExponent.
const MinExponent int8 = -126

// MaxExponent returns the exponent that a worker announces for a block by
// SwitchML's rule: the smallest e >= MinExponent with |g| < 2^e for every g.
// On an empty block it returns MinExponent.
//
// finite is false, and exp is [PoisonExponent], when the block holds a NaN, an
// infinity or a magnitude of 2^126 or more. The public client has four traps
// here that this function and [Quantise] do not have: its int8 wraps to -127
// and -128 for infinities and for magnitudes from 2^127 up, it turns NaN into
// INT_MIN, and a block with no magnitude of 2^-97 or more makes its float32
// scale infinite, so that zeros become NaN and then INT_MIN. A block from such
// a client with magnitudes in [2^126, 2^127) announces 127 as well and is taken
// as poisoned.
func MaxExponent(block []float32) (exp int8, finite bool) {
	e := int(kernel.MaxAbs(block)>>23) - 126
	if e >= int(PoisonExponent) {
		return PoisonExponent, false
	}
	return int8(e), true
}

// quantiseScale is INT32_MAX / (workers * 2^exp). It is a float64, so neither
// the smallest exponent nor many workers bring it near its limits.
func quantiseScale(exp int8, workers int) float64 {
	return math.Ldexp(float64(math.MaxInt32)/float64(workers), -int(exp))
}

// QuantiseLimit is the largest magnitude that [Quantise] produces:
// floor(INT32_MAX / workers), so that the sum over all workers cannot wrap.
func QuantiseLimit(workers int) int32 {
	return int32(math.MaxInt32 / workers)
}

// Quantise writes round(v * INT32_MAX / (workers * 2^exp)) for every v of src,
// rounded to nearest even and clamped to +-[QuantiseLimit]. exp is the maximum
// over the workers of what [MaxExponent] gave for this block; with an exponent
// that is at least the block's own the clamp is never reached below 256
// workers.
//
// When exp is [PoisonExponent] the block is written as zeros: its values have
// no meaning then. A NaN in src under any other exponent (a caller that did
// not ask MaxExponent) gives 0.
//
// Quantise panics if len(dst) != len(src) or workers < 1.
func Quantise(dst []int32, src []float32, exp int8, workers int) {
	if len(dst) != len(src) {
		panic("codec: Quantise: dst and src differ in length")
	}
	if workers < 1 {
		panic("codec: Quantise: fewer than one worker")
	}
	if exp == PoisonExponent {
		clear(dst)
		return
	}
	kernel.QuantiseInt32(dst, src, quantiseScale(exp, workers), float64(QuantiseLimit(workers)))
}

// Dequantise turns a sum of quantised blocks back into floats: it writes
// s / (INT32_MAX / (workers * 2^exp)), rounded once to float32, for every s of
// src. exp and workers are those given to [Quantise]. A sum beyond the range
// of float32 becomes an infinity. When exp is [PoisonExponent] every element
// becomes NaN.
//
// Dequantise panics if len(dst) != len(src) or workers < 1.
func Dequantise(dst []float32, src []int32, exp int8, workers int) {
	if len(dst) != len(src) {
		panic("codec: Dequantise: dst and src differ in length")
	}
	if workers < 1 {
		panic("codec: Dequantise: fewer than one worker")
	}
	if exp == PoisonExponent {
		nan := float32(math.NaN())
		for i := range dst {
			dst[i] = nan
		}
		return
	}
	kernel.DequantiseInt32(dst, src, 1/quantiseScale(exp, workers))
}

// QuantiseErrorBound is the largest absolute error of one element of the sum
// of workers blocks that went through [Quantise], integer addition and
// [Dequantise] with exponent exp: half a step a worker, with a relative 2^-50
// for the arithmetic itself. The last rounding to float32 adds at most half a
// unit in the last place of the result and is not included. It holds below 256
// workers and when no worker's block has a larger exponent than exp; it is
// infinite for [PoisonExponent].
func QuantiseErrorBound(exp int8, workers int) float64 {
	if exp == PoisonExponent {
		return math.Inf(1)
	}
	n := float64(workers)
	half := 0.5 / quantiseScale(exp, workers)
	return n*half + n*math.Ldexp(1, int(exp)-50)
}
