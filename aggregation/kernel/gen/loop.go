//go:build generate

package main

import (
	"fmt"
	"strings"

	"github.com/mmcloughlin/avo/attr"
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// unroll is the number of vectors in the main loop's group.
const unroll = 4

// loop is one function of the family.
type loop struct {
	isa    isa
	format format
	op     op
	wire   wire
	rule   rule

	src, slot, dst, params reg.Register
	count                  reg.GPVirtual
	peak                   reg.VecVirtual

	later []func() // out-of-line blocks, written after the function's end
}

func newLoop(m isa, f format, o op) *loop {
	return &loop{isa: m, format: f, op: o,
		wire: wire{isa: m, format: f}, rule: rule{isa: m, format: f, op: o}}
}

func funcName(m isa, f format, o op) string { return o.name + f.name + m.name }

func (l *loop) signature() string {
	var args []string
	if l.op.put {
		args = append(args, "dst *byte")
	}
	args = append(args, "acc *"+l.format.slot.goType)
	if l.op.src {
		args = append(args, "src *byte")
	}
	args = append(args, "n int", fmt.Sprintf("p *[%d]byte", paramBytes))
	results := "flagged int"
	if l.op.peak {
		results += ", peak uint32"
	}
	return fmt.Sprintf("func(%s) (%s)", strings.Join(args, ", "), results)
}

func (l *loop) doc() string {
	name := funcName(l.isa, l.format, l.op)
	switch {
	case l.op.name == "set":
		return name + " decodes n elements of src into acc."
	case l.op.name == "put":
		return name + " encodes n elements of acc into dst."
	case l.op.put:
		return name + " folds n elements of src into acc and encodes acc into dst."
	case l.op.peak:
		return name + " folds n elements of src into acc; peak has the bits of the largest magnitude of acc."
	}
	return name + " folds n elements of src into acc."
}

func (l *loop) emit() {
	m, s := l.isa, l.format.slot
	TEXT(funcName(m, l.format, l.op), attr.NOSPLIT, l.signature())
	Doc(l.doc())
	Pragma("noescape")
	if l.op.put {
		l.dst = Load(Param("dst"), GP64())
	}
	l.slot = Load(Param("acc"), GP64())
	if l.op.src {
		l.src = Load(Param("src"), GP64())
	}
	n := Load(Param("n"), GP64())
	l.params = Load(Param("p"), GP64())
	l.count = GP64()
	XORQ(l.count, l.count)
	l.rule.params, l.rule.count = l.params, l.count
	l.wire.prepare(l.params, l.op)
	l.rule.prepare()
	if l.op.peak {
		l.peak = m.vec()
		m.xor(l.peak, l.peak, l.peak)
	}

	lanes := m.lanes(s)
	group := lanes * unroll
	CMPQ(n, imm(group))
	JLT(LabelRef("tail"))
	Label("group")
	l.body("group", unroll, nil)
	SUBQ(imm(group), n)
	CMPQ(n, imm(group))
	JGE(LabelRef("group"))
	Label("tail")
	if m.wide {
		TESTQ(n, n)
		JLE(LabelRef("done"))
		ones := GP64()
		MOVQ(I64(-1), ones)
		Label("one")
		bits := GP64()
		BZHIQ(n, ones, bits)
		mask := K()
		KMOVQ(bits, mask)
		l.body("one", 1, mask)
		SUBQ(imm(lanes), n)
		JGT(LabelRef("one"))
	} else {
		CMPQ(n, imm(lanes))
		JLT(LabelRef("done"))
		Label("one")
		l.body("one", 1, nil)
		SUBQ(imm(lanes), n)
		CMPQ(n, imm(lanes))
		JGE(LabelRef("one"))
	}
	Label("done")
	if l.op.peak {
		l.storePeak()
	}
	VZEROUPPER()
	Store(l.count, ReturnIndex(0))
	RET()
	for _, block := range l.later {
		block()
	}
}

// body handles count vectors and advances the pointers.
func (l *loop) body(name string, count int, mask reg.Register) {
	m, s, f := l.isa, l.format.slot, l.format
	lanes := m.lanes(s)
	slotMem := func(i int) Mem { return Mem{Base: l.slot, Disp: i * m.bytes} }
	wireMem := func(base reg.Register, i int) Mem { return Mem{Base: base, Disp: i * lanes * f.size} }

	es := make([]element, count)
	for i := range es {
		var in, acc reg.Register
		if l.op.src {
			in = l.wire.decode(wireMem(l.src, i), mask)
		}
		if l.op.reads() {
			acc = m.load(slotMem(i), s, mask)
		}
		switch {
		case l.op.fold != "":
			es[i] = l.rule.fold(acc, in)
		case l.op.src:
			es[i] = element{value: in}
		default:
			es[i] = element{value: acc}
		}
	}
	finish := func(i int, value, out reg.Register) {
		if l.op.writes() {
			m.store(value, slotMem(i), s, mask)
		}
		if l.op.put {
			l.wire.encode(out, wireMem(l.dst, i), mask)
		}
		if l.op.peak {
			t := m.vec()
			m.and(l.rule.magnitude, value, t)
			VPMAXUD(t, l.peak, l.peak) // as integers: finite, infinity, NaN
		}
	}
	l.rule.jumpIfRare(es, name+"Rare")
	for i, e := range es {
		finish(i, e.value, e.value)
	}
	if l.rule.watches() != nothing {
		Label(name + "Next")
		l.later = append(l.later, func() {
			Label(name + "Rare")
			for i, e := range es {
				value, out := l.rule.fix(e)
				finish(i, value, out)
			}
			JMP(LabelRef(name + "Next"))
		})
	}
	ADDQ(imm(count*m.bytes), l.slot)
	for _, p := range []reg.Register{l.src, l.dst} {
		if p != nil {
			ADDQ(imm(count*lanes*f.size), p)
		}
	}
}

func (l *loop) storePeak() {
	if l.isa.wide {
		t := YMM()
		VEXTRACTI64X4(U8(1), l.peak, t)
		VPMAXUD(t, l.peak.AsY(), l.peak.AsY())
	}
	x, t := l.peak.AsX(), XMM()
	VEXTRACTI128(U8(1), l.peak.AsY(), t)
	VPMAXUD(t, x, x)
	VPSHUFD(U8(0x0e), x, t)
	VPMAXUD(t, x, x)
	VPSHUFD(U8(0x01), x, t)
	VPMAXUD(t, x, x)
	r := GP32()
	VMOVD(x, r)
	Store(r, ReturnIndex(1))
}

// emitDivide writes the loop that turns a sum into a mean: acc / by, rounded to nearest even. n must be a multiple of
// the step that the tables give.
func emitDivide(m isa, s slot) {
	TEXT("divide"+s.name+m.name, attr.NOSPLIT, fmt.Sprintf("func(acc *%s, n, by int)", s.goType))
	Doc("divide" + s.name + m.name + " divides n elements of acc.")
	Pragma("noescape")
	acc := Load(Param("acc"), GP64())
	n := Load(Param("n"), GP64())
	lanes := divideLanes(m, s)
	divisor := Load(Param("by"), GP64())
	one, by := XMM(), m.vec()
	VXORPS(one, one, one)
	if s.name == "F32" {
		VCVTSI2SSQ(divisor, one, one)
		VBROADCASTSS(one, by)
	} else {
		VCVTSI2SDQ(divisor, one, one)
		VBROADCASTSD(one, by)
	}
	CMPQ(n, imm(lanes))
	JLT(LabelRef("done"))
	Label("loop")
	v := m.vec()
	if s.float {
		VMOVUPS(Mem{Base: acc}, v)
		pick(s, VDIVPS, VDIVPD)(by, v, v)
		VMOVUPS(v, Mem{Base: acc})
	} else {
		// The quotient of two int32 in double precision is never rounded across a half, so rounding it again is exact.
		VCVTDQ2PD(Mem{Base: acc}, v)
		VDIVPD(by, v, v)
		if m.wide {
			VCVTPD2DQ(v, v.AsY())
			VMOVDQU64(v.AsY(), Mem{Base: acc})
		} else {
			VCVTPD2DQY(v, v.AsX())
			VMOVDQU(v.AsX(), Mem{Base: acc})
		}
	}
	ADDQ(imm(lanes*s.size), acc)
	SUBQ(imm(lanes), n)
	CMPQ(n, imm(lanes))
	JGE(LabelRef("loop"))
	Label("done")
	VZEROUPPER()
	RET()
}

func divideLanes(m isa, s slot) int {
	if s.float {
		return m.lanes(s)
	}
	return m.bytes / 8
}
