// Package native reads and writes gradnic's own protocol, for what the other
// protocols lack: every element type, round numbers, epochs, and a way to go on
// after the network lost its memory. docs/protocol.md is the specification, with
// state machines and worked examples; this package is its layout.
//
// A message is the payload of one UDP datagram: a header of 32 bytes in network
// byte order, and a payload of as many bytes as the header says.
//
//	 0  version (high nibble), kind (low nibble)   1
//	 1  flags                                      1
//	 2  element type                               1
//	 3  codec                                      1
//	 4  job                                        2
//	 6  rank, or the contributions in a result     2
//	 8  epoch                                      4
//	12  round                                      4
//	16  slot                                       4
//	20  collective                                 4
//	24  elements that mean something               2
//	26  bytes of payload                           2
//	28  plane                                      1
//	29  zero                                       3
//
// Elements are little endian, as the machines that compute with them are. Kinds
// with the high bit set go from the network to a worker.
package native
