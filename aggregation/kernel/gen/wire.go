//go:build generate

package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// wire decodes and encodes one format. Byte order is not in the code: it is in the shuffle controls of the parameter
// block, so that one loop serves both orders.
type wire struct {
	isa    isa
	format format

	decodeBy, encodeBy reg.VecVirtual
	upper              reg.OpmaskVirtual // bfloat16, AVX-512: dword lanes 8 to 15
	gather             reg.VecVirtual    // bfloat16, AVX-512: even qwords
	one, below         reg.VecVirtual    // bfloat16: 1 and 0x7fff, for rounding
}

// prepare loads the constants that a loop needs to read or write the wire.
func (w *wire) prepare(params reg.Register, o op) {
	m := w.isa
	if o.src && w.format.name != "Int8" {
		w.decodeBy = m.full(Mem{Base: params, Disp: paramDecode})
		if w.format.name == "BFloat16" && m.wide {
			r := GP32()
			MOVL(U32(0xff00), r)
			w.upper = K()
			KMOVW(r, w.upper)
		}
	}
	if o.put {
		if w.format.name != "Int8" || !m.wide {
			w.encodeBy = m.full(Mem{Base: params, Disp: paramEncode})
		}
		if w.format.name == "BFloat16" {
			w.one = m.spread(constant(f32, 1), f32)
			w.below = m.spread(constant(f32, 0x7fff), f32)
			if m.wide {
				w.gather = m.full(evenQwords())
			}
		}
	}
}

// decode reads one vector of wire elements and widens them to the slot's type.
func (w *wire) decode(mem Mem, mask reg.Register) reg.Register {
	m := w.isa
	switch w.format.name {
	case "Int8":
		v := m.vec()
		if mask == nil {
			VPMOVSXBD(mem, v)
			return v
		}
		x := XMM()
		VMOVDQU8_Z(mem, mask, x)
		VPMOVSXBD(x, v)
		return v
	case "Float16":
		v := m.vec()
		h := m.half(v)
		switch {
		case !m.wide:
			VMOVDQU(mem, h)
		case mask == nil:
			VMOVDQU64(mem, h)
		default:
			VMOVDQU16_Z(mem, mask, h)
		}
		VPSHUFB(m.half(w.decodeBy), h, h)
		VCVTPH2PS(h, v)
		return v
	case "BFloat16":
		v := m.vec()
		switch {
		case !m.wide:
			// Both lanes hold the same eight words; the control takes four for each and puts them into upper halves.
			VBROADCASTI128(mem, v)
		case mask == nil:
			// Lanes 0 and 1 hold words 0 to 7, lanes 2 and 3 words 8 to 15. Broadcasts from memory spare the shuffle
			// port, which bounds this loop.
			VBROADCASTI32X4(mem, v)
			VBROADCASTI32X4(mem.Offset(16), w.upper, v)
		default:
			VMOVDQU16_Z(mem, mask, v.AsY())
			VSHUFI64X2(U8(0x50), v, v, v)
		}
		VPSHUFB(w.decodeBy, v, v)
		return v
	}
	v := m.load(mem, w.format.slot, mask)
	VPSHUFB(w.decodeBy, v, v)
	return v
}

// encode narrows and writes one vector. The value is left as it was. NaN and values beyond the format must have been
// dealt with: see rule.fix.
func (w *wire) encode(v reg.Register, mem Mem, mask reg.Register) {
	m := w.isa
	t := m.vec()
	switch w.format.name {
	case "Int8":
		switch {
		case !m.wide:
			VPSHUFB(w.encodeBy, v, t)
			high := XMM()
			VEXTRACTI128(U8(1), t, high)
			VPUNPCKLDQ(high, t.AsX(), high)
			VMOVQ(high, mem)
		case mask == nil:
			VPMOVDB(v, mem)
		default:
			VPMOVDB(v, mask, mem)
		}
		return
	case "Float16":
		h := m.half(t)
		VCVTPS2PH(U8(0), v, h)
		VPSHUFB(m.half(w.encodeBy), h, h)
		w.storeHalf(h, mem, mask)
		return
	case "BFloat16":
		// Nearest even: add 0x7fff and the lowest bit that stays.
		VPSRLD(U8(16), v, t)
		m.and(w.one, t, t)
		VPADDD(v, t, t)
		VPADDD(w.below, t, t)
		VPSHUFB(w.encodeBy, t, t)
		if m.wide {
			VPERMQ(t, w.gather, t)
		} else {
			VPERMQ(U8(0x08), t, t)
		}
		w.storeHalf(m.half(t), mem, mask)
		return
	}
	VPSHUFB(w.encodeBy, v, t)
	m.store(t, mem, w.format.slot, mask)
}

func (w *wire) storeHalf(h reg.Register, mem Mem, mask reg.Register) {
	switch {
	case !w.isa.wide:
		VMOVDQU(h, mem)
	case mask == nil:
		VMOVDQU64(h, mem)
	default:
		VMOVDQU16(h, mask, mem)
	}
}
