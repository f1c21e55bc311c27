// Package aggregation holds the slots in which contributions of several
// workers become one result. It knows no sockets, no clocks and no goroutines:
// a [Pool] is a state machine that one goroutine drives, time is a number its
// caller passes in, and the results are written where the caller says.
//
// A slot has two versions, called sets on the wire of SwitchML. While workers
// fill one, the other keeps the last result, so that a worker that lost it can
// ask again by sending its contribution again. One kind of memory and one entry
// point, [Pool.Contribute], serve all protocols; what differs is the rule by
// which a contribution is judged:
//
// [SwitchML] is the rule of the P4 program of that name, kept to the letter.
// The wire has no round number. A worker's packet for one set proves that it
// has the result of the other, so its bit in the other is cleared. A stale
// duplicate that arrives after its worker moved on to the other set counts as a
// new contribution: the protocol relies on packets of one worker staying in
// order, and the rule does not pretend otherwise.
//
// [Rounds] is for protocols that number the uses of a slot. Round r lives in
// version r&1. A contribution counts once, whatever is duplicated, reordered,
// lost and resent; a packet of an older round never touches a newer one.
//
// # Numbers
//
// Element type, byte order, operation, order and policy are a job's choice, in
// [Spec]. A contribution costs one choice of loops, and then package kernel's
// loops over its elements; the last one of a round is folded and encoded in one
// pass. What befell the values on the way is in the [Flags] of the result and
// in the [Counters] of the pool. docs/numbers.md states what each choice
// promises.
//
// # Memory
//
// All values of a pool are one block: slot 0 version 0, slot 0 version 1, slot
// 1 version 0 and so on, each starting on a cache line. [Spec.Bytes] says how
// much a pool takes before it is made. Order [Ranked] has a second block for
// contributions that come before a lower rank's. Contribute allocates nothing.
package aggregation
