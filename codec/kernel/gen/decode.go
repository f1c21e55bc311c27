//go:build generate

package main

import (
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// decode writes func(dst []float32, body, scales []byte) int, which decodes
// whole units of 32 elements and returns the number of blocks done.
func (v isa) decode(f format) { v.decodeInto(f, "Decode", false) }

// add writes the same function with the suffix Add: it adds what it decodes to
// dst.
func (v isa) add(f format) { v.decodeInto(f, "Add", true) }

func (v isa) decodeInto(f format, what string, add bool) {
	function(f.name+what+v.suffix(), "func(dst []float32, body, scales []byte) int")
	Pragma("noescape")
	dst := Load(Param("dst").Base(), GP64())
	body := Load(Param("body").Base(), GP64())
	scales := Load(Param("scales").Base(), GP64())
	left := Load(Param("scales").Len(), GP64())
	done, table := GP64(), GP64()
	XORQ(done, done)
	c := v.decoder(f, table)
	blocks := max(1, unit/f.block)

	Label("unit")
	CMPQ(left, operand.U8(blocks))
	JLT(operand.LabelRef("end"))
	v.decodeUnit(f, c, dst, body, scales, table, add)
	ADDQ(operand.U32(4*unit), dst)
	if f.packed {
		ADDQ(operand.U8(unit/2), body)
	} else {
		ADDQ(operand.U8(unit), body)
	}
	ADDQ(operand.U8(blocks), scales)
	ADDQ(operand.U8(blocks), done)
	SUBQ(operand.U8(blocks), left)
	JMP(operand.LabelRef("unit"))
	Label("end")
	finish(done)
}

type decoder struct {
	abs, zero, sign, nan, nanValue, undo, signWords, magWords operand.Op
	low, lookup                                               reg.VecVirtual
}

func (v isa) decoder(f format, table reg.Register) (c decoder) {
	switch f.name {
	case "bfp16", "mxint8":
		LEAQ(stepTable, table)
	case "intel":
		c.abs, c.zero, c.sign = v.constant(absMask), v.constant(110<<23), v.constant(1<<31)
		return c
	default:
		LEAQ(scaleTable, table)
	}
	switch f.name {
	case "e4m3":
		c.nan, c.abs = v.constant(canonicalNaN), v.constant(absMask)
		c.nanValue = v.constant(0x3ff00000) // 1.875, the code 0x7f
		c.undo = v.constant(0x43800000)     // 2^8
		c.signWords, c.magWords = v.constant(0x80008000), v.constant(0x3f803f80)
	case "e5m2":
		c.nan = v.constant(canonicalNaN)
	case "e2m1":
		g, x := GP32(), XMM()
		MOVL(operand.U32(0x0f0f0f0f), g)
		VMOVD(g, x)
		c.low, c.lookup = XMM(), XMM()
		VPBROADCASTD(x, c.low)
		VMOVDQU(nibbleHalf, c.lookup)
	}
	return c
}

func (v isa) decodeUnit(f format, c decoder, dst, body, scales, table reg.Register, add bool) {
	var nibbles [2]reg.VecVirtual
	if f.packed {
		lo, hi := XMM(), XMM()
		VMOVDQU(at(body, 0), lo)
		VPSRLW(operand.U8(4), lo, hi)
		VPAND(lo, c.low, lo)
		VPAND(hi, c.low, hi)
		nibbles[0], nibbles[1] = XMM(), XMM()
		VPUNPCKLBW(hi, lo, nibbles[0])
		VPUNPCKHBW(hi, lo, nibbles[1])
		VPSHUFB(nibbles[0], c.lookup, nibbles[0])
		VPSHUFB(nibbles[1], c.lookup, nibbles[1])
	}
	var scale reg.VecVirtual
	for i := 0; i < unit; i += v.lanes() {
		if i%f.block == 0 {
			scale = v.reg()
			g := GP64()
			MOVBQZX(at(scales, i/f.block), g)
			if f.name == "intel" {
				x := XMM()
				SUBQ(operand.U8(0x7f), g) // 133 = 127 + 6
				SUBQ(operand.U8(6), g)
				SHLQ(operand.U8(23), g)
				VMOVD(g.As32(), x)
				VPBROADCASTD(x, scale)
			} else {
				VBROADCASTSS(operand.Mem{Base: table, Index: g, Scale: 4}, scale)
			}
		}
		r := v.reg()
		switch f.name {
		case "bfp16", "mxint8":
			VPMOVSXBD(at(body, i), r)
			VCVTDQ2PS(r, r)
			VMULPS(scale, r, r)
		case "intel":
			sign := v.reg()
			VPMOVSXBD(at(body, i), r)
			v.and(c.sign, r, sign)
			VPABSD(r, r)
			VCVTDQ2PS(r, r)
			VPMAXSD(c.zero, r, r)
			VPADDD(scale, r, r)
			v.and(c.abs, r, r)
			v.or(r, sign, r)
		default:
			h := v.half()
			if f.packed {
				x := nibbles[i/16]
				if i%16 == 8 {
					VPSRLDQ(operand.U8(8), x, x)
				}
				VPMOVZXBW(x, h)
			} else {
				VPMOVZXBW(at(body, i), h)
			}
			if f.name == "e4m3" {
				s := v.half()
				VPSLLW(operand.U8(8), h, s)
				VPAND(v.halfOf(c.signWords), s, s)
				VPSLLW(operand.U8(7), h, h)
				VPAND(v.halfOf(c.magWords), h, h)
				VPOR(s, h, h)
			} else {
				VPSLLW(operand.U8(8), h, h)
			}
			VCVTPH2PS(h, r)
			v.scaleMini(f, c, r, scale)
		}
		if add {
			// The sum's own operand is the first: of two NaNs it is the one that stays.
			sum := v.load(at(dst, 4*i))
			VADDPS(r, sum, r)
		}
		VMOVUPS(r, at(dst, 4*i))
	}
}

func (v isa) halfOf(c operand.Op) operand.Op {
	if v.wide {
		return c.(reg.VecVirtual).AsY()
	}
	return c
}

// scaleMini multiplies by the scale and gives elements that are NaN the one
// NaN of the decoders.
func (v isa) scaleMini(f format, c decoder, r, scale reg.VecVirtual) {
	if f.packed {
		VMULPS(scale, r, r)
		return
	}
	a, predicate := r, operand.U8(3) // unordered
	other := operand.Op(r)
	if f.name == "e4m3" {
		a, other, predicate = v.reg(), c.nanValue, operand.U8(0) // equal
		v.and(c.abs, r, a)
	}
	if v.wide {
		k := K()
		VCMPPS(predicate, other, a, k)
		if f.name == "e4m3" {
			VMULPS(c.undo, r, r)
		}
		VMULPS(scale, r, r)
		VBLENDMPS(c.nan, r, k, r)
		return
	}
	m := v.reg()
	VCMPPS(predicate, other, a, m)
	if f.name == "e4m3" {
		VMULPS(c.undo, r, r)
	}
	VMULPS(scale, r, r)
	VBLENDVPS(m, c.nan, r, r)
}
