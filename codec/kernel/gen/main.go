//go:build generate

// Command gen writes the assembly of package codec/kernel.
package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

func main() {
	ConstraintExpr("amd64")
	tables()
	for _, v := range []isa{{wide: false}, {wide: true}} {
		for _, f := range formats {
			v.encode(f)
			v.decode(f)
			v.add(f)
		}
		v.halves()
		v.plain()
		v.philox()
		v.stochastic()
		v.roundTable()
	}
	sumSquares()
	switchML()
	flipSigns()
	hadamard()
	copies()
	addTable()
	affineUint8()
	Generate()
}

// isa writes the same loop for AVX2 (YMM, 8 lanes) or AVX-512 (ZMM, 16 lanes).
type isa struct{ wide bool }

func (v isa) suffix() string {
	if v.wide {
		return "AVX512"
	}
	return "AVX2"
}

func (v isa) lanes() int {
	if v.wide {
		return 16
	}
	return 8
}

// bytes is the size of a register.
func (v isa) bytes() int { return 4 * v.lanes() }

func (v isa) reg() reg.VecVirtual {
	if v.wide {
		return ZMM()
	}
	return YMM()
}

// half is a register of half the width.
func (v isa) half() reg.VecVirtual {
	if v.wide {
		return YMM()
	}
	return XMM()
}

func (v isa) load(m operand.Op) reg.VecVirtual {
	r := v.reg()
	VMOVUPS(m, r)
	return r
}

func (v isa) store(r reg.VecVirtual, m operand.Mem) { VMOVUPS(r, m) }

func (v isa) and(a, b operand.Op, d reg.VecVirtual) {
	if v.wide {
		VPANDD(a, b, d)
	} else {
		VPAND(a, b, d)
	}
}

func (v isa) or(a, b operand.Op, d reg.VecVirtual) {
	if v.wide {
		VPORD(a, b, d)
	} else {
		VPOR(a, b, d)
	}
}

func (v isa) xor(a, b operand.Op, d reg.VecVirtual) {
	if v.wide {
		VPXORD(a, b, d)
	} else {
		VPXOR(a, b, d)
	}
}

// broadcast puts a 32-bit constant into every lane.
func (v isa) broadcast(c uint32) reg.VecVirtual {
	g, x, r := GP32(), XMM(), v.reg()
	MOVL(operand.U32(c), g)
	VMOVD(g, x)
	VPBROADCASTD(x, r)
	return r
}

// constants are the words that exist as tables of eight.
var constants = map[uint32]operand.Mem{}

// constant is a 32-bit constant in every lane: in a register where there are 32
// of them (call it ahead of loops), else in memory. Only the first operand of an
// instruction may be one.
func (v isa) constant(c uint32) operand.Op {
	if v.wide {
		return v.broadcast(c)
	}
	m, ok := constants[c]
	if !ok {
		m = words(fmt.Sprintf("all%08x", c), []uint32{c, c, c, c, c, c, c, c})
		constants[c] = m
	}
	return m
}

// selectGreater sets d to yes where a > b as signed integers, else to no.
func (v isa) selectGreater(a reg.VecVirtual, b operand.Op, yes, no, d reg.VecVirtual) {
	if v.wide {
		k := K()
		VPCMPGTD(b, a, k)
		VPBLENDMD(yes, no, k, d)
		return
	}
	m := v.reg()
	VPCMPGTD(b, a, m)
	VBLENDVPS(m, yes, no, d)
}

// param is the place of an argument. Scalars are read from there by VEX-coded
// instructions: avo's Load would use MOVSS, which stalls once the upper halves
// of the vector registers are in use.
func param(name string) operand.Mem {
	p, err := Param(name).Resolve()
	if err != nil {
		panic(err)
	}
	return p.Addr
}

// at is base + disp bytes.
func at(base reg.Register, disp int) operand.Mem { return operand.Mem{Base: base, Disp: disp} }

// function starts a function; the body is an endless loop in the usual case.
func function(name, signature string) {
	TEXT(name, NOSPLIT, signature)
}

// finish returns a count and clears the upper halves.
func finish(done operand.Op) {
	VZEROUPPER()
	if done != nil {
		Store(done.(reg.Register), ReturnIndex(0))
	}
	RET()
}
