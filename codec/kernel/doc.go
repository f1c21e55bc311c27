// Package kernel holds the inner loops of the number formats in package codec.
//
// Every kernel exists as a pure Go twin and, on amd64, in assembly for AVX2 and
// AVX-512 that is generated from codec/kernel/asm. The twins agree bit for bit
// on every input, also on NaN payloads, and at every length and alignment; the
// twin is the definition. Which one runs is decided once at start by
// internal/cpu (GRADNIC_SIMD=off|avx2|avx512).
//
// The assembly works on whole groups of blocks and refuses groups that hold an
// infinity or a NaN: it returns how many blocks it did, and the twin takes the
// refused group. A short tail is padded with zeros to a whole group on the
// stack. So there is one rule for rare values and it is written in Go.
//
// Functions panic when the lengths of their arguments do not fit together;
// they never read or write outside of the slices they are given, and never
// allocate.
package kernel
