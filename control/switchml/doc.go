// Package switchml is the controller of the public SwitchML project
// (p4lang/p4app-switchML, commit b5c74a0) as its unchanged clients know it:
// gRPC without encryption, package switchml_proto, port 50099.
//
// A session here is one job of the data plane. Rank 0's UdpSession installs it
// in the place of the last one, every other rank adds itself, and Barrier and
// Broadcast keep the ranks in step. What the public controller does and clients
// rely on is kept: rank 0's request clears what its worker was in before, the
// session id is echoed, and a session request that can not be served gets an all-zero
// response with status OK, because a client aborts on any other status; the log
// says why.
//
// The public controller has one session at a time. Here others run beside it, each
// with its own job and slots: a session is told from another by its id, which clients
// learn from their first Broadcast; and that Broadcast, which names no session, by the
// port that it came in by and the number of workers. Jobs of the same size that may
// start in the same moment need a port each (see sessions.go).
//
// Where the public controller wedges, this one does not: a caller that goes away
// while it waits is taken out of what it waited for, so that a restart of all
// workers finds no half barrier; and a Broadcast that its root began and did not
// live to see complete is dropped (see sync.go for the rule).
package switchml
