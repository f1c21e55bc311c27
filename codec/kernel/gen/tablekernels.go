//go:build generate

package main

import (
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// copies writes the moves between floats and bytes.
func copies() {
	for _, put := range []bool{true, false} {
		if put {
			function("putFloatsAVX2", "func(dst []byte, src []float32) int")
		} else {
			function("getFloatsAVX2", "func(dst []float32, src []byte) int")
		}
		Pragma("noescape")
		dst := Load(Param("dst").Base(), GP64())
		src := Load(Param("src").Base(), GP64())
		var left reg.Register
		if put {
			left = Load(Param("src").Len(), GP64())
		} else {
			left = Load(Param("dst").Len(), GP64())
		}
		finish(loop(left, 32, func() {
			ADDQ(operand.U32(128), src)
			ADDQ(operand.U32(128), dst)
		}, func() {
			var r [4]reg.VecVirtual
			for i := range r {
				r[i] = y.load(at(src, 32*i))
			}
			for i := range r {
				VMOVUPS(r[i], at(dst, 32*i))
			}
		}))
	}
}

// sixteen loads a table of 16 bytes into both halves of a register.
func sixteen(p reg.Register, disp int) reg.VecVirtual {
	r := YMM()
	VBROADCASTI128(at(p, disp), r)
	return r
}

func (v isa) roundTable() {
	function("roundTable"+v.suffix(), "func(dst []byte, src []float32, scale float32, limits *[3]float32, below *[32]uint8, value, next *[16]uint8, state *[6]uint32) int")
	Pragma("noescape")
	dst := Load(Param("dst").Base(), GP64())
	src := Load(Param("src").Base(), GP64())
	left := Load(Param("src").Len(), GP64())
	limits := Load(Param("limits"), GP64())
	below := Load(Param("below"), GP64())
	value := Load(Param("value"), GP64())
	next := Load(Param("next"), GP64())
	g := v.newGenerator(Load(Param("state"), GP64()))
	scaleOf := v.scalar("scale")
	fifteen, low, low16, scale16, one := v.constant(15), v.constant(0xff), v.constant(0xffff), v.constant(0x37800000), v.constant(1)
	// lookup reads tables of 16 bytes. Only the lowest byte of a lane counts.
	lookup := func(p reg.Register, disp int, index, r reg.VecVirtual) {
		if v.wide {
			VBROADCASTI32X4(at(p, disp), r)
		} else {
			VBROADCASTI128(at(p, disp), r)
		}
		VPSHUFB(index, r, r)
	}
	// A step has words for twice as many elements as vectors of words: 32
	// elements take the low halves of 32 words, the next 32 the high ones.
	step, run := 2*v.elements(), 32/v.lanes()
	finish(loop(left, step, func() {
		ADDQ(operand.U32(4*step), src)
		ADDQ(operand.U32(step/2), dst)
	}, func() {
		words := g.next()
		var c []reg.VecVirtual
		for i := 0; i < 8; i++ {
			w := words[i/(2*run)*run+i%run]
			r := v.reg()
			if i%(2*run) < run {
				v.and(low16, w, r)
			} else {
				VPSRLD(operand.U8(16), w, r)
			}
			k, lo, hi, m := v.reg(), v.reg(), v.reg(), v.reg()
			p := scaleOf()
			VMULPS(at(src, v.bytes()*i), p, p)
			VBROADCASTSS(at(limits, 0), k)
			VMINPS(k, p, p)
			VBROADCASTSS(at(limits, 4), m)
			VMAXPS(m, p, p)
			VADDPS(k, p, p)
			VBROADCASTSS(at(limits, 8), m)
			VMULPS(m, p, p)
			VCVTTPS2DQ(p, k)
			// Two tables of 16 make one of 32.
			lookup(below, 0, k, lo)
			lookup(below, 16, k, hi)
			v.selectGreater(k, fifteen, hi, lo, k)
			v.and(low, k, k)
			lookup(value, 0, k, lo)
			v.and(low, lo, lo)
			VCVTDQ2PS(lo, lo)
			lookup(next, 0, k, hi)
			v.and(low, hi, hi)
			VCVTDQ2PS(hi, hi)
			VSUBPS(lo, hi, hi)
			VSUBPS(lo, p, p)
			VCVTDQ2PS(r, r)
			VMULPS(scale16, r, r)
			VMULPS(hi, r, r)
			v.incrementLess(r, p, k, one)
			c = append(c, k)
			if !v.wide && len(c) == 4 {
				v.storeCodes(c, dst, v.packing(), false, true)
				ADDQ(operand.U8(unit/2), dst)
				c = nil
			}
		}
		if v.wide {
			v.storeCodes(c, dst, v.packing(), false, true)
		} else {
			SUBQ(operand.U8(unit), dst)
		}
	}))
}

func addTable() {
	function("addTableAVX2", "func(acc, indices []byte, value *[16]uint8) int")
	Pragma("noescape")
	acc := Load(Param("acc").Base(), GP64())
	indices := Load(Param("indices").Base(), GP64())
	left := Load(Param("indices").Len(), GP64())
	table := sixteen(Load(Param("value"), GP64()), 0)
	finish(loop(left, 32, func() {
		ADDQ(operand.U32(64), acc)
		ADDQ(operand.U32(32), indices)
	}, func() {
		lo, hi, a, b := YMM(), YMM(), YMM(), YMM()
		VMOVDQU(at(indices, 0), lo)
		VPSRLW(operand.U8(4), lo, hi)
		VPAND(y.constant(0x0f0f0f0f), lo, lo)
		VPAND(y.constant(0x0f0f0f0f), hi, hi)
		VPSHUFB(lo, table, lo)
		VPSHUFB(hi, table, hi)
		VPUNPCKLBW(hi, lo, a) // bytes 0-15 and 32-47
		VPUNPCKHBW(hi, lo, b) // bytes 16-31 and 48-63
		VPERM2I128(operand.U8(0x20), b, a, lo)
		VPERM2I128(operand.U8(0x31), b, a, hi)
		VPADDB(at(acc, 0), lo, lo)
		VPADDB(at(acc, 32), hi, hi)
		VMOVDQU(lo, at(acc, 0))
		VMOVDQU(hi, at(acc, 32))
	}))
}

func affineUint8() {
	function("affineUint8AVX2", "func(dst []float32, src []byte, step, offset, scale float32) int")
	Pragma("noescape")
	dst := Load(Param("dst").Base(), GP64())
	left := Load(Param("dst").Len(), GP64())
	src := Load(Param("src").Base(), GP64())
	var c [3]reg.VecVirtual
	for i, name := range []string{"step", "offset", "scale"} {
		c[i] = YMM()
		VBROADCASTSS(param(name), c[i])
	}
	finish(loop(left, 16, func() {
		ADDQ(operand.U32(64), dst)
		ADDQ(operand.U32(16), src)
	}, func() {
		for i := range 2 {
			r := YMM()
			VPMOVZXBD(at(src, 8*i), r)
			VCVTDQ2PS(r, r)
			VMULPS(c[0], r, r)
			VSUBPS(c[1], r, r)
			VMULPS(c[2], r, r)
			VMOVUPS(r, at(dst, 32*i))
		}
	}))
}
