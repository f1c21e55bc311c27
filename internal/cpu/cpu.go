// Package cpu decides, once a process, which vector instructions the kernels
// of this module may use. It is the only place that reads GRADNIC_SIMD, so all
// kernels follow one rule.
package cpu

import (
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/cpu"
)

// Environment is the variable that lowers the level: off, avx2 or avx512. A
// level that the machine does not have is lowered to what it has; an unknown
// word counts as off, so that a typing error is never faster than asked for.
// Unset or empty means the best level of the machine.
const Environment = "GRADNIC_SIMD"

// Tier is a set of vector instructions. Each contains those below it.
type Tier uint8

const (
	// Off is pure Go.
	Off Tier = iota
	// AVX2 needs AVX2, FMA, F16C, BMI1 and BMI2 (x86-64-v3).
	AVX2
	// AVX512 needs AVX512F, BW, CD, DQ and VL as well (x86-64-v4).
	AVX512
)

// String gives the word that Environment takes.
func (t Tier) String() string {
	switch t {
	case Off:
		return "off"
	case AVX2:
		return "avx2"
	case AVX512:
		return "avx512"
	}
	return fmt.Sprintf("Tier(%d)", uint8(t))
}

// Level is the tier in force. The environment and the CPU are read at the
// first call; the answer never changes afterwards.
func Level() Tier { return level() }

var level = sync.OnceValue(func() Tier {
	return choose(os.Getenv(Environment), detect())
})

func choose(word string, have Tier) Tier {
	want := Off
	switch word {
	case "", "avx512":
		want = AVX512
	case "avx2":
		want = AVX2
	}
	return min(want, have)
}

// Machine is the best tier that the CPU and the operating system support,
// whatever the environment says: tests use it to try every tier.
func Machine() Tier { return detect() }

func detect() Tier {
	x := &cpu.X86
	// golang.org/x/sys/cpu has no flag for F16C: every CPU with AVX2 and FMA
	// has it.
	if !(x.HasAVX2 && x.HasFMA && x.HasBMI1 && x.HasBMI2) {
		return Off
	}
	if !(x.HasAVX512F && x.HasAVX512BW && x.HasAVX512CD && x.HasAVX512DQ && x.HasAVX512VL) {
		return AVX2
	}
	return AVX512
}
