// Package plan predicts what a larger system would do, without running it: an
// analytical model of one training iteration in which gradients are summed
// either by plain NICs and software, or around a ring inside smart NICs, as in
// Ma et al., "FPGA-Based AI Smart NICs for Scalable Distributed AI Training
// Systems" (IEEE Computer Architecture Letters 21, 2022; arXiv 2204.10943).
//
// A [Table] lists what a model's layers compute and how many gradients they
// have. A [System] says how fast nodes compute and how fast links carry.
// [System.Iterate] lays one iteration out in time: all forward passes, then the
// backward passes from the last layer to the first; as soon as a layer's
// gradients are there, its all-reduce queues for the node's one engine, which
// serves them in order; last comes the update. What of the all-reduces is not
// hidden behind compute is exposed.
//
// Everything here is arithmetic: no sockets, no clocks, and no package of
// gradnic is imported. Times are in seconds, sizes in bytes.
package plan
