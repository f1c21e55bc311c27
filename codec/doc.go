// Package codec holds the number formats and compressors that gradients take
// on the wire: what a worker or a NIC turns a block of float32 into before it
// is sent, and back.
//
// It is a pure library: no sockets, no clocks, no goroutines, and no state but
// what the caller hands in.
package codec
