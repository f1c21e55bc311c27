// Package dataplane runs the NIC: ports, lanes, functions and counters.
//
// # Shape
//
// A [NIC] owns a set of ports and one area of memory (a UMEM) cut into chunks. A frame is one packet's bytes in
// one chunk and is at any time in exactly one place: free, in the kernel (or the wire end of a port), in the hands
// of a lane, or on its way from one lane to another. Ports are of three kinds with one meaning:
//
//   - [XDPPort]: a netdev through AF_XDP, one socket a queue, steered by package xdp's program;
//   - [MemPort]: memory inside the process, whose wire end has Send and Recv;
//   - [PcapPort]: a capture file that is read as ingress and another that egress is written to.
//
// A lane is one goroutine on a locked OS thread. It owns a queue of every port, a contiguous range of chunks and
// a shard of every job's slots (slot s belongs to lane s mod lanes), and nobody else touches them. It takes up to 64
// frames at a time from a queue and passes the whole batch through parse, match and the functions before it sends,
// so that each stage stays in the instruction cache and the frames' cache misses overlap. There are no locks,
// channels, string maps or allocations on that way.
//
// Frames whose slot belongs to another lane are handed over through single-producer single-consumer rings, and
// their chunks come home through another ring.
//
// # Control
//
// The control plane builds new immutable tables beside the running lanes and hands them over through the lanes'
// mailboxes; a lane looks into its mailbox once a batch and is woken by an eventfd when it sleeps. Counters are plain
// integers of the lane, published together under a sequence lock, and always before a lane goes idle; [NIC.Snapshot]
// reads what was published.
//
// # Large frames
//
// A frame larger than a chunk is a chain of descriptors that follow each other (chain.go). It is one frame for every
// function and counter; protocols see a contiguous copy. A NIC whose frames all fit into a chunk has none of this.
//
// # Services
//
// Other packages bring functions of their own as a [Service]: it lives on one lane, is given batches of frames of whole
// ports or of UDP ports of the NIC's address, makes frames through an [Exchange], and is called when its time has come.
//
// # Healing
//
// A supervisor looks at the netdevs five times a second. A netdev that is gone, was made again, or has other queues gets
// new sockets on the same memory while the lanes run (rebuild.go); [PortSnapshot] says how a port is. docs/ports.md has
// what heals and what does not.
//
// # Accounting
//
// Every received frame is counted once: contributed, duplicate, answered, passed, in flight, or dropped under one
// [Reason]. [Snapshot.Check] verifies this, and that the places of all frames sum to the number of chunks.
package dataplane
