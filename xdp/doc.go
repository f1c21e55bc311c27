// Package xdp is the AF_XDP engine: frames of a netdev in memory that a lane and the
// kernel share, without a copy where the driver can and without a system call a frame.
package xdp
