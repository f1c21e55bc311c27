// Package switchml reads and writes the UDP frames of SwitchML, the in-network
// aggregation protocol of the public P4 program and client of the same name.
//
// A frame has fixed offsets throughout:
//
//	 0  Ethernet II                       14
//	14  IPv4 without options              20
//	34  UDP, port 0xBEE0..0xBEEF          8
//	42  message type (high nibble), size  1
//	43  job number                        1
//	44  tsi: the client's packet number   4   opaque, in the client's byte order
//	48  pool index: set, slot             2   big endian; bit 15 set, bit 14 ignored
//	50  exponents, signed                 2
//	52  values, int32 big endian          256 or 1024
//
// Requests and replies look alike: both have message type 1, and only the
// addresses tell them apart. A client reuses a reply's buffer for its next
// request and rewrites only some fields, so a reply that is wrong in any other
// field (type of service, TTL, size, length, padding) makes the next requests
// wrong. The builders here therefore write each byte as the P4 program does.
//
// Clients leave checksums to their card: a request's IPv4 checksum is often 0
// and its UDP checksum only the pseudo header's sum. Nobody verifies either.
//
// Source: p4lang/p4app-switchML at commit b5c74a0 (the P4 program's headers,
// parser and deparser, and the DPDK client), and captures of that client.
package switchml
