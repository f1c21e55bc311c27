// Package host is the way between a process and its NIC, as the card has it: memory that both see, a ring of requests, and
// a flag for each request that the NIC sets when it is done.
//
// # Connecting
//
// The NIC's process listens on a Unix socket ([Listen]). A client makes a memory file that cannot shrink, and two event
// descriptors, and passes them over the socket with its hello. There is one client at a time: a node has one host.
//
// # Memory
//
// The file starts with the control page (layout.go says who writes what); the arena follows, where the buffers are. Up to
// eight requests are outstanding, served in order; the request in place i is done when the NIC has written 1 (the buffer has
// the result) or 2 (it failed, and why is beside it) to done flag i. The client rings the NIC's event descriptor after it
// has posted requests, and the NIC the client's after it has set flags.
//
// # Trust
//
// The NIC believes nothing that lies in shared memory: a request is copied before it is checked, buffers must lie in the
// arena, and the file is sealed against shrinking, so that no access can fault. A client that changes a buffer while the NIC
// has it gets a wrong sum, as on the card, and so do the others: all nodes of a ring trust each other's numbers. What a
// client does with its descriptors cannot hold up the lane, which only sets a flag. When the client ends, its requests run to
// their end on memory that is still mapped; then the next client may come.
//
// # Order
//
// All nodes hand in the same requests in the same order. A [Client] sees to that for what one process starts: its
// operations go out in the order of the calls, in pieces of [Options.Piece] elements, which must be the same on all nodes.
package host
