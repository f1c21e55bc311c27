// Package nic is the NIC's end of the way between a process and its NIC: it listens on a Unix socket, maps what a process
// brings, and hands that process's requests to a node of a ring. The process's end is package host, and both are tested
// there, against each other and against processes that break every rule.
//
// The NIC believes nothing that lies in shared memory: a request is copied before it is checked, buffers must lie in the
// arena, and the file is sealed against shrinking, so that no access can fault. What a client does with its descriptors
// cannot hold up the lane, which only sets a flag. When the client ends, its requests run to their end on memory that is
// still mapped; then the next client may come.
package nic
