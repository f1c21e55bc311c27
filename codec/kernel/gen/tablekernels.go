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

func roundTable() {
	function("roundTableAVX2", "func(dst []byte, src []float32, scale float32, limits *[3]float32, below *[32]uint8, value, next *[16]uint8, state *[6]uint32) int")
	Pragma("noescape")
	dst := Load(Param("dst").Base(), GP64())
	src := Load(Param("src").Base(), GP64())
	left := Load(Param("src").Len(), GP64())
	limits := Load(Param("limits"), GP64())
	below := Load(Param("below"), GP64())
	value := Load(Param("value"), GP64())
	next := Load(Param("next"), GP64())
	g := newGenerator(Load(Param("state"), GP64()))
	scaleBits, scaleX := GP32(), XMM()
	Load(Param("scale"), scaleX)
	VMOVD(scaleX, scaleBits)
	finish(loop(left, unit, func() {
		ADDQ(operand.U32(4*unit), src)
		ADDQ(operand.U32(unit/2), dst)
	}, func() {
		var c []reg.VecVirtual
		for i, r := range g.next() {
			k, p, lo, hi, m := YMM(), YMM(), YMM(), YMM(), YMM()
			x := XMM()
			VMOVD(scaleBits, x)
			VPBROADCASTD(x, p)
			VMULPS(at(src, 32*i), p, p)
			VBROADCASTSS(at(limits, 0), k)
			VMINPS(k, p, p)
			VBROADCASTSS(at(limits, 4), m)
			VMAXPS(m, p, p)
			VADDPS(k, p, p)
			VBROADCASTSS(at(limits, 8), m)
			VMULPS(m, p, p)
			VCVTTPS2DQ(p, k)
			// Two tables of 16 make one of 32. Only the lowest byte of a lane
			// counts.
			VBROADCASTI128(at(below, 0), lo)
			VPSHUFB(k, lo, lo)
			VBROADCASTI128(at(below, 16), hi)
			VPSHUFB(k, hi, hi)
			VPCMPGTD(y.constant(15), k, m)
			VBLENDVPS(m, hi, lo, k)
			VPAND(y.constant(0xff), k, k)
			VBROADCASTI128(at(value, 0), lo)
			VPSHUFB(k, lo, lo)
			VPAND(y.constant(0xff), lo, lo)
			VCVTDQ2PS(lo, lo)
			VBROADCASTI128(at(next, 0), hi)
			VPSHUFB(k, hi, hi)
			VPAND(y.constant(0xff), hi, hi)
			VCVTDQ2PS(hi, hi)
			VSUBPS(lo, hi, hi)
			VSUBPS(lo, p, p)
			VPSRLD(operand.U8(8), r, r)
			VCVTDQ2PS(r, r)
			VMULPS(y.constant(0x33800000), r, r) // 2^-24
			VMULPS(hi, r, r)
			VCMPPS(operand.U8(1), p, r, r) // r < p
			VPSUBD(r, k, k)
			c = append(c, k)
		}
		q := quantiser{order: y.load(laneOrder), merge: nibbleMerge}
		y.storeCodes(c, dst, q, false, true)
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
		x := XMM()
		Load(Param(name), x)
		c[i] = YMM()
		VBROADCASTSS(x, c[i])
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
