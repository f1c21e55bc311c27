// Package ring sums gradients around a ring of NICs, as the FPGA AI smart NIC of Ma et al. (arXiv 2204.10943, public
// design libxsmm/fpga_ai_nic) does: each host hands its NIC a buffer, and the NICs reduce it among themselves, in place,
// compressed on the wire, while the hosts compute.
//
// # What goes where
//
// Node n of N receives from n+1, upstream, and sends to n-1, downstream. A buffer is cut into blocks of N slices of
// 32 KiB. Of each block node n sends its own slice n; then, as they come in, N-2 slices n+1, n+2, ... to which it has added
// its own values; then the slice whose sum is now complete, n-1, which also goes to its host; then N-2 finished slices
// that it passes on; and one more arrives that it keeps. Those are 2(N-1) slices sent a block, in the order n, n+1, n+2,
// ... modulo N. The first N-1 sends are the reduce half, the others the gather half. A sum is received + local.
//
// A slice is cut into frames of the link's MTU. A frame is worked on as it comes in, so that the slice behind it need
// not be complete; several blocks, of one request or of the next, are on their way at once, so that the link does not
// wait for the ring's round trip. Each block keeps the card's order.
//
// # What is on the wire
//
// The codec of a request decides what float32 become between NICs: "none", "bfp16" (the default), "bfp16-intel", "fp16"
// or "bf16". Sums are encoded anew at each hop. A finished slice is passed on as it came, and the node that finished it
// gives its own host what the others will decode, so that all hosts get the same bits; but with "bfp16-intel" everything
// is as in the card: each hop decodes and encodes again, and the finishing host gets the sum before it was encoded, so
// that hosts differ within the codec's error.
//
// # What can go wrong
//
// Frames are numbered on each link, acknowledged cumulatively and selectively, and sent again with the same bytes. A frame
// is only sent when the receiver has room reserved for it: there are separate credits for the reduce and the gather half,
// counted in blocks. A finished slice never waits for a host or for a later block's sum, and the oldest unfinished block
// always has room everywhere, so the cycle cannot deadlock.
//
// Nodes tell their neighbours eight times in Config.DeadAfter that they live. A ring has a generation, counted up each time
// it is formed, and an epoch, a digest of the boots of all nodes: no frame is taken from another life of a node. When a
// neighbour falls silent, or comes back with another boot, or a deadline passes, the generation is over: a notice travels
// both ways, every outstanding request of every node ends with a *[NodeError] that names the node, and nothing more is
// accepted until [Node.Reform] says who forms the next generation. A request that fails leaves its buffer undefined.
//
// # In Go
//
// [New] makes a node, [Node.Attach] gives it to a running NIC, [Node.Submit] hands in a request from any goroutine. The
// engine below is a state machine without sockets or clocks: messages and the time go in, messages come out.
package ring
