// Package kernel holds the loops over elements: the part of aggregation that touches every byte of every contribution.
//
// A contribution arrives as wire bytes and is folded into a slot, whose elements are kept in a machine type that is at
// least as wide as the wire's. The first contribution sets the slot, the later ones are folded into it (sum, minimum or
// maximum), and the last one is folded and encoded in one pass into the frame that carries the result.
package kernel
