//go:build generate

package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// rule is the arithmetic of one loop, and what it looks for. Overflow, infinities and NaN are rare, so the main path
// only notices that a group of vectors holds some; counting and the policy are out of line, in fix.
type rule struct {
	isa    isa
	format format
	op     op
	params reg.Register
	count  reg.Register

	over, magnitude reg.VecVirtual // float, narrow: smallest magnitude that overflows, mask of all but the sign
	bias, high      reg.VecVirtual // int8: 128 and 0xffffff00
}

// watch is what a loop looks for.
type watch uint8

const (
	nothing   watch = iota
	nonFinite       // infinities and NaN in the slot
	tooLarge        // what does not fit into the wire's float
	wraps           // a sum that overflowed
	notInt8         // what does not fit into int8
)

func (r *rule) watches() watch {
	s := r.format.slot
	switch {
	case s.float && r.op.put && r.format.narrow():
		return tooLarge
	case s.float:
		return nonFinite
	case r.format.narrow() && r.op.put:
		return notInt8
	case !r.format.narrow() && r.op.fold == "Add":
		return wraps
	}
	return nothing
}

func (r *rule) prepare() {
	m, s := r.isa, r.format.slot
	switch r.watches() {
	case tooLarge:
		r.over = m.spread(constant(s, r.format.over), s)
		r.magnitude = m.spread(constant(s, signBits(s)-1), s)
	case notInt8:
		r.bias = m.spread(constant(s, 128), s)
		r.high = m.spread(constant(s, 0xffffff00), s)
	}
	if r.op.peak && r.magnitude == nil {
		r.magnitude = m.spread(constant(s, signBits(s)-1), s)
	}
}

// element is one vector in flight: its value, and for sums of integers the vector whose sign bits mark overflow.
type element struct{ value, wrapped reg.Register }

// fold combines the slot with what came from the wire.
func (r *rule) fold(slot, in reg.Register) element {
	m, s := r.isa, r.format.slot
	switch {
	case r.op.fold == "Add" && r.watches() == wraps:
		sum := m.vec()
		vadd(s)(in, slot, sum)
		// Overflow: both operands differ in sign from the sum.
		if m.wide {
			VPTERNLOGD(U8(0x42), sum, in, slot)
			return element{sum, slot}
		}
		VPXOR(sum, slot, slot)
		VPXOR(sum, in, in)
		VPAND(in, slot, slot)
		return element{sum, slot}
	case r.op.fold == "Add":
		vadd(s)(in, slot, slot)
		return element{value: slot}
	case s.float:
		return element{value: r.extremum(slot, in)}
	case s.size == 4:
		extremes := map[string]ops3{"Min": VPMINSD, "Max": VPMAXSD}
		extremes[r.op.fold](in, slot, slot)
		return element{value: slot}
	case m.wide:
		extremes := map[string]ops3{"Min": VPMINSQ, "Max": VPMAXSQ}
		extremes[r.op.fold](in, slot, slot)
		return element{value: slot}
	}
	greater := m.vec()
	VPCMPGTQ(in, slot, greater)
	if r.op.fold == "Min" {
		VBLENDVPD(greater, in, slot, slot)
	} else {
		VBLENDVPD(greater, slot, in, slot)
	}
	return element{value: slot}
}

// extremum is IEEE 754-2019 minimum or maximum: a NaN wins, and -0 is less than +0. The machine's instruction returns
// its second source for NaN and for equal zeros, so both orders of operands are taken and joined.
func (r *rule) extremum(a, b reg.Register) reg.Register {
	m, s := r.isa, r.format.slot
	one, two := m.vec(), m.vec()
	if r.op.fold == "Min" {
		vmin(s)(a, b, one)
		vmin(s)(b, a, two)
		m.or(one, two, one) // keeps the sign of -0, and all exponent bits of a NaN
		return one
	}
	vmax(s)(a, b, one)
	vmax(s)(b, a, two)
	m.and(one, two, one)
	if m.wide {
		k := K()
		vcmp(s)(unordered, a, b, k)
		nan := m.spread(constant(s, nanBits(s)), s)
		pick[ops3](s, VMOVDQA32, VMOVDQA64)(nan, k, one)
		return one
	}
	vcmp(s)(unordered, a, b, two)
	VPOR(two, one, one)
	return one
}

// jumpIfRare jumps to label when any element holds what the rule watches for.
func (r *rule) jumpIfRare(es []element, label string) {
	m, s := r.isa, r.format.slot
	if r.watches() == nothing {
		return
	}
	if m.wide && (r.watches() == nonFinite || r.watches() == tooLarge) {
		var any reg.Register
		for _, e := range es {
			k := K()
			if r.watches() == nonFinite {
				// Quiet NaN, +Inf, -Inf, signalling NaN.
				pick[ops3](s, VFPCLASSPSZ, VFPCLASSPDZ)(U8(0x99), e.value, k)
			} else {
				r.beyond(e.value, k)
			}
			if any != nil {
				m.kor(s, k, any, k)
			}
			any = k
		}
		m.korTest(s, any)
		JNE(LabelRef(label))
		return
	}
	var any reg.Register
	for _, e := range es {
		t := m.vec()
		switch r.watches() {
		case nonFinite:
			pick[ops3](s, VSUBPS, VSUBPD)(e.value, e.value, t) // +0 if finite, else NaN
		case tooLarge:
			r.beyond(e.value, t)
		case notInt8:
			VPADDD(r.bias, e.value, t)
		case wraps:
			t = e.wrapped.(reg.VecVirtual)
		}
		if any != nil {
			u := m.vec()
			m.or(t, any, u)
			t = u
		}
		any = t
	}
	switch {
	case r.watches() == notInt8 && m.wide:
		k := K()
		VPTESTMD(r.high, any, k)
		m.korTest(s, k)
	case r.watches() == notInt8:
		VPTEST(r.high, any)
	case m.wide:
		k := K()
		pick(s, VPMOVD2M, VPMOVQ2M)(any, k)
		m.korTest(s, k)
	case r.watches() == wraps:
		pick(s, VTESTPS, VTESTPD)(any, any)
	default:
		VPTEST(any, any)
	}
	JNE(LabelRef(label))
}

// beyond sets dst (a mask register with AVX-512) where |v| is not below the overflow bound.
func (r *rule) beyond(v, dst reg.Register) {
	t := r.isa.vec()
	r.isa.and(r.magnitude, v, t)
	vcmp(r.format.slot)(notLess, r.over, t, dst)
}

// fix counts what the rule watches for in e, applies the policy and returns the new slot and the value to encode.
func (r *rule) fix(e element) (slot, out reg.Register) {
	switch r.watches() {
	case wraps:
		r.fixWrapped(e)
		return e.value, e.value
	case notInt8:
		return e.value, r.fixInt8(e.value)
	}
	return r.fixFloat(e.value)
}

func (r *rule) param(offset int) reg.Register {
	return r.isa.spread(Mem{Base: r.params, Disp: offset}, r.format.slot)
}

func (r *rule) fixFloat(v reg.Register) (slot, out reg.Register) {
	m, s := r.isa, r.format.slot
	over := m.spread(constant(s, r.overBits()), s)
	magnitude := m.spread(constant(s, signBits(s)-1), s)
	nan := m.spread(constant(s, nanBits(s)), s)
	t := m.vec()
	m.and(magnitude, v, t)
	if m.wide {
		k := K()
		vcmp(s)(notLess, over, t, k)
		m.addLanes(s, k, r.count)
		k = K()
		vcmp(s)(unordered, v, v, k)
		pick[ops3](s, VMOVDQA32, VMOVDQA64)(nan, k, v)
	} else {
		vcmp(s)(notLess, over, t, t)
		m.addSigns(s, t, r.count)
		vcmp(s)(unordered, v, v, t)
		VBLENDVPS(t, nan, v, v)
	}
	slot = v
	if r.op.src {
		slot = r.clamp(v, paramSlotMin, paramSlotMax)
	}
	if r.op.put {
		out = r.clamp(slot, paramWireMin, paramWireMax)
	}
	return slot, out
}

func (r *rule) overBits() uint64 {
	if r.op.put {
		return r.format.over
	}
	return infBits(r.format.slot)
}

// clamp limits v; a NaN stays, because it is the second source.
func (r *rule) clamp(v reg.Register, low, high int) reg.Register {
	s := r.format.slot
	out := r.isa.vec()
	vmin(s)(v, r.param(high), out)
	vmax(s)(out, r.param(low), out)
	return out
}

func (r *rule) fixInt8(v reg.Register) reg.Register {
	m, s := r.isa, r.format.slot
	t := m.vec()
	VPADDD(r.bias, v, t)
	if m.wide {
		k := K()
		VPTESTMD(r.high, t, k)
		m.addLanes(s, k, r.count)
	} else {
		zero := m.vec()
		m.xor(zero, zero, zero)
		m.and(r.high, t, t)
		VPCMPEQD(zero, t, t)
		bits := GP32()
		VMOVMSKPS(t, bits)
		XORL(U32(0xff), bits)
		addBits(bits, r.count)
	}
	out := m.vec()
	VPMINSD(r.param(paramWireMax), v, out)
	VPMAXSD(r.param(paramWireMin), out, out)
	return out
}

// fixWrapped replaces overflowed sums by the bound on the side of the true sum, where the policy says so.
func (r *rule) fixWrapped(e element) {
	m, s := r.isa, r.format.slot
	bound := m.vec() // the true sum has the other sign than the wrapped one
	smallest := m.spread(constant(s, signBits(s)), s)
	if m.wide {
		pick[ops3](s, VPSRAD, VPSRAQ)(U8(8*s.size-1), e.value, bound)
		m.xor(smallest, bound, bound)
		k, saturate := K(), K()
		pick(s, VPMOVD2M, VPMOVQ2M)(e.wrapped, k)
		m.addLanes(s, k, r.count)
		bits := GP32()
		MOVL(Mem{Base: r.params, Disp: paramSlotMax}, bits)
		KMOVW(bits, saturate)
		pick(s, KANDW, KANDB)(saturate, k, k)
		pick[ops3](s, VMOVDQA32, VMOVDQA64)(bound, k, e.value)
		return
	}
	m.addSigns(s, e.wrapped, r.count)
	which := m.vec()
	if s.size == 4 {
		VPSRAD(U8(31), e.value, bound)
		VPSRAD(U8(31), e.wrapped, which)
	} else {
		zero := m.vec()
		m.xor(zero, zero, zero)
		VPCMPGTQ(e.value, zero, bound)
		VPCMPGTQ(e.wrapped, zero, which)
	}
	m.xor(smallest, bound, bound)
	m.and(r.param(paramSlotMax), which, which)
	VPBLENDVB(which, bound, e.value, e.value)
}
