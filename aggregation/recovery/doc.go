// Package recovery is the part of the native protocol that brings the workers
// of a job together: when they start, and again when the network has lost its
// memory. It is a state machine without sockets, clocks and goroutines; the
// rules are those of docs/protocol.md.
//
// Workers report what they have: the life they belong to, and which results. A
// [Coordinator] collects the reports of one epoch. When all are there it either
// makes a [Formation], which says which results some workers lack and others
// have, or finds that the workers are out of step.
package recovery
