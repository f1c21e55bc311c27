package aggregation

import (
	"gradnic/aggregation/kernel"
	"gradnic/codec"
	codeckernel "gradnic/codec/kernel"
)

// cells are the values of a pool's versions. The loops return how many elements
// they flagged, as package kernel says.
type cells interface {
	set(i int, src []byte) int          // start version i with a contribution
	fold(i int, src []byte) int         // take in another one
	foldPut(i int, out, src []byte) int // take in the last one and encode the result
	put(i int, out []byte) int          // encode
	divide(i, n int)                    // make a mean of a sum
	nans(i int) int                     // elements that are NaN
	zero(i int)                         // start version i with zeros
}

// newCells makes the values of n versions.
func newCells(s Spec, n int) (cells, error) {
	if s.HasCodec() {
		return newCoded(s, n)
	}
	switch s.Type {
	case Int64:
		return newPlain[int64](s, n)
	case Float32, Float16, BFloat16:
		return newPlain[float32](s, n)
	case Float64:
		return newPlain[float64](s, n)
	case BFP16:
		return newBlocks(s, n)
	}
	return newPlain[int32](s, n)
}

func (o Op) kernel() kernel.Op {
	switch o {
	case Min:
		return kernel.Min
	case Max:
		return kernel.Max
	}
	return kernel.Sum
}

func (p Policy) kernel() kernel.Policy {
	if p == Saturate {
		return kernel.Saturate
	}
	return kernel.Propagate
}

// plain are values whose wire elements are decoded one by one: all but BFP16.
type plain[A kernel.Element] struct {
	ops    *kernel.Ops[A]
	values []A // [version*stride + element], on a cache line
	stride int // elements from one version to the next
	n      int // elements of a version
}

func newPlain[A kernel.Element](s Spec, n int) (*plain[A], error) {
	ops, err := kernel.For[A](kernel.Spec{Type: kernelTypes[s.Type], Order: s.ByteOrder, Op: s.Op.kernel(), Policy: s.Policy.kernel()})
	if err != nil {
		return nil, err
	}
	return plainOf(s, n, ops), nil
}

func plainOf[A kernel.Element](s Spec, n int, ops *kernel.Ops[A]) *plain[A] {
	return &plain[A]{ops: ops, values: aligned[A](n * s.stride()), stride: s.stride(), n: s.Elements}
}

var kernelTypes = [...]kernel.Type{
	Int32: kernel.Int32, Int64: kernel.Int64, Int8: kernel.Int8,
	Float32: kernel.Float32, Float64: kernel.Float64, Float16: kernel.Float16, BFloat16: kernel.BFloat16,
}

func (p *plain[A]) of(i int) []A {
	off := i * p.stride
	return p.values[off : off+p.n]
}

func (p *plain[A]) set(i int, src []byte) int          { return p.ops.Set(p.of(i), src) }
func (p *plain[A]) fold(i int, src []byte) int         { return p.ops.Fold(p.of(i), src) }
func (p *plain[A]) foldPut(i int, out, src []byte) int { return p.ops.FoldPut(out, p.of(i), src) }
func (p *plain[A]) put(i int, out []byte) int          { return p.ops.Put(out, p.of(i)) }
func (p *plain[A]) divide(i, n int)                    { p.ops.Divide(p.of(i), n) }

func (p *plain[A]) zero(i int) { clear(p.of(i)) }

func (p *plain[A]) nans(i int) (n int) {
	for _, v := range p.of(i) {
		if v != v {
			n++
		}
	}
	return n
}

// bfp16 is the format of BFP16 elements. Its State is nil: it needs none.
var bfp16 = mustCodec(codec.IDBFP16)

// bfp16Block is the number of elements that share an exponent.
const bfp16Block = 16

func mustCodec(id codec.ID) codec.Codec {
	c, err := codec.ByID(id)
	if err != nil {
		panic(err)
	}
	return c
}

// blocks are values whose wire elements are decoded and encoded by codec bfp16.
type blocks struct {
	plain[float32]
	decoded []float32   // one contribution
	adder   codec.Adder // adds a contribution in one pass; nil where the policy or the operation need more
}

func newBlocks(s Spec, n int) (*blocks, error) {
	ops, err := kernel.ForValues(s.Op.kernel(), s.Policy.kernel())
	if err != nil {
		return nil, err
	}
	b := &blocks{plain: *plainOf(s, n, ops), decoded: make([]float32, s.Elements)}
	if s.Op <= Mean && s.Policy == Propagate {
		b.adder, _ = bfp16.(codec.Adder)
	}
	return b, nil
}

func (b *blocks) decode(src []byte) []byte {
	if err := bfp16.Decode(b.decoded, src, nil); err != nil {
		panic(err) // it fails for lengths alone, and the pool has checked them
	}
	return kernel.Bytes(b.decoded)
}

func (b *blocks) set(i int, src []byte) int { return b.plain.set(i, b.decode(src)) }

// fold does not look for what is not finite where it adds in one pass: in a sum it stays, and is found when the result is
// encoded.
func (b *blocks) fold(i int, src []byte) int {
	if b.adder != nil {
		b.adder.Add(b.of(i), src)
		return 0
	}
	return b.plain.fold(i, b.decode(src))
}

func (b *blocks) foldPut(i int, out, src []byte) int {
	flagged := b.fold(i, src)
	if b.adder != nil {
		return b.put(i, out)
	}
	b.encode(i, out)
	return flagged
}

func (b *blocks) put(i int, out []byte) (flagged int) {
	b.encode(i, out)
	if codeckernel.MaxAbs(b.of(i)) < 0xff<<23 {
		return 0
	}
	for _, v := range b.of(i) {
		if v-v != 0 {
			flagged++
		}
	}
	return flagged
}

func (b *blocks) encode(i int, out []byte) {
	if _, err := bfp16.Encode(out, b.of(i), nil); err != nil {
		panic(err) // it fails for a short buffer alone, and the pool has checked it
	}
}
