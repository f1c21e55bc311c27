//go:build generate

package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/attr"
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// isa is an instruction set. The two differ in width, in masks (AVX-512 compares into mask registers and has masked
// tails; AVX2 leaves the tail to Go) and in a few mnemonics.
type isa struct {
	name  string
	wide  bool
	bytes int
}

var isas = map[string]isa{
	"avx2":   {name: "AVX2", bytes: 32},
	"avx512": {name: "AVX512", wide: true, bytes: 64},
}

func (m isa) vec() reg.VecVirtual {
	if m.wide {
		return ZMM()
	}
	return YMM()
}

// half gives the low half of a vector.
func (m isa) half(v reg.VecVirtual) reg.Register {
	if m.wide {
		return v.AsY()
	}
	return v.AsX()
}

func (m isa) lanes(s slot) int { return m.bytes / s.size }

// load reads one vector of dwords or qwords, zeros where the mask is off.
func (m isa) load(mem Mem, s slot, mask reg.Register) reg.VecVirtual {
	v := m.vec()
	switch {
	case !m.wide:
		VMOVDQU(mem, v)
	case mask == nil:
		VMOVDQU64(mem, v)
	case s.size == 8:
		VMOVDQU64_Z(mem, mask, v)
	default:
		VMOVDQU32_Z(mem, mask, v)
	}
	return v
}

func (m isa) store(v reg.Register, mem Mem, s slot, mask reg.Register) {
	switch {
	case !m.wide:
		VMOVDQU(v, mem)
	case mask == nil:
		VMOVDQU64(v, mem)
	case s.size == 8:
		VMOVDQU64(v, mask, mem)
	default:
		VMOVDQU32(v, mask, mem)
	}
}

// full loads a whole vector from the parameter block.
func (m isa) full(mem Mem) reg.VecVirtual {
	return m.load(mem, f64, nil)
}

// spread broadcasts one slot element.
func (m isa) spread(mem Mem, s slot) reg.VecVirtual {
	v := m.vec()
	if s.size == 8 {
		VBROADCASTSD(mem, v)
	} else {
		VBROADCASTSS(mem, v)
	}
	return v
}

func (m isa) and(a, b, dst Op) {
	if m.wide {
		VPANDQ(a, b, dst)
	} else {
		VPAND(a, b, dst)
	}
}

func (m isa) or(a, b, dst Op) {
	if m.wide {
		VPORQ(a, b, dst)
	} else {
		VPOR(a, b, dst)
	}
}

func (m isa) xor(a, b, dst Op) {
	if m.wide {
		VPXORQ(a, b, dst)
	} else {
		VPXOR(a, b, dst)
	}
}

// pick chooses the mnemonic for the slot's width: single or double precision, dword or qword.
func pick[F any](s slot, narrow, wide F) F {
	if s.size == 8 {
		return wide
	}
	return narrow
}

type ops3 = func(...Op)

func vadd(s slot) ops3 {
	if s.float {
		return pick[ops3](s, VADDPS, VADDPD)
	}
	return pick[ops3](s, VPADDD, VPADDQ)
}
func vmin(s slot) ops3 { return pick[ops3](s, VMINPS, VMINPD) }
func vmax(s slot) ops3 { return pick[ops3](s, VMAXPS, VMAXPD) }
func vcmp(s slot) ops3 { return pick[ops3](s, VCMPPS, VCMPPD) }

// Predicates of VCMPPS and VCMPPD, quiet.
const (
	unordered = U8(3)
	notLess   = U8(0x15) // true for NaN
)

// Opmask instructions for 16 dword lanes or 8 qword lanes.
func (m isa) korTest(s slot, k reg.Register) {
	pick(s, KORTESTW, KORTESTB)(k, k)
}

func (m isa) kor(s slot, a, b, dst reg.Register) {
	pick(s, KORW, KORB)(a, b, dst)
}

// addLanes adds the number of set lanes of a mask register to count.
func (m isa) addLanes(s slot, k reg.Register, count reg.Register) {
	r := GP32()
	pick(s, KMOVW, KMOVB)(k, r)
	addBits(r, count)
}

// addSigns adds the number of lanes of an AVX2 vector whose sign bit is set to count.
func (m isa) addSigns(s slot, v reg.Register, count reg.Register) {
	r := GP32()
	pick(s, VMOVMSKPS, VMOVMSKPD)(v, r)
	addBits(r, count)
}

func addBits(r reg.GPVirtual, count reg.Register) {
	POPCNTL(r, r)
	ADDQ(r.As64(), count)
}

// constants already written, by name.
var constants = map[string]Mem{}

// constant gives the address of one slot element in read-only data.
func constant(s slot, bits uint64) Mem {
	name := fmt.Sprintf("k%d_%x", 8*s.size, bits)
	mem, ok := constants[name]
	if !ok {
		mem = GLOBL(name, attr.RODATA|attr.NOPTR)
		if s.size == 8 {
			DATA(0, U64(bits))
		} else {
			DATA(0, U32(bits))
		}
		constants[name] = mem
	}
	return mem
}

// evenQwords gives the address of the qword indices 0, 2, 4, 6, which gather the packed halves of four 128-bit lanes.
func evenQwords() Mem {
	const name = "even_qwords"
	mem, ok := constants[name]
	if !ok {
		mem = GLOBL(name, attr.RODATA|attr.NOPTR)
		for i := range 8 {
			DATA(8*i, U64(2*i%8))
		}
		constants[name] = mem
	}
	return mem
}

func signBits(s slot) uint64 { return pick[uint64](s, 0x80000000, 0x8000000000000000) }
func infBits(s slot) uint64  { return pick[uint64](s, 0x7f800000, 0x7ff0000000000000) }
func nanBits(s slot) uint64  { return pick[uint64](s, 0x7fc00000, 0x7ff8000000000000) }

// imm gives a small count as the immediate that ADDQ, SUBQ and CMPQ take.
func imm(n int) Op {
	if n < 128 {
		return U8(n)
	}
	return U32(n)
}
