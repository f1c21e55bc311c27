//go:build generate

package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

// emitPrefetch writes the loop that asks for cache lines.
func emitPrefetch() {
	TEXT("prefetchLines", NOSPLIT, "func(p *byte, lines int)")
	Pragma("noescape")
	Doc("prefetchLines asks for so many cache lines from p on, at least one.")
	p, n := Load(Param("p"), GP64()), Load(Param("lines"), GP64())
	Label("next")
	PREFETCHT0(Mem{Base: p})
	ADDQ(Imm(64), p)
	DECQ(n)
	JNZ(LabelRef("next"))
	RET()
}
