package aggregation

import (
	"fmt"
	"math"

	"gradnic/aggregation/kernel"
	"gradnic/codec"
	codeckernel "gradnic/codec/kernel"
)

// coded are values whose contributions or results are compressed by codecs. A slot holds float32. Whether a contribution
// is a message of its codec is decided before the slot is touched; then it is added in one pass where the codec can, and
// decoded first where it cannot. A result is encoded once, when it is complete, and the encoded bytes then take the place
// of the values, so everybody who asks gets the same ones, also of codecs that round at random.
type coded struct {
	plain[float32] // its loops are those of values in memory

	in, out        codec.Codec
	inOps, outOps  *kernel.Ops[float32] // of codecs that only convert: there are loops that do all at once
	adder          codec.Adder          // of contributions; nil where they are decoded first
	state          codec.State
	decoded, spare []float32
	ready          []byte // the contribution that decoded holds, if any

	lengths []int32 // by version: bytes of the encoded result, 0 as long as there is none
	last    int     // bytes that put wrote last
	bad     int     // NaNs, also those that encoding made, in what put wrote last; -1 when the values have changed since
}

// roughBits is the magnitude from which on a codec may turn a finite value into one that is not; all are far above.
const roughBits = (127 + 110) << 23

func newCoded(s Spec, n int) (*coded, error) {
	ops, err := kernel.ForValues(s.Op.kernel(), s.Policy.kernel())
	if err != nil {
		return nil, err
	}
	c := &coded{
		plain: *plainOf(s, n, ops), in: s.codec(), out: s.resultCodec(),
		decoded: make([]float32, s.Elements), spare: make([]float32, s.Elements), lengths: make([]int32, n),
	}
	c.state = *codec.NewState(lossless(c.in, c.out), s.Elements, codec.StateOptions{Seed: s.Seed, Worker: math.MaxUint32})
	for _, f := range []struct {
		c   codec.Codec
		ops **kernel.Ops[float32]
	}{{c.in, &c.inOps}, {c.out, &c.outOps}} {
		if t, ok := plainTypes[f.c.Info().ID]; ok {
			if *f.ops, err = kernel.For[float32](kernel.Spec{Type: t, Order: LittleEndian, Op: s.Op.kernel(), Policy: s.Policy.kernel()}); err != nil {
				return nil, err
			}
		}
	}
	if a, ok := c.in.(codec.Adder); ok && s.Op <= Mean && s.Policy == Propagate {
		c.adder = a
	}
	return c, nil
}

// lossless is whichever of two codecs needs scratch memory, for a State that serves both.
func lossless(a, b codec.Codec) codec.Codec {
	if b.Info().ID == codec.IDLossless {
		return b
	}
	return a
}

var plainTypes = map[codec.ID]kernel.Type{codec.IDNone: kernel.Float32, codec.IDFP16: kernel.Float16, codec.IDBF16: kernel.BFloat16}

// check says whether src is a message of the job's codec.
func (c *coded) check(src []byte) bool {
	c.ready = nil
	switch {
	case c.inOps != nil:
		return len(src) == c.in.MaxEncoded(c.n)
	case c.adder != nil:
		return c.adder.Check(src, c.n) == nil
	}
	if c.in.Decode(c.decoded, src, &c.state) != nil {
		return false
	}
	c.ready = src
	return true
}

// decode gives the elements of a message that passed check.
func (c *coded) decode(src []byte) []byte {
	if len(c.ready) == 0 || len(c.ready) != len(src) || &c.ready[0] != &src[0] {
		c.ready = nil
		if err := c.in.Decode(c.decoded, src, &c.state); err != nil {
			panic(err) // it was checked before it was kept
		}
	}
	return kernel.Bytes(c.decoded)
}

func (c *coded) set(i int, src []byte) int {
	c.lengths[i], c.bad = 0, -1
	switch {
	case c.inOps != nil:
		return c.inOps.Set(c.of(i), src)
	case c.adder != nil:
		if err := c.in.Decode(c.of(i), src, &c.state); err != nil {
			panic(err) // it was checked
		}
		return 0 // what is not finite stays so, and put finds it
	}
	return c.ops.Set(c.of(i), c.decode(src))
}

func (c *coded) fold(i int, src []byte) int {
	c.bad = -1
	switch {
	case c.inOps != nil:
		return c.inOps.Fold(c.of(i), src)
	case c.adder != nil:
		c.adder.Add(c.of(i), src)
		return 0
	}
	return c.ops.Fold(c.of(i), c.decode(src))
}

func (c *coded) foldPut(i int, out, src []byte) int { return max(c.fold(i, src), c.put(i, out)) }

// put writes the result if there is one, or else encodes the values as they are.
func (c *coded) put(i int, out []byte) (flagged int) {
	if n := int(c.lengths[i]); n > 0 {
		copy(out, c.stored(i)[:n])
		c.last = n
		return 0
	}
	v := c.of(i)
	c.bad = 0
	if c.outOps != nil {
		c.last = c.out.MaxEncoded(c.n)
		flagged = c.outOps.Put(out[:c.last], v)
		if flagged > 0 {
			c.bad = c.plain.nans(i)
		}
		return flagged
	}
	rough := codeckernel.MaxAbs(v) >= roughBits
	if rough {
		for k, x := range v {
			if x-x != 0 {
				flagged++
			}
			if x != x {
				v[k] = float32(math.NaN())
				c.bad++
			}
		}
	}
	n, err := c.out.Encode(out, v, &c.state)
	if err != nil {
		panic(err) // it fails for a short buffer alone, and the pool has checked it
	}
	c.last = n
	if rough {
		flagged = max(flagged, c.unheld(out[:n]))
	}
	return flagged
}

// unheld counts the elements of an encoded result that are not finite.
func (c *coded) unheld(b []byte) (n int) {
	if err := c.out.Decode(c.spare, b, &c.state); err != nil {
		panic(err) // it was made here
	}
	for _, x := range c.spare {
		if x-x != 0 {
			n++
		}
	}
	c.bad = max(c.bad, n)
	return n
}

func (c *coded) zero(i int) {
	c.lengths[i], c.bad = 0, -1
	clear(c.of(i))
}

func (c *coded) nans(i int) int {
	if c.bad >= 0 {
		return c.bad
	}
	return c.plain.nans(i)
}

// stored is where version i has its result, in the place of its values.
func (c *coded) stored(i int) []byte {
	off := i * c.stride
	return kernel.Bytes(c.values[off : off+c.stride])
}

// keep stores what put wrote to out last as the result of version i.
func (c *coded) keep(i int, out []byte) {
	copy(c.stored(i), out[:c.last])
	c.lengths[i] = int32(c.last)
}

// restore stores a result that was made before. It reports whether it is one.
func (c *coded) restore(i int, b []byte) bool {
	if len(b) == 0 || len(b) > c.out.MaxEncoded(c.n) || c.out.Decode(c.spare, b, &c.state) != nil {
		return false
	}
	c.lengths[i] = int32(copy(c.stored(i), b))
	return true
}

// HasCodec reports whether contributions or results are compressed by a codec.
func (s Spec) HasCodec() bool { return s.Codec != nil || s.Result != nil }

// plainCodec is what a contribution or result without a codec is.
var plainCodec = mustCodec(codec.IDNone)

func (s Spec) codec() codec.Codec {
	if s.Codec == nil {
		return plainCodec
	}
	return s.Codec
}

func (s Spec) resultCodec() codec.Codec {
	if s.Result == nil {
		return plainCodec
	}
	return s.Result
}

// validateCodecs says which codecs cannot serve, and why.
func (s Spec) validateCodecs() error {
	if !s.HasCodec() {
		return nil
	}
	bad := func(c codec.Codec, why string) error {
		return fmt.Errorf("aggregation pool: codec %s: %s", c.Info().Name, why)
	}
	switch in := s.codec(); {
	case s.Type != Float32:
		return bad(in, fmt.Sprintf("codecs carry %v, not %v", Float32, s.Type))
	case s.Rule != Rounds:
		return bad(in, fmt.Sprintf("it needs rule %v", Rounds))
	case in.Info().ID == codec.IDTopK && s.Op > Mean:
		return bad(in, fmt.Sprintf("what is not sent would count as 0 in a %v", s.Op))
	}
	for _, c := range []codec.Codec{s.codec(), s.resultCodec()} {
		switch info := c.Info(); info.ID {
		case codec.IDTHC:
			return bad(c, "its sums need norms that all workers agreed on in a round before: take two jobs, as docs/protocol.md says under THC")
		case codec.IDBlock:
			if p := codec.Param(c, s.Elements); p>>16&255 < 8 {
				return bad(c, "a shared exponent of less than 8 bits clips large values, and nothing would tell")
			}
		}
	}
	return nil
}

// ResultBytes is the length of a result's values on the wire; with a codec the most that it can be.
func (s Spec) ResultBytes() int {
	if s.HasCodec() {
		return s.resultCodec().MaxEncoded(s.Elements)
	}
	return s.WireBytes()
}
