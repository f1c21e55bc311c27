package inet

import "encoding/binary"

// EtherTypes that Parse knows by name.
const (
	EtherTypeIPv4 = 0x0800
	EtherTypeARP  = 0x0806
	EtherTypeVLAN = 0x8100 // 802.1Q customer tag
	EtherTypeQinQ = 0x88a8 // 802.1ad service tag
	EtherTypeOldQ = 0x9100 // the service tag before 802.1ad
)

// IPv4 protocol numbers.
const (
	ProtoICMP = 1
	ProtoUDP  = 17
)

// Header lengths and the fixed offsets they lead to.
const (
	EthernetLen = 14
	IPv4Len     = 20
	UDPLen      = 8

	L3Offset      = EthernetLen        // IPv4 or ARP
	L4Offset      = L3Offset + IPv4Len // UDP or ICMP
	PayloadOffset = L4Offset + UDPLen  // UDP payload
	minFrame      = 60                 // Ethernet's minimum without the frame check sequence
	fragmentMask  = 0x3fff             // more-fragments flag and offset; don't-fragment is not in it
)

// Packet is what Parse found. Fields that lie behind the fault keep the zero
// value; those before it are set, so that a caller can look at an ARP frame's
// EtherType after NotIPv4.
type Packet struct {
	Dst, Src         MAC
	EtherType        uint16
	SrcIP, DstIP     Addr
	Proto            uint8
	TTL              uint8
	SrcPort, DstPort uint16 // UDP only
	L3, L4           int    // offsets of the network and transport headers, 0 if not reached

	// Payload aliases the frame. For UDP it is what follows the UDP header, as
	// bounded by the IPv4 and the UDP length; for other protocols what follows
	// the IPv4 header, as bounded by the IPv4 length. Ethernet padding is never in it.
	Payload []byte
}

// Parse reads an Ethernet II frame with an IPv4 packet into p and returns OK,
// or the first reason to refuse it. It does not allocate, never reads outside
// the frame and verifies no checksum. An IPv4 packet of a protocol other than
// UDP is OK too: look at Proto before the ports.
func Parse(frame []byte, p *Packet) Fault {
	*p = Packet{}
	if len(frame) < EthernetLen {
		return Short
	}
	p.Dst = MAC(frame[0:6])
	p.Src = MAC(frame[6:12])
	p.EtherType = binary.BigEndian.Uint16(frame[12:14])
	if p.EtherType != EtherTypeIPv4 {
		switch p.EtherType {
		case EtherTypeVLAN, EtherTypeQinQ, EtherTypeOldQ:
			return Tagged
		}
		p.L3 = L3Offset
		return NotIPv4
	}
	p.L3 = L3Offset
	if len(frame) < L4Offset {
		return Short
	}
	if b := frame[L3Offset]; b != 0x45 {
		switch {
		case b>>4 != 4:
			return BadVersion
		case b&0xf > 5:
			return Options
		}
		return BadLength
	}
	total := int(binary.BigEndian.Uint16(frame[16:18]))
	if total < IPv4Len {
		return BadLength
	}
	end := L3Offset + total
	if end > len(frame) {
		return Short
	}
	p.TTL = frame[22]
	p.Proto = frame[23]
	p.SrcIP = Addr(frame[26:30])
	p.DstIP = Addr(frame[30:34])
	if binary.BigEndian.Uint16(frame[20:22])&fragmentMask != 0 {
		return Fragment
	}
	p.L4 = L4Offset
	if p.Proto != ProtoUDP {
		p.Payload = frame[L4Offset:end:end]
		return OK
	}
	if total < IPv4Len+UDPLen {
		return BadLength
	}
	length := int(binary.BigEndian.Uint16(frame[38:40]))
	if length < UDPLen || L4Offset+length > end {
		return BadLength
	}
	p.SrcPort = binary.BigEndian.Uint16(frame[34:36])
	p.DstPort = binary.BigEndian.Uint16(frame[36:38])
	end = L4Offset + length
	p.Payload = frame[PayloadOffset:end:end]
	return OK
}
