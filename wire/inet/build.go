package inet

import (
	"encoding/binary"
	"math/bits"
)

// PutEthernet writes an Ethernet II header and returns its length, 14.
// b must hold it; all Put functions panic on a slice that is too short.
func PutEthernet(b []byte, dst, src MAC, etherType uint16) int {
	_ = b[EthernetLen-1]
	*(*MAC)(b[0:6]) = dst
	*(*MAC)(b[6:12]) = src
	binary.BigEndian.PutUint16(b[12:14], etherType)
	return EthernetLen
}

// IPv4 are the fields of an IPv4 header without options.
type IPv4 struct {
	TOS          uint8
	ID           uint16
	DontFragment bool
	TTL          uint8 // 0 means 64
	Proto        uint8
	Src, Dst     Addr
	PayloadLen   int // bytes after the header, at most 65515
}

// PutIPv4 writes the header with its checksum and returns its length, 20.
func PutIPv4(b []byte, h IPv4) int {
	_ = b[IPv4Len-1]
	b[0] = 0x45
	b[1] = h.TOS
	binary.BigEndian.PutUint16(b[2:4], uint16(IPv4Len+h.PayloadLen))
	binary.BigEndian.PutUint16(b[4:6], h.ID)
	b[6], b[7] = 0, 0
	if h.DontFragment {
		b[6] = 0x40
	}
	b[8] = h.TTL
	if h.TTL == 0 {
		b[8] = 64
	}
	b[9] = h.Proto
	*(*Addr)(b[12:16]) = h.Src
	*(*Addr)(b[16:20]) = h.Dst
	SetIPv4Checksum(b)
	return IPv4Len
}

// UDP are the fields of a UDP header.
type UDP struct {
	Src, Dst   uint16
	PayloadLen int    // bytes after the header, at most 65507
	Checksum   uint16 // 0 means none, as IPv4 allows; see UDPChecksum
}

// PutUDP writes the header and returns its length, 8.
func PutUDP(b []byte, h UDP) int {
	_ = b[UDPLen-1]
	binary.BigEndian.PutUint16(b[0:2], h.Src)
	binary.BigEndian.PutUint16(b[2:4], h.Dst)
	binary.BigEndian.PutUint16(b[4:6], uint16(UDPLen+h.PayloadLen))
	binary.BigEndian.PutUint16(b[6:8], h.Checksum)
	return UDPLen
}

// Sum adds b as big-endian 16-bit words to sum in one's complement arithmetic,
// without the final complement (RFC 1071). An odd last byte counts as the high
// half of a word, so only the last piece of a message may be odd.
func Sum(sum uint32, b []byte) uint32 {
	// 2^64 is 1 in this arithmetic as 2^16 is, so that words of 64 bits may be added, each carry to the next sum.
	s, carry := uint64(sum), uint64(0)
	for len(b) >= 32 {
		s, carry = bits.Add64(s, binary.BigEndian.Uint64(b), carry)
		s, carry = bits.Add64(s, binary.BigEndian.Uint64(b[8:]), carry)
		s, carry = bits.Add64(s, binary.BigEndian.Uint64(b[16:]), carry)
		s, carry = bits.Add64(s, binary.BigEndian.Uint64(b[24:]), carry)
		b = b[32:]
	}
	s = s&0xffffffff + s>>32 + carry
	for len(b) >= 4 {
		s += uint64(binary.BigEndian.Uint32(b))
		b = b[4:]
	}
	if len(b) >= 2 {
		s += uint64(binary.BigEndian.Uint16(b))
		b = b[2:]
	}
	if len(b) == 1 {
		s += uint64(b[0]) << 8
	}
	return fold(s)
}

// fold brings a sum of fewer than 2^16 words of 32 bits down to 16 bits.
func fold(s uint64) uint32 {
	s = s&0xffffffff + s>>32
	s = s&0xffff + s>>16
	s = s&0xffff + s>>16
	return uint32(s&0xffff + s>>16)
}

// Checksum is the Internet checksum of b: the complement of its sum. Over a
// header that carries its right checksum it is 0.
func Checksum(b []byte) uint16 { return ^uint16(Sum(0, b)) }

// SetIPv4Checksum computes the checksum of the 20-byte header at the start of
// b and stores it there.
func SetIPv4Checksum(b []byte) {
	_ = b[IPv4Len-1]
	s := uint64(binary.BigEndian.Uint32(b[0:])) + uint64(binary.BigEndian.Uint32(b[4:])) +
		uint64(binary.BigEndian.Uint16(b[8:])) + // and not the checksum beside it
		uint64(binary.BigEndian.Uint32(b[12:])) + uint64(binary.BigEndian.Uint32(b[16:]))
	binary.BigEndian.PutUint16(b[10:12], ^uint16(fold(s)))
}

// PseudoHeaderSum is the folded, uncomplemented sum of UDP's pseudo header.
// It is what a host leaves in the checksum field when its card is to complete it.
// length is the UDP length: header and payload.
func PseudoHeaderSum(src, dst Addr, proto uint8, length int) uint16 {
	s := Sum(0, src[:])
	s = Sum(s, dst[:])
	return uint16(fold(uint64(s) + uint64(proto) + uint64(length)))
}

// UDPChecksum is the checksum of a UDP datagram; datagram is the header and
// the payload, and the bytes in its checksum field are ignored. A sum of zero
// is returned as 0xffff, since 0 on the wire means none (RFC 768).
func UDPChecksum(src, dst Addr, datagram []byte) uint16 {
	s := uint32(PseudoHeaderSum(src, dst, ProtoUDP, len(datagram)))
	s = Sum(s, datagram[:6])
	s = Sum(s, datagram[8:])
	if c := ^uint16(s); c != 0 {
		return c
	}
	return 0xffff
}
