package kernel

import (
	"fmt"

	"gradnic/internal/cpu"
)

// Spec names a set of loops. The zero value is SwitchML's: the sum of big-endian int32 that wrap.
type Spec struct {
	Type   Type
	Order  ByteOrder // no meaning for Int8
	Op     Op
	Policy Policy
}

func (s Spec) String() string {
	return fmt.Sprintf("%v %v %v %v", s.Op, s.Order, s.Type, s.Policy)
}

// Ops are the loops of one Spec. They are immutable and may be used by any number of goroutines.
//
// Every loop returns how many elements of what it wrote were flagged: integers that overflowed, floats that were
// infinite or NaN, before the policy was applied. Loops that both fold and encode count an element once. A NaN or an
// infinity that stays in a slot is counted again by the next loop over that slot.
//
// Buffers must not overlap, except that a result may be encoded over the very contribution it was folded from. Slices
// that are passed escape to the heap.
type Ops[A Element] struct {
	spec   Spec
	size   int // wire bytes of an element
	loops  loops[A]
	params params
	bounds bounds[A]
}

// For returns the loops of a spec. It fails when the spec is unknown or its slot is not made of A.
func For[A Element](s Spec) (*Ops[A], error) { return newOps[A](s, selected) }

func newOps[A Element](s Spec, tier cpu.Tier) (*Ops[A], error) {
	if s.Type >= types || s.Order >= orders || s.Op >= ops || s.Policy >= policies {
		return nil, fmt.Errorf("kernel: no loops for %v", s)
	}
	if want := slotOf(s.Type); want != kindOf[A]() {
		return nil, fmt.Errorf("kernel: %v is folded in slots of %v, not of %v", s.Type, want, kindOf[A]())
	}
	o := &Ops[A]{spec: s, size: s.Type.Bytes(), loops: loopsFor[A](tier, s.Type), bounds: boundsOf[A](s)}
	o.params = encodeParams(s, tier, o.bounds)
	return o, nil
}

// Spec returns what the loops compute.
func (o *Ops[A]) Spec() Spec { return o.spec }

// checkLen panics when a buffer of wire bytes does not match its slot. The lengths come from the job's geometry, which
// was checked when the frame was parsed, so a mismatch is a mistake of the caller and never of a peer.
func (o *Ops[A]) checkLen(wireBytes, elements int) {
	if wireBytes != elements*o.size {
		panic(fmt.Sprintf("kernel: %d wire bytes for %d elements of %d bytes", wireBytes, elements, o.size))
	}
}

// whole is how many of n elements the assembly takes: all, whole vectors, or none when there is no assembly.
func (o *Ops[A]) whole(n int) int {
	if o.loops.step == 0 {
		return 0
	}
	return n &^ (o.loops.step - 1)
}

// Set decodes the first contribution src into the slot acc.
// It panics unless len(src) is len(acc) times the element's wire size.
func (o *Ops[A]) Set(acc []A, src []byte) (flagged int) {
	o.checkLen(len(src), len(acc))
	n := o.whole(len(acc))
	if n > 0 {
		flagged = o.loops.set(&acc[0], &src[0], n, &o.params)
	}
	if n < len(acc) {
		flagged += setGo(o, acc[n:], src[n*o.size:])
	}
	return flagged
}

// Fold combines the contribution src with the slot acc by the operation.
// It panics unless len(src) is len(acc) times the element's wire size.
func (o *Ops[A]) Fold(acc []A, src []byte) (flagged int) {
	o.checkLen(len(src), len(acc))
	n := o.whole(len(acc))
	if n > 0 {
		flagged = o.loops.fold[o.spec.Op](&acc[0], &src[0], n, &o.params)
	}
	if n < len(acc) {
		flagged += foldGo(o, acc[n:], src[n*o.size:])
	}
	return flagged
}

// Put encodes the slot acc into dst: the values of a result.
// It panics unless len(dst) is len(acc) times the element's wire size.
func (o *Ops[A]) Put(dst []byte, acc []A) (flagged int) {
	o.checkLen(len(dst), len(acc))
	n := o.whole(len(acc))
	if n > 0 {
		flagged = o.loops.put(&dst[0], &acc[0], n, &o.params)
	}
	if n < len(acc) {
		flagged += putGo(o, dst[n*o.size:], acc[n:])
	}
	return flagged
}

// FoldPut is Fold, then Put, in one pass: the last contribution of a round. dst may be src.
// It panics unless len(dst) and len(src) are len(acc) times the element's wire size.
func (o *Ops[A]) FoldPut(dst []byte, acc []A, src []byte) (flagged int) {
	o.checkLen(len(dst), len(acc))
	o.checkLen(len(src), len(acc))
	n := o.whole(len(acc))
	if n > 0 {
		flagged = o.loops.foldPut[o.spec.Op](&dst[0], &acc[0], &src[0], n, &o.params)
	}
	if n < len(acc) {
		flagged += foldPutGo(o, dst[n*o.size:], acc[n:], src[n*o.size:])
	}
	return flagged
}

// Divide makes a mean of a sum: every element of acc divided by n, rounded once to the nearest (ties to even), for
// integers too. It panics if n < 1.
func (o *Ops[A]) Divide(acc []A, n int) {
	if n < 1 {
		panic(fmt.Sprintf("kernel: mean of %d contributions", n))
	}
	done := 0
	if step := o.loops.divideStep; step > 0 {
		if done = len(acc) &^ (step - 1); done > 0 {
			o.loops.divide(&acc[0], done, n)
		}
	}
	divideGo(acc[done:], n)
}

// FoldPeak is Fold of a Float32, Float16 or BFloat16 sum that also returns the largest magnitude in the new slot: what
// a shared exponent is chosen by. The peak is NaN if any element is. It panics for other specs, and unless len(src) is
// len(acc) times the element's wire size.
func FoldPeak(o *Ops[float32], acc []float32, src []byte) (flagged int, peak float32) {
	if o.spec.Op != Sum {
		panic(fmt.Sprintf("kernel: no peak of %v", o.spec))
	}
	o.checkLen(len(src), len(acc))
	n := o.whole(len(acc))
	var bits uint32
	if n > 0 {
		flagged, bits = o.loops.addPeak(&acc[0], &src[0], n, &o.params)
	}
	if n < len(acc) {
		flagged += foldGo(o, acc[n:], src[n*o.size:])
	}
	return flagged, peakGo(bits, acc[n:])
}
