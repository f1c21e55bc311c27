//go:build generate

package main

import (
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// loop writes a loop over as many steps of step elements as fit left, and
// returns the number of elements done. body may use labels of its own.
func loop(left reg.Register, step int, advance func(), body func()) reg.Register {
	done := GP64()
	XORQ(done, done)
	Label("loop")
	CMPQ(left, operand.U32(step))
	JLT(operand.LabelRef("end"))
	body()
	advance()
	ADDQ(operand.U32(step), done)
	SUBQ(operand.U32(step), left)
	JMP(operand.LabelRef("loop"))
	Label("end")
	return done
}

// halves writes the conversions from and to 16-bit floats.
func (v isa) halves() {
	encode := func(name string, body func(src, dst reg.Register)) {
		function(name+v.suffix(), "func(dst []byte, src []float32) int")
		Pragma("noescape")
		dst := Load(Param("dst").Base(), GP64())
		src := Load(Param("src").Base(), GP64())
		body(src, dst)
	}
	encode("fp16Encode", func(src, dst reg.Register) {
		left := Load(Param("src").Len(), GP64())
		finish(loop(left, 2*v.lanes(), func() {
			ADDQ(operand.U32(8*v.lanes()), src)
			ADDQ(operand.U32(4*v.lanes()), dst)
		}, func() {
			for i := range 2 {
				r := v.load(at(src, i*v.bytes()))
				VCVTPS2PH(operand.U8(0), r, at(dst, i*v.bytes()/2))
			}
		}))
	})
	encode("bf16Encode", func(src, dst reg.Register) {
		left := Load(Param("src").Len(), GP64())
		abs, inf, half, one, quiet := v.constant(absMask), v.constant(0x7f800000), v.constant(0x7fff), v.constant(1), v.constant(1<<22)
		finish(loop(left, 2*v.lanes(), func() {
			ADDQ(operand.U32(8*v.lanes()), src)
			ADDQ(operand.U32(4*v.lanes()), dst)
		}, func() {
			var c []reg.VecVirtual
			for i := range 2 {
				w := v.load(at(src, i*v.bytes()))
				r, nan, a := v.reg(), v.reg(), v.reg()
				VPSRLD(operand.U8(16), w, r)
				v.and(one, r, r)
				VPADDD(half, r, r)
				VPADDD(w, r, r)
				v.or(quiet, w, nan)
				v.and(abs, w, a)
				v.selectGreater(a, inf, nan, r, r)
				VPSRLD(operand.U8(16), r, r)
				c = append(c, r)
				if v.wide {
					VPMOVDW(r, at(dst, 32*i))
				}
			}
			if !v.wide {
				VPACKUSDW(c[1], c[0], c[0])
				VPERMQ(operand.U8(0xd8), c[0], c[0])
				VMOVDQU(c[0], at(dst, 0))
			}
		}))
	})
	for _, bf := range []bool{false, true} {
		name := "fp16Decode"
		if bf {
			name = "bf16Decode"
		}
		function(name+v.suffix(), "func(dst []float32, src []byte) int")
		Pragma("noescape")
		dst := Load(Param("dst").Base(), GP64())
		left := Load(Param("dst").Len(), GP64())
		src := Load(Param("src").Base(), GP64())
		finish(loop(left, 2*v.lanes(), func() {
			ADDQ(operand.U32(8*v.lanes()), dst)
			ADDQ(operand.U32(4*v.lanes()), src)
		}, func() {
			for i := range 2 {
				r := v.reg()
				m := at(src, i*v.bytes()/2)
				if bf {
					VPMOVZXWD(m, r)
					VPSLLD(operand.U8(16), r, r)
				} else {
					VCVTPH2PS(m, r)
				}
				VMOVUPS(r, at(dst, i*v.bytes()))
			}
		}))
	}
}

// plain writes the loops over int8 with one scale and the maximum.
func (v isa) plain() {
	function("maxAbs"+v.suffix(), "func(x []float32, lanes *[16]uint32) int")
	Pragma("noescape")
	x := Load(Param("x").Base(), GP64())
	left := Load(Param("x").Len(), GP64())
	out := Load(Param("lanes"), GP64())
	abs := v.broadcast(absMask)
	var acc [4]reg.VecVirtual
	for i := range acc {
		acc[i] = v.reg()
		v.xor(acc[i], acc[i], acc[i])
	}
	done := loop(left, 4*v.lanes(), func() { ADDQ(operand.U32(4*v.bytes()), x) }, func() {
		for i := range acc {
			t := v.reg()
			v.and(at(x, i*v.bytes()), abs, t)
			VPMAXSD(t, acc[i], acc[i])
		}
	})
	VPMAXSD(acc[1], acc[0], acc[0])
	VPMAXSD(acc[3], acc[2], acc[2])
	VPMAXSD(acc[2], acc[0], acc[0])
	v.store(acc[0], at(out, 0))
	finish(done)

	function("roundInt8"+v.suffix(), "func(dst []byte, src []float32, scale float32) int")
	Pragma("noescape")
	dst := Load(Param("dst").Base(), GP64())
	src := Load(Param("src").Base(), GP64())
	left = Load(Param("src").Len(), GP64())
	scale := v.scaleParam()
	top, bottom := v.broadcast(0x42fe0000), v.broadcast(0xc2fe0000) // 127, -127
	q := quantiser{}
	if !v.wide {
		q.order = v.load(laneOrder)
	}
	finish(loop(left, unit, func() {
		ADDQ(operand.U32(4*unit), src)
		ADDQ(operand.U32(unit), dst)
	}, func() {
		var c []reg.VecVirtual
		for i := 0; i < unit; i += v.lanes() {
			r := v.reg()
			VMULPS(at(src, 4*i), scale, r)
			VMINPS(top, r, r)
			VMAXPS(bottom, r, r)
			VCVTPS2DQ(r, r)
			c = append(c, r)
		}
		v.storeCodes(c, dst, q, true, false)
	}))

	function("scaleInt8"+v.suffix(), "func(dst []float32, src []byte, scale float32) int")
	Pragma("noescape")
	dst = Load(Param("dst").Base(), GP64())
	left = Load(Param("dst").Len(), GP64())
	src = Load(Param("src").Base(), GP64())
	scale = v.scaleParam()
	finish(loop(left, unit, func() {
		ADDQ(operand.U32(4*unit), dst)
		ADDQ(operand.U32(unit), src)
	}, func() {
		for i := 0; i < unit; i += v.lanes() {
			r := v.reg()
			VPMOVSXBD(at(src, i), r)
			VCVTDQ2PS(r, r)
			VMULPS(scale, r, r)
			VMOVUPS(r, at(dst, 4*i))
		}
	}))
}

func (v isa) scaleParam() reg.VecVirtual {
	r := v.reg()
	VBROADCASTSS(param("scale"), r)
	return r
}

// sumSquares adds squares in eight float64 lanes.
func sumSquares() {
	function("sumSquaresAVX2", "func(x []float32, lanes *[8]float64) int")
	Pragma("noescape")
	x := Load(Param("x").Base(), GP64())
	left := Load(Param("x").Len(), GP64())
	out := Load(Param("lanes"), GP64())
	lo, hi := YMM(), YMM()
	VPXOR(lo, lo, lo)
	VPXOR(hi, hi, hi)
	done := loop(left, 8, func() { ADDQ(operand.U32(32), x) }, func() {
		a, b := YMM(), YMM()
		VCVTPS2PD(at(x, 0), a)
		VCVTPS2PD(at(x, 16), b)
		VFMADD231PD(a, a, lo) // the product is exact
		VFMADD231PD(b, b, hi)
	})
	VMOVUPD(lo, at(out, 0))
	VMOVUPD(hi, at(out, 32))
	finish(done)
}

// switchML writes SwitchML's quantiser: four lanes of float64.
func switchML() {
	function("quantiseInt32AVX2", "func(dst []int32, src []float32, scale, limit float64) int")
	Pragma("noescape")
	dst := Load(Param("dst").Base(), GP64())
	src := Load(Param("src").Base(), GP64())
	left := Load(Param("src").Len(), GP64())
	var c [2]reg.VecVirtual
	for i, name := range []string{"scale", "limit"} {
		c[i] = YMM()
		VBROADCASTSD(param(name), c[i])
	}
	bottom := YMM()
	VXORPD(bottom, bottom, bottom)
	VSUBPD(c[1], bottom, bottom)
	finish(loop(left, 16, func() {
		ADDQ(operand.U32(64), src)
		ADDQ(operand.U32(64), dst)
	}, func() {
		for i := range 4 {
			r, m, x := YMM(), YMM(), XMM()
			VCVTPS2PD(at(src, 16*i), r)
			VMULPD(c[0], r, r)
			VCMPPD(operand.U8(7), r, r, m) // ordered: a NaN becomes 0
			VANDPD(m, r, r)
			VMINPD(c[1], r, r)
			VMAXPD(bottom, r, r)
			VCVTPD2DQY(r, x)
			VMOVDQU(x, at(dst, 16*i))
		}
	}))

	function("dequantiseInt32AVX2", "func(dst []float32, src []int32, step float64) int")
	Pragma("noescape")
	dst = Load(Param("dst").Base(), GP64())
	left = Load(Param("dst").Len(), GP64())
	src = Load(Param("src").Base(), GP64())
	step := YMM()
	VBROADCASTSD(param("step"), step)
	finish(loop(left, 16, func() {
		ADDQ(operand.U32(64), src)
		ADDQ(operand.U32(64), dst)
	}, func() {
		for i := range 4 {
			r, x := YMM(), XMM()
			VCVTDQ2PD(at(src, 16*i), r)
			VMULPD(step, r, r)
			VCVTPD2PSY(r, x)
			VMOVUPS(x, at(dst, 16*i))
		}
	}))
}
