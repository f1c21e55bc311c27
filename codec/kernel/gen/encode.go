//go:build generate

package main

import (
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// format is what the loops of a block format need to know.
type format struct {
	name  string
	block int
	// limit is the largest exponent that the assembly takes; 255: any.
	limit uint32
	// floor and emax make the scale: max(E - emax, floor).
	floor, emax uint32
	// inverse: the scale's inverse has the exponent field inverse - scale.
	inverse uint32
	signed  bool // the codes are signed integers, clamped to [-127, 127]
	packed  bool
	// small floats
	mbits, bias, maxCode uint32
}

var formats = []format{
	{name: "bfp16", block: 16, limit: 254, floor: 7, inverse: 260, signed: true},
	{name: "intel", block: 16, limit: 255},
	{name: "e4m3", block: 32, limit: 254, emax: 8, inverse: 254, mbits: 3, bias: 7, maxCode: 0x7e},
	{name: "e5m2", block: 32, limit: 254, emax: 15, inverse: 254, mbits: 2, bias: 15, maxCode: 0x7b},
	{name: "e2m1", block: 32, limit: 254, emax: 2, inverse: 254, mbits: 1, bias: 1, maxCode: 7, packed: true},
	{name: "mxint8", block: 32, limit: 253, inverse: 254, signed: true},
}

// unit is the number of elements that one turn of an inner loop takes.
const unit = 32

// encode writes func(body, scales []byte, src []float32) int, which encodes
// whole groups of lanes() blocks, stops before a group with an exponent above
// the limit and returns the number of blocks done.
func (v isa) encode(f format) {
	function(f.name+"Encode"+v.suffix(), "func(body, scales []byte, src []float32) int")
	Pragma("noescape")
	body := Load(Param("body").Base(), GP64())
	scales := Load(Param("scales").Base(), GP64())
	left := Load(Param("scales").Len(), GP64())
	src := Load(Param("src").Base(), GP64())
	done := GP64()
	XORQ(done, done)

	abs := v.broadcast(absMask)
	var limit, floor, emax, inverse operand.Op
	if f.limit < 255 {
		limit = v.constant(f.limit)
		inverse = v.constant(-f.inverse)
	}
	if f.emax > 0 {
		emax = v.constant(f.emax)
	}
	if f.floor > 0 || f.emax > 0 {
		floor = v.constant(f.floor)
	}
	q := v.quantiser(f, abs)
	inv := AllocLocal(v.bytes())
	group := v.lanes()

	Label("group")
	CMPQ(left, operand.U8(group))
	JLT(operand.LabelRef("end"))
	e := v.maxima(f, src, abs, 0, group)
	VPSRLD(operand.U8(23), e, e)
	if f.limit < 255 {
		if v.wide {
			k := K()
			VPCMPGTD(limit, e, k)
			KORTESTW(k, k)
		} else {
			m, g := v.reg(), GP32()
			VPCMPGTD(limit, e, m)
			VPMOVMSKB(m, g)
			TESTL(g, g)
		}
		JNE(operand.LabelRef("end"))
	}
	if f.emax > 0 {
		VPSUBD(emax, e, e)
	}
	if floor != nil {
		VPMAXSD(floor, e, e)
	}
	v.storeBytes(e, scales)
	if f.limit < 255 {
		// The inverse's exponent is inverse - scale.
		i, zero := v.reg(), v.reg()
		VPADDD(inverse, e, i)
		v.xor(zero, zero, zero)
		VPSUBD(i, zero, i)
		VPSLLD(operand.U8(23), i, i)
		e = i
	}
	v.store(e, inv)

	perBlock := f.block / unit * 4
	if f.block < unit {
		perBlock = 4 * (unit / f.block)
	}
	ptr, units := GP64(), GP64()
	LEAQ(inv, ptr)
	MOVQ(operand.U32(group*f.block/unit), units)
	Label("unit")
	v.encodeUnit(f, q, src, body, ptr)
	ADDQ(operand.U32(4*unit), src)
	if f.packed {
		ADDQ(operand.U32(unit/2), body)
	} else {
		ADDQ(operand.U32(unit), body)
	}
	ADDQ(operand.U32(perBlock), ptr)
	DECQ(units)
	JNZ(operand.LabelRef("unit"))

	ADDQ(operand.U8(group), scales)
	ADDQ(operand.U8(group), done)
	SUBQ(operand.U8(group), left)
	JMP(operand.LabelRef("group"))
	Label("end")
	finish(done)
}

// maxima returns the largest magnitudes of count blocks from the first on, in
// order: a tree of interleaving maxima.
func (v isa) maxima(f format, src reg.Register, abs reg.VecVirtual, first, count int) reg.VecVirtual {
	if count == 1 {
		acc := v.reg()
		for i := 0; i < f.block; i += v.lanes() {
			m := at(src, 4*(first*f.block+i))
			if i == 0 {
				v.and(m, abs, acc)
				continue
			}
			t := v.reg()
			v.and(m, abs, t)
			VPMAXSD(t, acc, acc)
		}
		return acc
	}
	a := v.maxima(f, src, abs, first, count/2)
	b := v.maxima(f, src, abs, first+count/2, count/2)
	lo := v.reg()
	switch {
	case count == 2:
		VPUNPCKLDQ(b, a, lo)
		VPUNPCKHDQ(b, a, a)
	case count == 4:
		VPUNPCKLQDQ(b, a, lo)
		VPUNPCKHQDQ(b, a, a)
	case !v.wide:
		VPERM2I128(operand.U8(0x20), b, a, lo)
		VPERM2I128(operand.U8(0x31), b, a, a)
	default:
		VSHUFI32X4(operand.U8(0x88), b, a, lo)
		VSHUFI32X4(operand.U8(0xdd), b, a, a)
	}
	VPMAXSD(lo, a, a)
	return a
}

// storeBytes writes the low byte of every lane.
func (v isa) storeBytes(r reg.VecVirtual, p reg.Register) {
	if v.wide {
		VPMOVDB(r, at(p, 0))
		return
	}
	t, hi := v.reg(), XMM()
	VPACKUSDW(r, r, t)
	VPACKUSWB(t, t, t)
	VEXTRACTI128(operand.U8(1), t, hi)
	VMOVD(t.AsX(), at(p, 0))
	VMOVD(hi, at(p, 4))
}

// quantiser holds the constants of a format.
type quantiser struct {
	least                                         operand.Op // -127
	sixtyFour                                     operand.Op
	fraction, hidden                              operand.Op
	magic, half, one, belowNormal, maxCode, signs operand.Op
	merge                                         operand.Op
	abs, order                                    reg.VecVirtual
}

func (v isa) quantiser(f format, abs reg.VecVirtual) (q quantiser) {
	q.abs = abs
	switch {
	case f.signed && v.wide:
		q.least = v.constant(0xffffff81)
	case f.signed:
		q.least = v.constant(0x81818181)
	case f.name == "intel":
		q.fraction = v.constant(1<<23 - 1)
		q.hidden = v.constant(1 << 23)
	default:
		shift := 23 - f.mbits
		q.magic = v.constant((127 + 23 + 1 - f.bias - f.mbits) << 23)
		q.half = v.constant(1<<(shift-1) - 1 - (127-f.bias)<<23)
		q.one = v.constant(1)
		q.belowNormal = v.constant((128-f.bias)<<23 - 1)
		q.maxCode = v.constant(f.maxCode)
		if f.packed {
			q.signs = v.constant(8)
		} else {
			q.signs = v.constant(0x80)
		}
	}
	if f.name == "mxint8" {
		q.sixtyFour = v.constant(0x42800000)
	}
	if !v.wide {
		q.order = v.load(laneOrder)
		if f.packed {
			q.merge = nibbleMerge
		}
	}
	return q
}

// encodeUnit encodes 32 elements with the inverse scales (Intel: the exponents)
// at ptr.
func (v isa) encodeUnit(f format, q quantiser, src, body, ptr reg.Register) {
	var codes []reg.VecVirtual
	var scale reg.VecVirtual
	for i := 0; i < unit; i += v.lanes() {
		if i%f.block == 0 {
			scale = v.reg()
			if f.name == "intel" {
				VPBROADCASTD(at(ptr, i/f.block*4), scale)
			} else {
				VBROADCASTSS(at(ptr, i/f.block*4), scale)
			}
		}
		codes = append(codes, v.code(f, q, at(src, 4*i), scale))
	}
	v.storeCodes(codes, body, q, f.signed || f.name == "intel", f.packed)
}

// code turns one vector of elements into integers.
func (v isa) code(f format, q quantiser, m operand.Mem, scale reg.VecVirtual) reg.VecVirtual {
	r := v.reg()
	switch {
	case f.name == "intel":
		w := v.load(m)
		shift, neg := v.reg(), v.reg()
		VPADDD(w, w, shift)
		VPSRLD(operand.U8(24), shift, shift)
		VPSUBD(shift, scale, shift)
		v.and(q.fraction, w, r)
		v.or(q.hidden, r, r)
		VPSRLVD(shift, r, r)
		VPSRAD(operand.U8(31), w, neg)
		v.xor(r, neg, r)
		VPSUBD(neg, r, r)
		VPSRAD(operand.U8(17), r, r)
	case f.signed:
		VMULPS(m, scale, r)
		if f.name == "mxint8" {
			VMULPS(q.sixtyFour, r, r)
		}
		VCVTPS2DQ(r, r)
	default:
		w := v.load(m)
		a, odd, sub := v.reg(), v.reg(), v.reg()
		v.and(w, q.abs, a)
		VMULPS(a, scale, a)
		VADDPS(q.magic, a, sub)
		VPSUBD(q.magic, sub, sub)
		VPSRLD(operand.U8(23-f.mbits), a, odd)
		v.and(q.one, odd, odd)
		VPADDD(q.half, a, r)
		VPADDD(odd, r, r)
		VPSRLD(operand.U8(23-f.mbits), r, r)
		v.selectGreater(a, q.belowNormal, r, sub, r)
		VPMINSD(q.maxCode, r, r)
		if f.packed {
			VPSRLD(operand.U8(28), w, w)
		} else {
			VPSRLD(operand.U8(24), w, w)
		}
		v.and(q.signs, w, w)
		v.or(w, r, r)
	}
	return r
}

// storeCodes narrows 32 integers to bytes (or nibbles) and stores them.
func (v isa) storeCodes(c []reg.VecVirtual, p reg.Register, q quantiser, signed, packed bool) {
	if v.wide {
		for i, r := range c {
			switch {
			case packed:
				t := v.reg()
				VPSRLQ(operand.U8(28), r, t)
				v.or(t, r, r)
				VPMOVQB(r, at(p, 8*i))
			case signed:
				if q.least != nil {
					VPMAXSD(q.least, r, r)
				}
				VPMOVSDB(r, at(p, 16*i))
			default:
				VPMOVDB(r, at(p, 16*i))
			}
		}
		return
	}
	if signed {
		VPACKSSDW(c[1], c[0], c[0])
		VPACKSSDW(c[3], c[2], c[2])
		VPACKSSWB(c[2], c[0], c[0])
	} else {
		VPACKUSDW(c[1], c[0], c[0])
		VPACKUSDW(c[3], c[2], c[2])
		VPACKUSWB(c[2], c[0], c[0])
	}
	VPERMD(c[0], q.order, c[0])
	if signed && q.least != nil {
		VPMAXSB(q.least, c[0], c[0])
	}
	if packed {
		VPMADDUBSW(q.merge, c[0], c[0])
		VPACKUSWB(c[0], c[0], c[0])
		VPERMQ(operand.U8(0x08), c[0], c[0])
		VMOVDQU(c[0].AsX(), at(p, 0))
		return
	}
	VMOVDQU(c[0], at(p, 0))
}
