package inet

import "encoding/binary"

// ICMPLen is the length of an echo message without its data.
const ICMPLen = 8

// ICMP types of echo (RFC 792).
const (
	ICMPEchoReply   = 0
	ICMPEchoRequest = 8
)

// Echo is an ICMP echo request.
type Echo struct {
	ID, Seq uint16
	Data    []byte // aliases the frame
}

// ParseEcho reads the ICMP echo request in p, which Parse must have accepted.
// It returns NotEcho for every other packet and for a source that must not be
// answered (group or broadcast addresses, RFC 1122 3.2.2), and BadLength for a
// message shorter than its header.
func ParseEcho(p *Packet, e *Echo) Fault {
	*e = Echo{}
	if p.Proto != ProtoICMP || p.L4 == 0 {
		return NotEcho
	}
	b := p.Payload
	if len(b) < ICMPLen {
		return BadLength
	}
	if b[0] != ICMPEchoRequest || b[1] != 0 || p.Src.IsMulticast() || !p.SrcIP.IsUnicast() {
		return NotEcho
	}
	e.ID = binary.BigEndian.Uint16(b[4:6])
	e.Seq = binary.BigEndian.Uint16(b[6:8])
	e.Data = b[ICMPLen:]
	return OK
}

// ReplyEcho turns the echo request in frame into its reply in place and
// returns the length to transmit: the packet's, padded to Ethernet's minimum as
// far as the request was. p is the parsed request, accepted by ParseEcho, and
// is not valid afterwards.
//
// The addresses are swapped and the IPv4 checksum is made right with a fresh
// TTL of 64. The ICMP checksum is updated for the change of type alone
// (RFC 1624), so that data that was damaged on its way here stays detectable.
func ReplyEcho(frame []byte, p *Packet) int {
	copy(frame[0:6], p.Src[:])
	copy(frame[6:12], p.Dst[:])
	ip := frame[p.L3:]
	ip[8] = 64
	copy(ip[12:16], p.DstIP[:])
	copy(ip[16:20], p.SrcIP[:])
	SetIPv4Checksum(ip)

	icmp := frame[p.L4:]
	old := uint32(^binary.BigEndian.Uint16(icmp[2:4]))
	icmp[0] = ICMPEchoReply
	// HC' = ~(~HC + ~m + m') with m = 0x0800 and m' = 0.
	s := old + uint32(^uint16(ICMPEchoRequest<<8))
	s = s&0xffff + s>>16
	binary.BigEndian.PutUint16(icmp[2:4], ^uint16(s))

	n := p.L4 + len(p.Payload)
	if n < minFrame {
		n = min(len(frame), minFrame)
	}
	return n
}
