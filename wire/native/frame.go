package native

import (
	"encoding/binary"

	"gradnic/wire/inet"
)

// TTL of the frames that are made here. A multicast frame has 1: it does not leave the link.
const (
	TTL          = 64
	MulticastTTL = 1
)

// Endpoint is one end of a frame.
type Endpoint struct {
	MAC  inet.MAC
	IP   inet.Addr
	Port uint16
}

// FrameLen is the length of a frame with a payload of that many bytes, without padding to Ethernet's minimum and
// without the frame check sequence.
func FrameLen(payload int) int { return ValuesOffset + payload }

// PutFrame writes the headers of a whole frame, bytes 0..74, and returns its length. The payload belongs at
// frame[ValuesOffset:] and is not touched. The IPv4 checksum is right, UDP has none.
func PutFrame(frame []byte, from, to *Endpoint, h *Header, payload int) int {
	n := FrameLen(payload)
	ttl := uint8(TTL)
	if to.MAC.IsMulticast() {
		ttl = MulticastTTL
	}
	inet.PutEthernet(frame, to.MAC, from.MAC, inet.EtherTypeIPv4)
	inet.PutIPv4(frame[inet.L3Offset:], inet.IPv4{
		TTL: ttl, Proto: inet.ProtoUDP, Src: from.IP, Dst: to.IP, PayloadLen: n - inet.L4Offset, DontFragment: true,
	})
	inet.PutUDP(frame[inet.L4Offset:], inet.UDP{Src: from.Port, Dst: to.Port, PayloadLen: n - inet.PayloadOffset})
	h.Put(frame[inet.PayloadOffset:], payload)
	return n
}

// Template is the headers of a frame without its destination, for a result that goes to several workers.
type Template struct {
	header [ValuesOffset]byte
	sum    uint32 // of the IPv4 header without checksum and destination
}

// NewTemplate makes the headers that PutFrame would write to a station's address.
func NewTemplate(from *Endpoint, h *Header, payload int) (t Template) {
	PutFrame(t.header[:], from, &Endpoint{}, h, payload)
	ip := t.header[inet.L3Offset:inet.L4Offset]
	ip[10], ip[11] = 0, 0
	t.sum = inet.Sum(0, ip)
	return t
}

// Put writes the headers, bytes 0..74, for one destination. It panics if frame is shorter than that.
func (t *Template) Put(frame []byte, mac inet.MAC, ip inet.Addr, port uint16) {
	_ = frame[ValuesOffset-1]
	*(*[ValuesOffset]byte)(frame) = t.header
	*(*inet.MAC)(frame) = mac
	*(*inet.Addr)(frame[30:34]) = ip
	sum := t.sum
	if mac.IsMulticast() {
		frame[22] = MulticastTTL
		sum += 0xffff - (TTL-MulticastTTL)<<8 // one's complement subtraction
	}
	binary.BigEndian.PutUint16(frame[24:26], ^uint16(inet.Sum(sum, ip[:])))
	binary.BigEndian.PutUint16(frame[36:38], port)
}

// GroupMAC is the Ethernet address of an IPv4 multicast group (RFC 1112, section 6.4).
func GroupMAC(ip inet.Addr) inet.MAC {
	return inet.MAC{0x01, 0x00, 0x5e, ip[1] & 0x7f, ip[2], ip[3]}
}
