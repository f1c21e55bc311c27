// Package bench measures gradnic and what it is compared with, in one run, interleaved, over the same link.
//
// Absolute rates on a shared machine swing twofold within minutes; ratios of runs that took turns do not. So every
// figure here is the median of rounds in which each contestant had its turn, in an order that rotates from round to
// round, and the figure that counts is the ratio to the yardstick of the same round.
package bench
