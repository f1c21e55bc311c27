// Package multicast says where results go. A [Group] holds a job's members by
// rank; it is built once by the control plane, never changed, and replaced by a
// new one when a member joins or its port is learned. From it a lane reads the
// [Copy] list: one entry a destination, ordered by port so that all copies for
// one port are transmitted in one batch.
//
// Replication means one payload under k headers. [SwitchML] writes them: a
// template holds the header bytes that all copies share, and each copy gets its
// own Ethernet and IPv4 destination and checksum.
package multicast
