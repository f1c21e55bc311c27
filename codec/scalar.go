package codec

import (
	"encoding/binary"
	"math"

	"gradnic/codec/kernel"
)

// noneCodec is plain float32, little-endian.
type noneCodec struct{}

func (noneCodec) Info() Info {
	return Info{Name: "none", ID: IDNone, Bits: 32, Block: 1, Fixed: true, Lossless: true,
		Bound: "0", Vector: true, NonFinite: "kept bit for bit", Source: "IEEE 754 binary32, little-endian"}
}

func (noneCodec) MaxEncoded(n int) int { return 4 * n }

func (noneCodec) Encode(dst []byte, src []float32, _ *State) (int, error) {
	if len(dst) < 4*len(src) {
		return 0, ErrBuffer
	}
	kernel.PutFloats(dst[:4*len(src)], src)
	return 4 * len(src), nil
}

func (noneCodec) Decode(dst []float32, src []byte, _ *State) error {
	if len(src) != 4*len(dst) {
		return errLength
	}
	kernel.GetFloats(dst, src)
	return nil
}

func (noneCodec) Bound(dst []float64, _ []float32) { clear(dst) }

// halfCodec is binary16 or bfloat16, little-endian.
type halfCodec struct{ bf bool }

func (c halfCodec) Info() Info {
	i := Info{Name: "fp16", ID: IDFP16, Bits: 16, Block: 1, Fixed: true, Vector: true,
		Bound:     "half a unit in the last place: 2^-12 to 2^-11 of the magnitude, at least 2^-25; infinite from 65520 up",
		NonFinite: "kept; NaNs become quiet and lose the lower 13 payload bits", Source: "IEEE 754 binary16, nearest even"}
	if c.bf {
		i.Name, i.ID = "bf16", IDBF16
		i.Bound = "half a unit in the last place: 2^-9 to 2^-8 of the magnitude, at least 2^-134; infinite from (2-2^-8)*2^127 up"
		i.NonFinite = "kept; NaNs become quiet and lose the lower 16 payload bits"
		i.Source = "bfloat16 (upper half of binary32), nearest even"
	}
	return i
}

func (halfCodec) MaxEncoded(n int) int { return 2 * n }

func (c halfCodec) Encode(dst []byte, src []float32, _ *State) (int, error) {
	if len(dst) < 2*len(src) {
		return 0, ErrBuffer
	}
	if c.bf {
		kernel.EncodeBF16(dst[:2*len(src)], src)
	} else {
		kernel.EncodeFP16(dst[:2*len(src)], src)
	}
	return 2 * len(src), nil
}

func (c halfCodec) Decode(dst []float32, src []byte, _ *State) error {
	if len(src) != 2*len(dst) {
		return errLength
	}
	if c.bf {
		kernel.DecodeBF16(dst, src)
	} else {
		kernel.DecodeFP16(dst, src)
	}
	return nil
}

func (c halfCodec) Bound(dst []float64, src []float32) {
	mbits, emin, over := 10, -14, 65520.0
	if c.bf {
		mbits, emin, over = 7, -126, math.Ldexp(2-0x1p-8, 127)
	}
	for i, v := range src {
		a := math.Abs(float64(v))
		_, e := math.Frexp(a)
		dst[i] = math.Ldexp(1, max(e-1, emin)-mbits-1)
		if !(a < over) {
			dst[i] = math.Inf(1)
		}
	}
}

// int8Block is the number of elements that share a scale in int8Codec.
const int8Block = 64

// int8Codec has one float32 scale a block. The message has the integers of all
// elements, then the little-endian scales of all blocks.
type int8Codec struct{}

// int8Least is the block maximum below which a block is sent as zeros, so that
// the scale and its inverse are normal numbers.
const int8Least = 0x1p-118

func (int8Codec) Info() Info {
	return Info{Name: "int8", ID: IDInt8, Bits: 8.5, Block: int8Block, Fixed: true, Vector: true,
		Bound:     "max|v|/254 (1 + 2^-14); blocks with a maximum below 2^-118 become zeros",
		NonFinite: poisonBlock, Source: "symmetric linear quantisation, scale = max|v|/127, nearest even"}
}

func (int8Codec) MaxEncoded(n int) int { return n + (n+int8Block-1)/int8Block*4 }

func (c int8Codec) Encode(dst []byte, src []float32, _ *State) (int, error) {
	total := c.MaxEncoded(len(src))
	if len(dst) < total {
		return 0, ErrBuffer
	}
	body, scales := dst[:len(src)], dst[len(src):total]
	for i := 0; i < len(src); i += int8Block {
		n := min(int8Block, len(src)-i)
		x, q := src[i:i+n], body[i:i+n]
		bits := kernel.MaxAbs(x)
		m := math.Float32frombits(bits)
		scale := m / 127
		switch {
		case bits >= 0x7f800000:
			clear(q)
			scale = float32(math.Inf(1))
		case m < int8Least:
			clear(q)
			scale = 0
		default:
			kernel.RoundInt8(q, x, 127/m)
		}
		binary.LittleEndian.PutUint32(scales[i/int8Block*4:], math.Float32bits(scale))
	}
	return total, nil
}

func (c int8Codec) Decode(dst []float32, src []byte, _ *State) error {
	if len(src) != c.MaxEncoded(len(dst)) {
		return errLength
	}
	body, scales := src[:len(dst)], src[len(dst):]
	for i := 0; i < len(dst); i += int8Block {
		n := min(int8Block, len(dst)-i)
		scale := math.Float32frombits(binary.LittleEndian.Uint32(scales[i/int8Block*4:]))
		if err := scaleInt8(dst[i:i+n], body[i:i+n], scale); err != nil {
			return err
		}
	}
	return nil
}

// scaleInt8 decodes integers with a scale that must be zero or more; the
// infinity stands for NaN.
func scaleInt8(dst []float32, q []byte, scale float32) error {
	switch bits := math.Float32bits(scale); {
	case bits > 0x7f800000: // negative, -0 or NaN
		return errReserved
	case bits == 0x7f800000:
		scale = float32(math.NaN())
		for i := range dst {
			dst[i] = scale
		}
		return nil
	}
	kernel.ScaleInt8(dst, q, scale)
	return nil
}

func (int8Codec) Bound(dst []float64, src []float32) {
	for i := 0; i < len(src); i += int8Block {
		n := min(int8Block, len(src)-i)
		bits := kernel.MaxAbs(src[i : i+n])
		m := float64(math.Float32frombits(bits))
		b := m / 254 * (1 + 0x1p-14)
		switch {
		case bits >= 0x7f7ffff0: // 127 times the scale may round to an infinity
			b = math.Inf(1)
		case m < int8Least:
			b = m
		}
		for j := range n {
			dst[i+j] = b
		}
	}
}
