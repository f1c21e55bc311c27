// Package kernel holds the loops over elements: the part of aggregation that touches every byte of every contribution.
//
// A contribution arrives as wire bytes and is folded into a slot, whose elements are kept in a machine type that is at
// least as wide as the wire's. The first contribution sets the slot, the later ones are folded into it (sum, minimum or
// maximum), and the last one is folded and encoded in one pass into the frame that carries the result. A job chooses
// its loops once, with For; SwitchML's are also plain functions.
//
// What does not fit, and infinities and NaN, are counted by the loop that meets them and dealt with by the job's
// Policy. All NaN that are written are the same, so that a result does not depend on the machine. docs/kernels.md has
// the rules in full.
//
// Each loop exists three times: in Go (pure.go), and in assembly for AVX2 and AVX-512, which the program in gen writes
// from one description. They give the same bits; which is used is decided once, at start, by the CPU and GRADNIC_SIMD.
package kernel
