package codec

import (
	"math"

	"gradnic/codec/kernel"
)

// blockCodec is a format with one scale byte a block whose inner loop is in
// package kernel. The message has the elements of all blocks first, then the
// scale bytes of all blocks; a last block that is not full is padded with
// zeros. With flits > 0 the message is made of groups of that many blocks, each
// laid out in this way, and the last group is padded, too.
type blockCodec struct {
	info   Info
	format kernel.Format
	flits  int
}

// blocks is the number of blocks that n elements fill or begin. Blocks are of 16
// or 32: a shift costs less than a division, which a short message would feel.
func (c *blockCodec) blocks(n int) int {
	shift := c.shift()
	return (n + 1<<shift - 1) >> shift
}

func (c *blockCodec) shift() int {
	if c.format.Block() == kernel.BFPBlock {
		return 4
	}
	return 5
}

const (
	sourceMX    = "OCP Microscaling Formats (MX) Specification v1.0"
	poisonBlock = "the whole block decodes to NaN"
)

var blockCodecs = [...]*blockCodec{
	{format: kernel.BFP16, info: Info{Name: "bfp16", ID: IDBFP16, Bits: 8.5, Block: 16, Fixed: true, Vector: true,
		Bound:     "step/2, one step above 127.5 steps; step = 2^(E-133), E = max(7, largest biased exponent of the block)",
		NonFinite: poisonBlock,
		Source:    "block floating point after Ma et al., arXiv 2204.10943, with rounding to nearest even and a true zero"}},
	{format: kernel.Intel, flits: 32, info: Info{Name: "bfp16-intel", ID: IDIntel, Bits: 8.5, Block: 16, Fixed: true, Vector: true,
		Bound:     "one step of 2^(E-133), always downwards, for 24 <= E <= 253; none outside of that",
		NonFinite: "as the card does: no special case, the exponent wraps",
		Source:    "public design libxsmm/fpga_ai_nic of Ma et al., arXiv 2204.10943, bit by bit"}},
	{format: kernel.E4M3, info: Info{Name: "mxfp8-e4m3", ID: IDE4M3, Bits: 8.25, Block: 32, Fixed: true, Vector: true,
		Bound:     "2^-4 of the magnitude, at least 2^(X-137); up to 1/8 of it above 448 * 2^(X-127)",
		NonFinite: poisonBlock, Source: sourceMX}},
	{format: kernel.E5M2, info: Info{Name: "mxfp8-e5m2", ID: IDE5M2, Bits: 8.25, Block: 32, Fixed: true, Vector: true,
		Bound:     "2^-3 of the magnitude, at least 2^(X-144)",
		NonFinite: poisonBlock, Source: sourceMX}},
	{format: kernel.E2M1, info: Info{Name: "mxfp4", ID: IDMXFP4, Bits: 4.25, Block: 32, Fixed: true, Vector: true,
		Bound:     "1/4 of the magnitude, at least 2^(X-129); up to 2 * 2^(X-127) above 6 * 2^(X-127)",
		NonFinite: poisonBlock, Source: sourceMX}},
	{format: kernel.MXInt8, info: Info{Name: "mxint8", ID: IDMXInt8, Bits: 8.25, Block: 32, Fixed: true, Vector: true,
		Bound:     "step/2, one step above 127.5 steps; step = 2^(X-133)",
		NonFinite: poisonBlock, Source: sourceMX}},
}

func (c *blockCodec) Info() Info { return c.info }

func (c *blockCodec) MaxEncoded(n int) int {
	blocks := c.blocks(n)
	if c.flits > 0 {
		blocks = (blocks + c.flits - 1) / c.flits * c.flits
	}
	return blocks * (c.format.Width() + 1)
}

func (c *blockCodec) Encode(dst []byte, src []float32, _ *State) (int, error) {
	total := c.MaxEncoded(len(src))
	if len(dst) < total {
		return 0, ErrBuffer
	}
	dst = dst[:total]
	if c.flits == 0 {
		c.encode(dst, src, c.blocks(len(src)))
		return total, nil
	}
	group := c.flits * c.format.Block()
	bytes := c.flits * (c.format.Width() + 1)
	for len(src) >= group {
		c.encode(dst[:bytes], src[:group], c.flits)
		dst, src = dst[bytes:], src[group:]
	}
	if len(src) > 0 {
		c.encode(dst, src, c.flits)
	}
	return total, nil
}

// encode fills dst with one plane of the elements of so many blocks and one of
// their scales.
func (c *blockCodec) encode(dst []byte, src []float32, blocks int) {
	block, width := c.format.Block(), c.format.Width()
	body, scales := dst[:blocks*width], dst[blocks*width:]
	whole := len(src) >> c.shift()
	kernel.EncodeBlocks(c.format, body[:whole*width], scales[:whole], src[:whole*block])
	if whole < blocks {
		var pad [kernel.MXBlock]float32
		copy(pad[:], src[whole*block:])
		kernel.EncodeBlocks(c.format, body[whole*width:(whole+1)*width], scales[whole:whole+1], pad[:block])
		whole++
	}
	if whole < blocks { // the rest of a group of flits: blocks of zeros
		for i := whole * width; i < len(body); i++ {
			body[i] = intelZero
		}
		clear(scales[whole:])
	}
}

// intelZero is the mantissa of a zero in a block of zeros, whose exponent is 0.
const intelZero = 0x40

func (c *blockCodec) Decode(dst []float32, src []byte, _ *State) error {
	if len(src) != c.MaxEncoded(len(dst)) {
		return errLength
	}
	if c.flits == 0 {
		c.decode(dst, src, c.blocks(len(dst)))
		return nil
	}
	group := c.flits * c.format.Block()
	bytes := c.flits * (c.format.Width() + 1)
	for len(dst) >= group {
		c.decode(dst[:group], src[:bytes], c.flits)
		dst, src = dst[group:], src[bytes:]
	}
	if len(dst) > 0 {
		c.decode(dst, src, c.flits)
	}
	return nil
}

// decode reads one plane of the elements of so many blocks and one of their
// scales; dst may be shorter than they are.
func (c *blockCodec) decode(dst []float32, src []byte, blocks int) {
	block, width := c.format.Block(), c.format.Width()
	body, scales := src[:blocks*width], src[blocks*width:]
	whole := len(dst) >> c.shift()
	kernel.DecodeBlocks(c.format, dst[:whole*block], body[:whole*width], scales[:whole])
	if rest := dst[whole*block:]; len(rest) > 0 {
		var pad [kernel.MXBlock]float32
		kernel.DecodeBlocks(c.format, pad[:block], body[whole*width:(whole+1)*width], scales[whole:whole+1])
		copy(rest, pad[:])
	}
}

func (c *blockCodec) Bound(dst []float64, src []float32) {
	block := c.format.Block()
	for len(src) > 0 {
		n := min(block, len(src))
		c.boundBlock(dst[:n], src[:n])
		dst, src = dst[n:], src[n:]
	}
}

func (c *blockCodec) boundBlock(dst []float64, src []float32) {
	m := kernel.MaxAbs(src)
	e := int(m >> 23)
	for i, v := range src {
		a := math.Abs(float64(v))
		switch c.format {
		case kernel.BFP16:
			dst[i] = integerBound(a, max(e, 7)-133)
		case kernel.MXInt8:
			dst[i] = integerBound(a, e-133)
		case kernel.Intel:
			switch {
			case m == 0 && len(src) > 0:
				dst[i] = 0
			case e < 24 || e > 253:
				dst[i] = math.Inf(1)
			default:
				dst[i] = math.Ldexp(1, e-133)
			}
		case kernel.E4M3:
			dst[i] = miniBound(a, 3, -6, 448, max(e-8, 0)-127)
		case kernel.E5M2:
			dst[i] = miniBound(a, 2, -14, 57344, max(e-15, 0)-127)
		case kernel.E2M1:
			dst[i] = miniBound(a, 1, 0, 6, max(e-2, 0)-127)
		}
		if e == 255 && c.format != kernel.Intel {
			dst[i] = math.Inf(1)
		}
	}
}

// integerBound is the bound of an integer mantissa in steps of 2^step that is
// clamped to 127.
func integerBound(a float64, step int) float64 {
	s := math.Ldexp(1, step)
	return max(s/2, a-127*s)
}

// miniBound is the bound of a small float with mbits of mantissa, smallest
// normal exponent emin and largest number top, scaled by 2^scale.
func miniBound(a float64, mbits, emin int, top float64, scale int) float64 {
	a = math.Ldexp(a, -scale)
	_, e := math.Frexp(a) // a in [2^(e-1), 2^e)
	half := math.Ldexp(1, max(e-1, emin)-mbits-1)
	return math.Ldexp(max(half, a-top), scale)
}
