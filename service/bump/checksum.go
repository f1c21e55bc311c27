package bump

import (
	"encoding/binary"

	"gradnic/wire/inet"
)

// sumState is what a transport checksum turned out to be.
type sumState uint8

const (
	sumRight   sumState = iota
	sumNone             // UDP without one
	sumPartial          // the pseudo header's sum only: the host leaves the rest to its card
	sumWrong
)

// Where the checksum is in a UDP and in a TCP header.
const (
	udpSumAt = 6
	tcpSumAt = 16
)

// finishSum looks at the checksum of a UDP datagram or TCP segment, header and payload, and completes it in place where
// the host has left that to its card (Linux: CHECKSUM_PARTIAL). pseudo is the sum of its pseudo header, at where
// the field is.
func finishSum(segment []byte, pseudo uint16, at int, udp bool) sumState {
	field := binary.BigEndian.Uint16(segment[at:])
	if udp && field == 0 {
		return sumNone
	}
	sum := inet.Sum(uint32(pseudo), segment)
	if sum == 0xffff {
		return sumRight
	}
	if field != pseudo {
		return sumWrong
	}
	// The checksum is over the segment with a field of 0: the field's sum goes out again, in one's complement.
	c := ^uint16(inet.Sum(sum, []byte{^segment[at], ^segment[at+1]}))
	if c == 0 && udp {
		c = 0xffff
	}
	binary.BigEndian.PutUint16(segment[at:], c)
	return sumPartial
}

// isPartial is the cheap look: only where it is true can there be something to complete.
func isPartial(segment []byte, pseudo uint16, at int) bool {
	return binary.BigEndian.Uint16(segment[at:]) == pseudo
}

const (
	etherTypeIPv6 = 0x86dd
	ipv6Len       = 40
)

// complete finishes the transport checksum of any frame from the host that passes untouched otherwise, where the host has
// left it to its card: UDP and TCP over IPv4 or IPv6 without options, tagged or not. It reports whether it did.
func complete(frame []byte) bool {
	at := inet.EthernetLen - 2
	for tags := 0; ; tags++ {
		if len(frame) < at+2 {
			return false
		}
		t := binary.BigEndian.Uint16(frame[at:])
		at += 2
		if t == inet.EtherTypeIPv4 {
			return completeIPv4(frame[at:])
		}
		if t == etherTypeIPv6 {
			return completeIPv6(frame[at:])
		}
		if t != inet.EtherTypeVLAN && t != inet.EtherTypeQinQ || tags == 2 {
			return false
		}
		at += 2
	}
}

func completeIPv4(b []byte) bool {
	if len(b) < inet.IPv4Len || b[0] != 0x45 || binary.BigEndian.Uint16(b[6:])&0x3fff != 0 {
		return false
	}
	total := int(binary.BigEndian.Uint16(b[2:]))
	if total < inet.IPv4Len || total > len(b) {
		return false
	}
	segment := b[inet.IPv4Len:total]
	pseudo := inet.PseudoHeaderSum(inet.Addr(b[12:16]), inet.Addr(b[16:20]), b[9], len(segment))
	return completeSegment(segment, pseudo, b[9])
}

func completeIPv6(b []byte) bool {
	if len(b) < ipv6Len || b[0]>>4 != 6 {
		return false
	}
	length := int(binary.BigEndian.Uint16(b[4:]))
	if length > len(b)-ipv6Len {
		return false
	}
	segment := b[ipv6Len : ipv6Len+length]
	// The pseudo header of RFC 8200, 8.1: addresses, length, next header.
	tail := [4]byte{byte(length >> 8), byte(length), 0, b[6]}
	return completeSegment(segment, uint16(inet.Sum(inet.Sum(0, b[8:40]), tail[:])), b[6])
}

func completeSegment(segment []byte, pseudo uint16, proto uint8) bool {
	at, least := udpSumAt, inet.UDPLen
	switch proto {
	case inet.ProtoUDP:
	case protoTCP:
		at, least = tcpSumAt, 20
	default:
		return false
	}
	return len(segment) >= least && isPartial(segment, pseudo, at) &&
		finishSum(segment, pseudo, at, proto == inet.ProtoUDP) == sumPartial
}
