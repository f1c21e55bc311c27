package kernel

import "math"

// MXBlock is the number of elements that share a scale in the OCP Microscaling
// formats (OCP MX v1.0, section 5).
const MXBlock = 32

// mini is a small float format: sign, exponent and mantissa bits below a bias,
// with subnormals.
type mini struct {
	mbits   uint32 // mantissa bits
	bias    uint32
	emax    uint32 // exponent of the largest normal number
	sign    uint32 // position of the sign bit
	maxCode uint32 // code of the largest normal number
	nanCode uint32 // the least magnitude code that is a NaN; above all codes: none
	infCode uint32 // the magnitude code that is the infinity; above all codes: none
	packed  bool   // two codes a byte, the first in the low half
}

var (
	e4m3 = mini{mbits: 3, bias: 7, emax: 8, sign: 7, maxCode: 0x7e, nanCode: 0x7f, infCode: 0x80}
	e5m2 = mini{mbits: 2, bias: 15, emax: 15, sign: 7, maxCode: 0x7b, nanCode: 0x7d, infCode: 0x7c}
	e2m1 = mini{mbits: 1, bias: 1, emax: 2, sign: 3, maxCode: 0x7, nanCode: 0x8, infCode: 0x8, packed: true}
)

// encode rounds v to the nearest code, ties to even, saturating at the largest
// normal number. v is finite.
func (f *mini) encode(v float32) byte {
	w := math.Float32bits(v)
	a := w & absMask
	shift := 23 - f.mbits
	var code uint32
	if a < (128-f.bias)<<23 {
		// Subnormal: one step is 2^(1-bias-mbits). Adding the power of two
		// whose last bit weighs that much leaves the code in the low bits.
		magic := (127 + 23 + 1 - f.bias - f.mbits) << 23
		code = math.Float32bits(math.Float32frombits(a)+math.Float32frombits(magic)) - magic
	} else {
		r := a + 1<<(shift-1) - 1 + a>>shift&1
		code = r>>shift - (127-f.bias)<<f.mbits
	}
	return byte(min(code, f.maxCode) | w>>31<<f.sign)
}

// decode is exact.
func (f *mini) decode(code byte) float32 {
	mag := uint32(code) & (1<<f.sign - 1)
	sign := uint32(code) >> f.sign & 1 << 31
	switch {
	case mag >= f.nanCode:
		return math.Float32frombits(canonicalNaN)
	case mag == f.infCode:
		return math.Float32frombits(expMask | sign)
	case mag < 1<<f.mbits:
		step := math.Float32frombits((127 + 1 - f.bias - f.mbits) << 23)
		return math.Float32frombits(math.Float32bits(float32(mag)*step) | sign)
	}
	return math.Float32frombits((mag<<(23-f.mbits) + (127-f.bias)<<23) | sign)
}

// mxScale gives the scale byte X = clamp(floor(log2 max|v|) - emax + 127) of a
// block; 255 when the block is not finite. A block of zeros or subnormals has
// the smallest scale, 0.
func mxScale(x []float32, emax uint32) uint32 {
	var m uint32
	for _, v := range x {
		m = max(m, math.Float32bits(v)&absMask)
	}
	e := m >> 23
	switch {
	case e == 255:
		return 255
	case e <= emax:
		return 0
	}
	return e - emax
}

// mxEncodeGo encodes whole blocks. The elements of a block that is not finite
// are zero codes and its scale is NaN (255).
func mxEncodeGo(f *mini, body, scales []byte, src []float32) {
	width := MXBlock
	if f.packed {
		width /= 2
	}
	for b := range scales {
		x := src[b*MXBlock:][:MXBlock]
		p := body[b*width:][:width]
		s := mxScale(x, f.emax)
		scales[b] = byte(s)
		if s == 255 {
			clear(p)
			continue
		}
		inv := math.Float32frombits((254 - s) << 23) // s <= 254 - emax
		if f.packed {
			for i := range p {
				p[i] = f.encode(x[2*i]*inv) | f.encode(x[2*i+1]*inv)<<4
			}
			continue
		}
		for i, v := range x {
			p[i] = f.encode(v * inv)
		}
	}
}

// mxDecodeGo decodes whole blocks: element * 2^(X-127), rounded once where the
// product is subnormal, an infinity where it is too large. X = 255 gives NaN.
func mxDecodeGo(f *mini, dst []float32, body, scales []byte) {
	width := MXBlock
	if f.packed {
		width /= 2
	}
	for b, s := range scales {
		scale := pow2Scale[s]
		x := dst[b*MXBlock:][:MXBlock]
		p := body[b*width:][:width]
		for i := range x {
			c := p[i*width/MXBlock]
			if f.packed {
				c = c >> (4 * (i & 1)) & 15
			}
			v := f.decode(c)
			if v != v {
				x[i] = v
				continue
			}
			x[i] = v * scale
		}
	}
}

// mxInt8EncodeGo: the element is a two's-complement integer in units of 1/64,
// clamped to [-127, 127] (the code -128 is unused).
func mxInt8EncodeGo(body, scales []byte, src []float32) {
	for b := range scales {
		x := src[b*MXBlock:][:MXBlock]
		p := body[b*MXBlock:][:MXBlock]
		s := mxScale(x, 0)
		scales[b] = byte(s)
		if s == 255 {
			clear(p)
			continue
		}
		inv := float32(math.Ldexp(1, 127-int(s)))
		for i, v := range x {
			t := float32(float32(v*inv)*64) + roundMagic
			k := int32(math.Float32bits(t)) - roundMagicBits
			p[i] = byte(max(min(k, 127), -127))
		}
	}
}

func mxInt8DecodeGo(dst []float32, body, scales []byte) {
	for b, s := range scales {
		scale := pow2Step[s] // 2^(X-127) / 64 is the step of BFP16, too
		x := dst[b*MXBlock:][:MXBlock]
		p := body[b*MXBlock:][:MXBlock]
		for i := range x {
			x[i] = float32(int8(p[i])) * scale
		}
	}
}
