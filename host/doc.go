// Package host is a process's way to its NIC, as the card has it: memory that both see, a ring of requests, and a flag for each
// request that the NIC sets when it is done. This is the process's end; host/nic is the NIC's, and host/shm what both must
// know.
//
// # Connecting
//
// The NIC's process listens on a Unix socket (nic.Listen). [Dial] makes a memory file that cannot shrink, and two event
// descriptors, and passes them over the socket with a hello. There is one client at a time: a node has one host.
//
// # Memory
//
// The file starts with the control page (package shm says who writes what); the arena follows, where the buffers are. Up to
// eight requests are outstanding, served in order; the request in place i is done when the NIC has written 1 (the buffer has
// the result) or 2 (it failed, and why is beside it) to done flag i. The client rings the NIC's event descriptor after it
// has posted requests, and the NIC the client's after it has set flags.
//
// # Trust
//
// The NIC believes nothing that lies in shared memory. A client that changes a buffer while the NIC has it gets a wrong sum, as
// on the card, and so do the others: all nodes of a ring trust each other's numbers.
//
// # Order
//
// All nodes hand in the same requests in the same order. A [Client] sees to that for what one process starts: its
// operations go out in the order of the calls, in pieces of [Options.Piece] elements, which must be the same on all nodes.
package host
