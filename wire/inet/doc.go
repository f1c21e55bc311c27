// Package inet reads and writes the few headers that carry everything else
// here: Ethernet II, IPv4, UDP, ARP and ICMP echo.
//
// [Parse] looks at fixed offsets, because the packets it accepts have no
// options and no tags: the IPv4 header is always at byte 14 and the transport
// header at byte 34. Whatever does not fit that shape is refused under a named
// [Fault], so that a caller can count it. Nothing is copied but the addresses,
// nothing is allocated, and no byte outside the frame is read.
//
// Checksums are never verified on the way in. Hosts that leave checksums to
// their card deliver frames over a veth or a tap with only a partial sum in
// them, and switches that aggregate do not look at it either. On the way out
// every header built here carries a right IPv4 checksum.
//
// The Put functions write one header at the start of a slice and return its
// length, so that they chain:
//
//	n := inet.PutEthernet(b, dst, src, inet.EtherTypeIPv4)
//	n += inet.PutIPv4(b[n:], inet.IPv4{...})
//	n += inet.PutUDP(b[n:], inet.UDP{...})
//
// Sources: RFC 791 (IPv4), RFC 768 (UDP), RFC 826 (ARP), RFC 792 (ICMP),
// RFC 1071 and RFC 1624 (checksums).
package inet
