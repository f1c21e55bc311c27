package kernel

import "math"

// BFPBlock is the number of elements that share an exponent in both BFP16
// formats.
const BFPBlock = 16

const (
	// bfpMinExp is the smallest exponent that the encoder emits: from there on
	// the step 2^(E-133) and its inverse are normal float32.
	bfpMinExp = 7
	// bfpCulprit is the mantissa of a non-finite element in a block with
	// exponent 255.
	bfpCulprit = 0x80
	absMask    = 1<<31 - 1
	expMask    = 0xff << 23
	// roundMagic = 1.5 * 2^23: adding it rounds a float32 of magnitude below
	// 2^22 to the nearest integer, ties to even, in the low bits.
	roundMagic     = 12582912.0
	roundMagicBits = 0x4b400000
)

// bfp16EncodeGo encodes src, whole blocks of 16, into one mantissa byte an
// element and one exponent byte a block.
//
// The exponent is E = max(7, largest biased exponent of the block), the
// mantissa the two's-complement integer nearest to v * 2^(133-E), ties to even,
// clamped to [-127, 127]. Zero gives 0. A block with an infinity or a NaN has
// E = 255, mantissa 0x80 at those elements and 0 at the others.
func bfp16EncodeGo(man, exps []byte, src []float32) {
	for b := range exps {
		x := src[b*BFPBlock:][:BFPBlock]
		q := man[b*BFPBlock:][:BFPBlock]
		var m uint32
		for _, v := range x {
			m = max(m, math.Float32bits(v)&absMask)
		}
		e := max(m>>23, bfpMinExp)
		exps[b] = byte(e)
		if e == 255 {
			for i, v := range x {
				q[i] = 0
				if math.Float32bits(v)&expMask == expMask {
					q[i] = bfpCulprit
				}
			}
			continue
		}
		inv := math.Float32frombits((260 - e) << 23)
		for i, v := range x {
			t := float32(v*inv) + roundMagic
			k := int32(math.Float32bits(t)) - roundMagicBits
			q[i] = byte(max(min(k, 127), -127))
		}
	}
}

// bfp16DecodeGo writes q * 2^(E-133) for every mantissa q and its block's
// exponent E. It is exact for every E below 255, also for the exponents below 7
// that the encoder never emits. (-128 with E = 254, which it does not emit either,
// is -Inf.) E = 255 gives NaN for the whole block.
func bfp16DecodeGo(dst []float32, man, exps []byte) {
	for b, e := range exps {
		step := pow2Step[e]
		q := man[b*BFPBlock:][:BFPBlock]
		x := dst[b*BFPBlock:][:BFPBlock]
		for i := range x {
			x[i] = float32(int8(q[i])) * step
		}
	}
}

// pow2Step[e] is 2^(e-133), and NaN for 255: the weight of the last bit of an
// 8-bit mantissa below biased exponent e.
var pow2Step = powers(-133)

// pow2Scale[x] is 2^(x-127), and NaN for 255: the scale of OCP MX (E8M0).
var pow2Scale = powers(-127)

func powers(offset int) (t [256]float32) {
	for i := range 255 {
		t[i] = float32(math.Ldexp(1, i+offset))
	}
	t[255] = math.Float32frombits(canonicalNaN)
	return t
}

// canonicalNaN is the one NaN that decoders produce, unless a format is a mere
// conversion (fp16, bf16) that keeps payloads.
const canonicalNaN = 0x7fc00000

// intelEncodeGo is the encoder of the public FPGA AI smart NIC design, bit by
// bit: E is the largest biased exponent; every significand has its hidden bit
// forced, also those of zeros and subnormals; it is shifted right by the
// difference of the exponents, negated for negative elements and cut (rounded
// down) to 8 bits. Nothing is special about E = 255.
func intelEncodeGo(man, exps []byte, src []float32) {
	for b := range exps {
		x := src[b*BFPBlock:][:BFPBlock]
		q := man[b*BFPBlock:][:BFPBlock]
		var m uint32
		for _, v := range x {
			m = max(m, math.Float32bits(v)&absMask)
		}
		e := m >> 23
		exps[b] = byte(e)
		for i, v := range x {
			w := math.Float32bits(v)
			s := int32((w&(1<<23-1) | 1<<23) >> (e - w>>23&0xff))
			neg := int32(w) >> 31
			q[i] = byte(((s ^ neg) - neg) >> 17)
		}
	}
}

// intelDecodeGo is the matching decoder. A mantissa q != 0 gives
// q * 2^(E-133) while that is a normal float32; q = 0 gives +2^(E-150), not
// zero; the exponent field wraps modulo 256 where it leaves its range. A block
// of zeros (E = 0, q = 0x40) gives exact zeros.
func intelDecodeGo(dst []float32, man, exps []byte) {
	for b, e := range exps {
		q := man[b*BFPBlock:][:BFPBlock]
		x := dst[b*BFPBlock:][:BFPBlock]
		for i := range x {
			k := int32(int8(q[i]))
			neg := k >> 31
			// The integer's own float32 holds the count of leading zeros in
			// its exponent and the shifted fraction in its fraction; 0 stands
			// for a count of 24.
			f := max(math.Float32bits(float32((k^neg)-neg)), 110<<23)
			f += (uint32(e) - 133) << 23
			x[i] = math.Float32frombits(f&absMask | uint32(neg)<<31)
		}
	}
}
