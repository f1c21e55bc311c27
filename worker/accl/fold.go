package accl

import (
	"fmt"

	"gradnic/aggregation/kernel"
)

// block is how many elements the loops take at a time: a slot that stays in the first cache.
const block = 1024

// loops are what an engine does with the elements of one call. Buffers hold little-endian elements; received ones are in
// the wire's format, own ones in memory's, which are the same but with Half.
type loops struct {
	wire int // bytes of an element on the wire
	// fold combines own elements with received ones, in the wire's format: dst = own + received. It returns how many
	// elements are infinite, NaN or wrapped. dst may be received.
	fold func(dst, own, received []byte) int
	// shrink and widen convert between memory's format and the wire's; nil when they are the same.
	shrink func(wire, memory []byte) int
	widen  func(memory, wire []byte)
}

var kernelTypes = [types]kernel.Type{
	Float32: kernel.Float32, Float16: kernel.Float16, Float64: kernel.Float64, Int32: kernel.Int32, Int64: kernel.Int64,
}

var kernelOps = [ops]kernel.Op{Sum: kernel.Sum, Max: kernel.Max}

// newLoops makes the loops of a call.
func newLoops(t Type, op Op, half bool) (*loops, error) {
	l := &loops{wire: t.Size()}
	var err error
	switch {
	case half:
		err = l.half(op)
	case t == Int32:
		l.fold, err = folding[int32](t, op)
	case t == Int64:
		l.fold, err = folding[int64](t, op)
	case t == Float64:
		l.fold, err = folding[float64](t, op)
	default: // Float16 is added as float32 and rounded once, which is the sum rounded once: 24 bits are twice 11 and 2
		l.fold, err = folding[float32](t, op)
	}
	if err != nil {
		return nil, fmt.Errorf("accl: %w", err)
	}
	return l, nil
}

func loopsOf[A kernel.Element](t Type, op Op) (*kernel.Ops[A], error) {
	return kernel.For[A](kernel.Spec{Type: kernelTypes[t], Order: kernel.LittleEndian, Op: kernelOps[op]})
}

func folding[A kernel.Element](t Type, op Op) (func(dst, own, received []byte) int, error) {
	o, err := loopsOf[A](t, op)
	if err != nil {
		return nil, err
	}
	slot := make([]A, block)
	size := t.Size()
	return func(dst, own, received []byte) (flagged int) {
		for len(own) > 0 {
			n := min(len(own), block*size)
			acc := slot[:n/size]
			o.Set(acc, own[:n])
			flagged += o.FoldPut(dst[:n], acc, received[:n])
			dst, own, received = dst[n:], own[n:], received[n:]
		}
		return flagged
	}, nil
}

// half makes the loops of float32 that is float16 on the wire.
func (l *loops) half(op Op) error {
	l.wire = Float16.Size()
	wide, err := loopsOf[float32](Float32, op)
	if err != nil {
		return err
	}
	narrow, err := loopsOf[float32](Float16, op)
	if err != nil {
		return err
	}
	slot := make([]float32, block)
	l.shrink = func(wire, memory []byte) (flagged int) {
		for len(wire) > 0 {
			n := min(len(wire)/2, block)
			wide.Set(slot[:n], memory[:4*n])
			flagged += narrow.Put(wire[:2*n], slot[:n])
			wire, memory = wire[2*n:], memory[4*n:]
		}
		return flagged
	}
	l.widen = func(memory, wire []byte) {
		for len(wire) > 0 {
			n := min(len(wire)/2, block)
			narrow.Set(slot[:n], wire[:2*n])
			wide.Put(memory[:4*n], slot[:n])
			wire, memory = wire[2*n:], memory[4*n:]
		}
	}
	sub := make([]byte, block*2)
	l.fold = func(dst, own, received []byte) (flagged int) {
		for len(received) > 0 {
			n := min(len(received)/2, block)
			l.shrink(sub[:2*n], own[:4*n])
			narrow.Set(slot[:n], sub[:2*n])
			flagged += narrow.FoldPut(dst[:2*n], slot[:n], received[:2*n])
			dst, own, received = dst[2*n:], own[4*n:], received[2*n:]
		}
		return flagged
	}
	return nil
}
