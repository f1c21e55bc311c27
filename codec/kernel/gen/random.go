//go:build generate

package main

import (
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// generator holds eight Philox counters a step: key, upper counter words, and
// the first word counted up by eight.
type generator struct {
	state  reg.Register
	base   reg.VecVirtual
	m0, m1 operand.Op
	eight  reg.VecVirtual
	w0, w1 operand.Mem
	saved  operand.Mem
}

var y = isa{}

// newGenerator reads state: key (2 words), first counter word, the other three.
func newGenerator(state reg.Register) *generator {
	g := &generator{state: state}
	g.m0, g.m1 = y.constant(0xd2511f53), y.constant(0xcd9e8d57)
	g.base = YMM()
	VPBROADCASTD(at(state, 8), g.base)
	VPADDD(counterStep, g.base, g.base)
	return g
}

// next gives the random words of the next 32 elements in order.
func (g *generator) next() [4]reg.VecVirtual {
	var c [4]reg.VecVirtual
	c[0] = YMM()
	VMOVDQA(g.base, c[0])
	for i := 1; i < 4; i++ {
		c[i] = YMM()
		VPBROADCASTD(at(g.state, 8+4*i), c[i])
	}
	k0, k1 := YMM(), YMM()
	VPBROADCASTD(at(g.state, 0), k0)
	VPBROADCASTD(at(g.state, 4), k1)
	for r := range 10 {
		if r > 0 {
			VPADDD(y.constant(0x9e3779b9), k0, k0)
			VPADDD(y.constant(0xbb67ae85), k1, k1)
		}
		hi0, lo0 := mul32(c[0], g.m0)
		hi1, lo1 := mul32(c[2], g.m1)
		VPXOR(c[1], hi1, hi1)
		VPXOR(k0, hi1, hi1)
		VPXOR(c[3], hi0, hi0)
		VPXOR(k1, hi0, hi0)
		c = [4]reg.VecVirtual{hi1, lo1, hi0, lo0}
	}
	VPADDD(y.constant(8), g.base, g.base)

	// Lane b of c[j] is word j of counter b: transpose.
	a, b, d, e := YMM(), YMM(), YMM(), YMM()
	VPUNPCKLDQ(c[1], c[0], a)
	VPUNPCKLDQ(c[3], c[2], b)
	VPUNPCKHDQ(c[1], c[0], d)
	VPUNPCKHDQ(c[3], c[2], e)
	r0, r1, r2, r3 := YMM(), YMM(), YMM(), YMM()
	VPUNPCKLQDQ(b, a, r0)
	VPUNPCKHQDQ(b, a, r1)
	VPUNPCKLQDQ(e, d, r2)
	VPUNPCKHQDQ(e, d, r3)
	var out [4]reg.VecVirtual
	for i := range out {
		out[i] = YMM()
	}
	VPERM2I128(operand.U8(0x20), r1, r0, out[0])
	VPERM2I128(operand.U8(0x20), r3, r2, out[1])
	VPERM2I128(operand.U8(0x31), r1, r0, out[2])
	VPERM2I128(operand.U8(0x31), r3, r2, out[3])
	return out
}

// mul32 multiplies eight lanes by a constant.
func mul32(c reg.VecVirtual, m operand.Op) (hi, lo reg.VecVirtual) {
	even, odd := YMM(), YMM()
	hi, lo = YMM(), YMM()
	VPSRLQ(operand.U8(32), c, odd)
	VPMULUDQ(m, c, even)
	VPMULUDQ(m, odd, odd)
	VPSLLQ(operand.U8(32), odd, lo)
	VPBLENDD(operand.U8(0xaa), lo, even, lo)
	VPSRLQ(operand.U8(32), even, hi)
	VPBLENDD(operand.U8(0xaa), odd, hi, hi)
	return hi, lo
}

func philox() {
	function("philoxAVX2", "func(dst []uint32, state *[6]uint32) int")
	Pragma("noescape")
	dst := Load(Param("dst").Base(), GP64())
	left := Load(Param("dst").Len(), GP64())
	g := newGenerator(Load(Param("state"), GP64()))
	finish(loop(left, 32, func() { ADDQ(operand.U32(128), dst) }, func() {
		for i, r := range g.next() {
			VMOVDQU(r, at(dst, 32*i))
		}
	}))
}

func stochastic() {
	function("stochasticInt8AVX2", "func(dst []byte, src []float32, scale float32, state *[6]uint32) int")
	Pragma("noescape")
	dst := Load(Param("dst").Base(), GP64())
	src := Load(Param("src").Base(), GP64())
	left := Load(Param("src").Len(), GP64())
	g := newGenerator(Load(Param("state"), GP64()))
	scaleBits, scaleX := GP32(), XMM()
	Load(Param("scale"), scaleX)
	VMOVD(scaleX, scaleBits)
	finish(loop(left, unit, func() {
		ADDQ(operand.U32(4*unit), src)
		ADDQ(operand.U32(unit), dst)
	}, func() {
		random := g.next()
		scale, x := YMM(), XMM()
		VMOVD(scaleBits, x)
		VPBROADCASTD(x, scale)
		abs, top, two24 := y.constant(absMask), y.constant(0x42fe0000), y.constant(0x4b800000)
		var c []reg.VecVirtual
		for i, r := range random {
			w := y.load(at(src, 32*i))
			l, k, f := YMM(), YMM(), YMM()
			VPAND(abs, w, l)
			VMULPS(scale, l, l)
			VMINPS(top, l, l)
			VCVTTPS2DQ(l, k)
			VCVTDQ2PS(k, f)
			VSUBPS(f, l, l)
			VMULPS(two24, l, l)
			VPSRLD(operand.U8(8), r, r)
			VCVTDQ2PS(r, r)
			VCMPPS(operand.U8(1), l, r, r) // r < l
			VPSUBD(r, k, k)
			VPSRAD(operand.U8(31), w, w)
			VPXOR(w, k, k)
			VPSUBD(w, k, k)
			c = append(c, k)
		}
		q := quantiser{order: y.load(laneOrder)}
		y.storeCodes(c, dst, q, true, false)
	}))
}

// flipSigns negates 128 elements by 128 bits.
func flipSigns() {
	function("flipSignsAVX2", "func(x *float32, bits *[4]uint32)")
	Pragma("noescape")
	x := Load(Param("x"), GP64())
	bits := Load(Param("bits"), GP64())
	sign := y.broadcast(1 << 31)
	var shifts [4]reg.VecVirtual
	for i := range shifts {
		shifts[i] = y.load(signShifts.Offset(32 * i))
	}
	for w := range 4 {
		b := YMM()
		VPBROADCASTD(at(bits, 4*w), b)
		for i := range 4 {
			m := YMM()
			VPSLLVD(shifts[i], b, m)
			VPAND(m, sign, m)
			a := at(x, 128*w+32*i)
			VPXOR(a, m, m)
			VMOVUPS(m, a)
		}
	}
	finish(nil)
}

// hadamard transforms 1024 elements in three passes over them.
func hadamard() {
	function("hadamardAVX2", "func(x *float32)")
	Pragma("noescape")
	x := Load(Param("x"), GP64())
	var odd [3]reg.VecVirtual
	for i := range odd {
		odd[i] = y.load(oddLanes[i])
	}
	// Stages 1 to 32: 64 elements in eight registers.
	p, n := GP64(), GP64()
	MOVQ(x, p)
	MOVQ(operand.U32(16), n)
	Label("near")
	r := make([]reg.VecVirtual, 8)
	for i := range r {
		r[i] = y.load(at(p, 32*i))
		t := YMM()
		VPERMILPS(operand.U8(0xb1), r[i], t)
		VXORPS(odd[0], r[i], r[i])
		VADDPS(r[i], t, r[i])
		VPERMILPS(operand.U8(0x4e), r[i], t)
		VXORPS(odd[1], r[i], r[i])
		VADDPS(r[i], t, r[i])
		VPERM2F128(operand.U8(1), r[i], r[i], t)
		VXORPS(odd[2], r[i], r[i])
		VADDPS(r[i], t, r[i])
	}
	butterflies(r)
	for i := range r {
		VMOVUPS(r[i], at(p, 32*i))
	}
	ADDQ(operand.U32(256), p)
	DECQ(n)
	JNZ(operand.LabelRef("near"))

	// Stages 64 and 128: four registers 64 elements apart.
	MOVQ(x, p)
	MOVQ(operand.U32(4), n)
	Label("middle")
	for off := 0; off < 256; off += 32 {
		strided(p, off, 256, nil)
	}
	ADDQ(operand.U32(1024), p)
	DECQ(n)
	JNZ(operand.LabelRef("middle"))

	// Stages 256 and 512, and the factor 1/32.
	scale := y.broadcast(0x3d000000)
	MOVQ(x, p)
	MOVQ(operand.U32(32), n)
	Label("far")
	strided(p, 0, 1024, scale)
	ADDQ(operand.U32(32), p)
	DECQ(n)
	JNZ(operand.LabelRef("far"))
	finish(nil)
}

func strided(p reg.Register, off, stride int, scale reg.VecVirtual) {
	r := make([]reg.VecVirtual, 4)
	for i := range r {
		r[i] = y.load(at(p, off+i*stride))
	}
	butterflies(r)
	for i := range r {
		if scale != nil {
			VMULPS(scale, r[i], r[i])
		}
		VMOVUPS(r[i], at(p, off+i*stride))
	}
}

// butterflies does all stages between the registers.
func butterflies(r []reg.VecVirtual) {
	for h := 1; h < len(r); h *= 2 {
		for i := 0; i < len(r); i++ {
			if i&h != 0 {
				continue
			}
			d := YMM()
			VSUBPS(r[i+h], r[i], d)
			VADDPS(r[i+h], r[i], r[i])
			r[i+h] = d
		}
	}
}
