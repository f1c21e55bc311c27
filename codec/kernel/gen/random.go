//go:build generate

package main

import (
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// generator holds one Philox counter a lane: key, upper counter words, and the
// first word counted up.
type generator struct {
	v      isa
	state  reg.Register
	base   reg.VecVirtual
	m0, m1 operand.Op
	w0, w1 operand.Op
	step   operand.Op
	// AVX-512: the masks of the even and the odd lanes.
	even, odd reg.Register
}

var y = isa{}

// newGenerator reads state: key (2 words), first counter word, the other three.
func (v isa) newGenerator(state reg.Register) *generator {
	g := &generator{v: v, state: state, base: v.reg()}
	g.m0, g.m1 = v.constant(0xd2511f53), v.constant(0xcd9e8d57)
	g.w0, g.w1 = v.constant(0x9e3779b9), v.constant(0xbb67ae85)
	g.step = v.constant(uint32(v.lanes()))
	VPBROADCASTD(at(state, 8), g.base)
	VPADDD(counterStep, g.base, g.base)
	if v.wide {
		even, odd := K(), K()
		gp := GP32()
		MOVL(operand.U32(0x5555), gp)
		KMOVW(gp, even)
		KNOTW(even, odd)
		g.even, g.odd = even, odd
	}
	return g
}

// elements is how many elements one step serves.
func (v isa) elements() int { return 4 * v.lanes() }

// next gives the random words of the next elements() elements in order.
func (g *generator) next() [4]reg.VecVirtual {
	v := g.v
	var c [4]reg.VecVirtual
	c[0] = v.reg()
	VMOVUPS(g.base, c[0])
	for i := 1; i < 4; i++ {
		c[i] = v.reg()
		VPBROADCASTD(at(g.state, 8+4*i), c[i])
	}
	k0, k1 := v.reg(), v.reg()
	VPBROADCASTD(at(g.state, 0), k0)
	VPBROADCASTD(at(g.state, 4), k1)
	for r := range 10 {
		if r > 0 {
			VPADDD(g.w0, k0, k0)
			VPADDD(g.w1, k1, k1)
		}
		hi0, lo0 := g.mul32(c[0], g.m0)
		hi1, lo1 := g.mul32(c[2], g.m1)
		v.xor3(c[1], k0, hi1)
		v.xor3(c[3], k1, hi0)
		c = [4]reg.VecVirtual{hi1, lo1, hi0, lo0}
	}
	VPADDD(g.step, g.base, g.base)

	// Lane b of c[j] is word j of counter b: transpose. First within 128 bits:
	// r[i] gets counters i, i + 4, ...
	a, b, d, e := v.reg(), v.reg(), v.reg(), v.reg()
	VPUNPCKLDQ(c[1], c[0], a)
	VPUNPCKLDQ(c[3], c[2], b)
	VPUNPCKHDQ(c[1], c[0], d)
	VPUNPCKHDQ(c[3], c[2], e)
	var r, out [4]reg.VecVirtual
	for i := range r {
		r[i], out[i] = v.reg(), v.reg()
	}
	VPUNPCKLQDQ(b, a, r[0])
	VPUNPCKHQDQ(b, a, r[1])
	VPUNPCKLQDQ(e, d, r[2])
	VPUNPCKHQDQ(e, d, r[3])
	if !v.wide {
		VPERM2I128(operand.U8(0x20), r[1], r[0], out[0])
		VPERM2I128(operand.U8(0x20), r[3], r[2], out[1])
		VPERM2I128(operand.U8(0x31), r[1], r[0], out[2])
		VPERM2I128(operand.U8(0x31), r[3], r[2], out[3])
		return out
	}
	VSHUFI32X4(operand.U8(0x44), r[1], r[0], a)
	VSHUFI32X4(operand.U8(0x44), r[3], r[2], b)
	VSHUFI32X4(operand.U8(0xee), r[1], r[0], d)
	VSHUFI32X4(operand.U8(0xee), r[3], r[2], e)
	VSHUFI32X4(operand.U8(0x88), b, a, out[0])
	VSHUFI32X4(operand.U8(0xdd), b, a, out[1])
	VSHUFI32X4(operand.U8(0x88), e, d, out[2])
	VSHUFI32X4(operand.U8(0xdd), e, d, out[3])
	return out
}

// xor3 xors a and b into d.
func (v isa) xor3(a, b, d reg.VecVirtual) {
	if v.wide {
		VPTERNLOGD(operand.U8(0x96), a, b, d)
		return
	}
	VPXOR(a, d, d)
	VPXOR(b, d, d)
}

// mul32 multiplies every lane by a constant. Moving odd lanes to even ones by
// shuffles instead of shifts leaves the multiplier's ports to it.
func (g *generator) mul32(c reg.VecVirtual, m operand.Op) (hi, lo reg.VecVirtual) {
	v := g.v
	even, odd := v.reg(), v.reg()
	lo = v.reg()
	VMOVSHDUP(c, odd)
	VPMULUDQ(m, c, even)
	VPMULUDQ(m, odd, odd)
	if v.wide {
		VMOVUPS(even, lo)
		VMOVSLDUP(odd, g.odd, lo)
		VMOVSHDUP(even, g.even, odd)
		return odd, lo
	}
	hi = v.reg()
	VMOVSLDUP(odd, lo)
	VPBLENDD(operand.U8(0xaa), lo, even, lo)
	VMOVSHDUP(even, hi)
	VPBLENDD(operand.U8(0xaa), odd, hi, hi)
	return hi, lo
}

// incrementLess adds one to the lanes of k where r < limit. one is a constant.
func (v isa) incrementLess(r, limit, k reg.VecVirtual, one operand.Op) {
	if v.wide {
		m := K()
		VCMPPS(operand.U8(1), limit, r, m)
		VPADDD(one, k, m, k)
		return
	}
	VCMPPS(operand.U8(1), limit, r, r)
	VPSUBD(r, k, k)
}

func (v isa) philox() {
	function("philox"+v.suffix(), "func(dst []uint32, state *[6]uint32) int")
	Pragma("noescape")
	dst := Load(Param("dst").Base(), GP64())
	left := Load(Param("dst").Len(), GP64())
	g := v.newGenerator(Load(Param("state"), GP64()))
	finish(loop(left, v.elements(), func() { ADDQ(operand.U32(4*v.elements()), dst) }, func() {
		for i, r := range g.next() {
			v.store(r, at(dst, v.bytes()*i))
		}
	}))
}

// scalar keeps a float32 argument in a general register, as the vector ones are
// few, and returns what brings it into a vector.
func (v isa) scalar(name string) func() reg.VecVirtual {
	bits := GP32()
	MOVL(param(name), bits)
	return func() reg.VecVirtual {
		x, r := XMM(), v.reg()
		VMOVD(bits, x)
		VPBROADCASTD(x, r)
		return r
	}
}

func (v isa) stochastic() {
	function("stochasticInt8"+v.suffix(), "func(dst []byte, src []float32, scale float32, state *[6]uint32) int")
	Pragma("noescape")
	dst := Load(Param("dst").Base(), GP64())
	src := Load(Param("src").Base(), GP64())
	left := Load(Param("src").Len(), GP64())
	g := v.newGenerator(Load(Param("state"), GP64()))
	scaleOf := v.scalar("scale")
	abs, top, two24, one := v.constant(absMask), v.constant(0x42fe0000), v.constant(0x4b800000), v.constant(1)
	finish(loop(left, v.elements(), func() {
		ADDQ(operand.U32(4*v.elements()), src)
		ADDQ(operand.U32(v.elements()), dst)
	}, func() {
		random := g.next()
		scale := scaleOf()
		var c []reg.VecVirtual
		for i, r := range random {
			w := v.load(at(src, v.bytes()*i))
			l, k, f := v.reg(), v.reg(), v.reg()
			v.and(abs, w, l)
			VMULPS(scale, l, l)
			VMINPS(top, l, l)
			VCVTTPS2DQ(l, k)
			VCVTDQ2PS(k, f)
			VSUBPS(f, l, l)
			VMULPS(two24, l, l)
			VPSRLD(operand.U8(8), r, r)
			VCVTDQ2PS(r, r)
			v.incrementLess(r, l, k, one)
			VPSRAD(operand.U8(31), w, w)
			v.xor(w, k, k)
			VPSUBD(w, k, k)
			c = append(c, k)
		}
		v.storeCodes(c, dst, v.packing(), true, false)
	}))
}

// packing is what storeCodes needs for plain integers.
func (v isa) packing() (q quantiser) {
	if !v.wide {
		q.order, q.merge = v.load(laneOrder), nibbleMerge
	}
	return q
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
