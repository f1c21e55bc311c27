package codec

import (
	"fmt"
	"math"
)

// BlockSpec is a block floating point format by its parameters. An element is
// an integer of Mantissa bits with its sign, in steps of
// 2^(b - bias - (Mantissa-2)), where b is the block's shared exponent of
// Exponent bits and bias is 2^(Exponent-1) - 1. b is floor(log2 max|v|) + bias,
// clamped to [0, 2^Exponent - 2]; all ones say that the block is not finite.
// Elements are rounded to nearest even and clamped to the symmetric range, so a
// block whose maximum is above the range of its exponent is clamped, too.
//
// The message has four bytes of header (Block, Exponent, Mantissa, 1 for
// sign-magnitude or 0), then the exponents and, from the next whole byte, the
// elements, both packed from the least significant bit of the first byte on. A
// last block that is not full is not padded.
//
// MSFP, the block formats of ML processors (BFP8, BFP4, BFP2) and integer BFP
// are points in this space. It has no vector kernels.
type BlockSpec struct {
	Block    int // elements that share an exponent, 1 to 128
	Exponent int // bits of the shared exponent, 4 to 8
	Mantissa int // bits of an element with its sign, 2 to 12
	// SignMagnitude puts the sign into the top bit above a magnitude, instead
	// of two's complement. The values are the same.
	SignMagnitude bool
}

// MSFP12 is Microsoft floating point with 12-bit values: blocks of 16, 8 bits
// of exponent, sign and 3 bits of magnitude.
var MSFP12 = BlockSpec{Block: 16, Exponent: 8, Mantissa: 4, SignMagnitude: true}

// String gives "blockBeEmM", with an "s" at its end for sign-magnitude.
func (s BlockSpec) String() string {
	t := fmt.Sprintf("block%de%dm%d", s.Block, s.Exponent, s.Mantissa)
	if s.SignMagnitude {
		t += "s"
	}
	return t
}

// Validate says what is wrong with the parameters.
func (s BlockSpec) Validate() error {
	switch {
	case s.Block < 1 || s.Block > 128:
		return fmt.Errorf("codec: %v: a block has 1 to 128 elements", s)
	case s.Exponent < 4 || s.Exponent > 8:
		return fmt.Errorf("codec: %v: a shared exponent has 4 to 8 bits", s)
	case s.Mantissa < 2 || s.Mantissa > 12:
		return fmt.Errorf("codec: %v: an element has 2 to 12 bits", s)
	}
	return nil
}

// ParseBlockSpec is the inverse of String; it refuses what Validate refuses.
func ParseBlockSpec(name string) (BlockSpec, error) {
	var s BlockSpec
	_, err := fmt.Sscanf(name, "block%de%dm%d", &s.Block, &s.Exponent, &s.Mantissa)
	if err == nil && s.String() != name {
		s.SignMagnitude = true
		if s.String() != name {
			err = fmt.Errorf("trailing text")
		}
	}
	if err != nil {
		return BlockSpec{}, fmt.Errorf("%w %q: not of the form blockBeEmM or blockBeEmMs", ErrUnknown, name)
	}
	return s, s.Validate()
}

// NewBlock gives the codec of a specification.
func NewBlock(s BlockSpec) (Codec, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	return s.codec(), nil
}

func (s BlockSpec) codec() Codec { return blockSpecCodec{s} }

func (s BlockSpec) bias() int { return 1<<(s.Exponent-1) - 1 }

// size gives the bytes of exponents and elements of n elements.
func (s BlockSpec) size(n int) (exps, elems int) {
	blocks := (n + s.Block - 1) / s.Block
	return (blocks*s.Exponent + 7) / 8, (n*s.Mantissa + 7) / 8
}

// shared gives the exponent field of a block and the weight of its last bit.
// finite is false for a block with an infinity or a NaN.
func (s BlockSpec) shared(x []float32) (field uint32, step float64, finite bool) {
	m := 0.0
	for _, v := range x {
		a := math.Abs(float64(v))
		if a-a != 0 {
			return 1<<s.Exponent - 1, math.NaN(), false
		}
		m = max(m, a)
	}
	b := 0
	if m > 0 {
		_, e := math.Frexp(m)
		b = min(max(e-1+s.bias(), 0), 1<<s.Exponent-2)
	}
	return uint32(b), s.step(uint32(b)), true
}

func (s BlockSpec) step(field uint32) float64 {
	return math.Ldexp(1, int(field)-s.bias()-(s.Mantissa-2))
}

type blockSpecCodec struct{ BlockSpec }

func (c blockSpecCodec) Info() Info {
	return Info{Name: c.String(), ID: IDBlock,
		Bits:  float64(c.Mantissa) + float64(c.Exponent)/float64(c.Block),
		Block: c.Block, Fixed: true,
		Bound:     "step/2, one step above the largest element, more where the exponent's range ends; step = 2^(b - bias - (M-2))",
		NonFinite: poisonBlock, Source: "block floating point by parameters; block16e8m4s is MSFP12 (Rouhani et al., NeurIPS 2020)"}
}

func (c blockSpecCodec) MaxEncoded(n int) int {
	exps, elems := c.size(n)
	return 4 + exps + elems
}

func (c blockSpecCodec) Encode(dst []byte, src []float32, _ *State) (int, error) {
	total := c.MaxEncoded(len(src))
	if len(dst) < total {
		return 0, ErrBuffer
	}
	dst[0], dst[1], dst[2], dst[3] = byte(c.Block), byte(c.Exponent), byte(c.Mantissa), 0
	if c.SignMagnitude {
		dst[3] = 1
	}
	ne, _ := c.size(len(src))
	exps, elems := bitWriter{out: dst[4 : 4+ne]}, bitWriter{out: dst[4+ne : total]}
	top := float64(int(1)<<(c.Mantissa-1) - 1)
	for len(src) > 0 {
		n := min(c.Block, len(src))
		field, step, finite := c.shared(src[:n])
		exps.put(field, c.Exponent)
		for _, v := range src[:n] {
			q := int32(0)
			if finite {
				q = int32(max(min(math.RoundToEven(float64(v)/step), top), -top))
			}
			if c.SignMagnitude && q < 0 {
				q = -q | 1<<(c.Mantissa-1)
			}
			elems.put(uint32(q)&(1<<c.Mantissa-1), c.Mantissa)
		}
		src = src[n:]
	}
	exps.flush()
	elems.flush()
	return total, nil
}

// Decode takes the parameters from the message, so it decodes any block format.
func (c blockSpecCodec) Decode(dst []float32, src []byte, _ *State) error {
	if len(src) < 4 {
		return errLength
	}
	s := BlockSpec{Block: int(src[0]), Exponent: int(src[1]), Mantissa: int(src[2]), SignMagnitude: src[3] == 1}
	if s.Block < 1 || s.Block > 128 || s.Exponent < 4 || s.Exponent > 8 || s.Mantissa < 2 || s.Mantissa > 12 || src[3] > 1 {
		return errHeader
	}
	ne, nm := s.size(len(dst))
	if len(src) != 4+ne+nm {
		return errLength
	}
	exps, elems := bitReader{in: src[4 : 4+ne]}, bitReader{in: src[4+ne:]}
	for len(dst) > 0 {
		n := min(s.Block, len(dst))
		field := exps.get(s.Exponent)
		step := s.step(field)
		if field == 1<<s.Exponent-1 {
			step = math.NaN()
		}
		for i := range dst[:n] {
			w := elems.get(s.Mantissa)
			var q int32
			if s.SignMagnitude {
				q = int32(w & (1<<(s.Mantissa-1) - 1))
				if w>>(s.Mantissa-1) != 0 {
					q = -q
				}
			} else {
				q = int32(w<<(32-s.Mantissa)) >> (32 - s.Mantissa)
			}
			dst[i] = float32(float64(q) * step)
		}
		dst = dst[n:]
	}
	return nil
}

func (c blockSpecCodec) Bound(dst []float64, src []float32) {
	top := float64(int(1)<<(c.Mantissa-1) - 1)
	for len(src) > 0 {
		n := min(c.Block, len(src))
		_, step, finite := c.shared(src[:n])
		for i, v := range src[:n] {
			dst[i] = math.Inf(1)
			if finite {
				// Steps below 2^-149 round once more in float32.
				dst[i] = max(step/2, math.Abs(float64(v))-top*step) + 0x1p-150
			}
		}
		dst, src = dst[n:], src[n:]
	}
}

// bitWriter packs fields from the least significant bit of the first byte on.
type bitWriter struct {
	out  []byte
	acc  uint32
	have int
}

func (w *bitWriter) put(v uint32, bits int) {
	w.acc |= v << w.have
	w.have += bits
	for w.have >= 8 {
		w.out[0] = byte(w.acc)
		w.out = w.out[1:]
		w.acc >>= 8
		w.have -= 8
	}
}

func (w *bitWriter) flush() {
	if w.have > 0 {
		w.out[0] = byte(w.acc)
	}
}

// bitReader is its inverse; the caller has checked the length.
type bitReader struct {
	in   []byte
	acc  uint32
	have int
}

func (r *bitReader) get(bits int) uint32 {
	for r.have < bits {
		r.acc |= uint32(r.in[0]) << r.have
		r.in = r.in[1:]
		r.have += 8
	}
	v := r.acc & (1<<bits - 1)
	r.acc >>= bits
	r.have -= bits
	return v
}
