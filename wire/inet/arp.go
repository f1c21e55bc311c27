package inet

import "encoding/binary"

// ARPLen is the length of an ARP body for IPv4 over Ethernet; such a frame has
// at least EthernetLen + ARPLen bytes.
const ARPLen = 28

// ARP operations.
const (
	ARPRequest = 1
	ARPReply   = 2
)

// ARP is the body of an ARP frame for IPv4 over Ethernet.
type ARP struct {
	Op        uint16
	SenderMAC MAC
	SenderIP  Addr
	TargetMAC MAC
	TargetIP  Addr
}

// ParseARP reads an ARP frame into a. It returns Short, or BadARP when the
// frame is not ARP, or ARP for other address families.
func ParseARP(frame []byte, a *ARP) Fault {
	*a = ARP{}
	if len(frame) < EthernetLen+ARPLen {
		return Short
	}
	if binary.BigEndian.Uint16(frame[12:14]) != EtherTypeARP {
		return BadARP
	}
	// Hardware type 1, protocol type 0x0800, address lengths 6 and 4.
	if binary.BigEndian.Uint64(frame[14:22])>>16 != 0x0001_0800_0604 {
		return BadARP
	}
	a.Op = binary.BigEndian.Uint16(frame[20:22])
	a.SenderMAC = MAC(frame[22:28])
	a.SenderIP = Addr(frame[28:32])
	a.TargetMAC = MAC(frame[32:38])
	a.TargetIP = Addr(frame[38:42])
	return OK
}

// Answerable reports whether the frame is a request that the owner of ip may
// answer: it asks for ip, and comes from one station (RFC 826). A probe, whose
// sender is 0.0.0.0 (RFC 5227), is answered too.
func (a *ARP) Answerable(ip Addr) bool {
	return a.Op == ARPRequest && a.TargetIP == ip && !a.SenderMAC.IsMulticast() && !a.SenderMAC.IsZero()
}

// ReplyARP turns the request in frame into the owner's reply in place and
// returns the length to transmit: the request's, but not more than Ethernet's
// minimum of 60 bytes. The frame must have passed ParseARP.
func ReplyARP(frame []byte, mac MAC, ip Addr) int {
	copy(frame[0:6], frame[22:28])
	copy(frame[6:12], mac[:])
	binary.BigEndian.PutUint16(frame[20:22], ARPReply)
	copy(frame[32:42], frame[22:32])
	copy(frame[22:28], mac[:])
	copy(frame[28:32], ip[:])
	return min(len(frame), minFrame)
}

// PutARP writes a whole ARP frame without padding and returns its length, 42.
// A request goes to the broadcast address, a reply to the target.
func PutARP(frame []byte, a ARP) int {
	dst := a.TargetMAC
	if a.Op == ARPRequest {
		dst = Broadcast
	}
	PutEthernet(frame, dst, a.SenderMAC, EtherTypeARP)
	binary.BigEndian.PutUint64(frame[14:22], 0x0001_0800_0604<<16|uint64(a.Op))
	copy(frame[22:28], a.SenderMAC[:])
	copy(frame[28:32], a.SenderIP[:])
	copy(frame[32:38], a.TargetMAC[:])
	copy(frame[38:42], a.TargetIP[:])
	return EthernetLen + ARPLen
}
