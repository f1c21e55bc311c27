package ring

import (
	"encoding/binary"
	"hash/fnv"

	"gradnic/wire/inet"
)

// TTL of the frames that are made here.
const TTL = 64

// Endpoint is one node's address.
type Endpoint struct {
	MAC inet.MAC
	IP  inet.Addr
}

// PutFrame writes the headers of Ethernet, IPv4 and UDP, bytes 0..41, around a message of that many bytes, which belongs
// at frame[inet.PayloadOffset:], and returns the frame's length. The IPv4 checksum is right, UDP has none.
func PutFrame(frame []byte, from, to *Endpoint, message int) int {
	inet.PutEthernet(frame, to.MAC, from.MAC, inet.EtherTypeIPv4)
	inet.PutIPv4(frame[inet.L3Offset:], inet.IPv4{
		TTL: TTL, Proto: inet.ProtoUDP, Src: from.IP, Dst: to.IP, PayloadLen: inet.UDPLen + message, DontFragment: true,
	})
	inet.PutUDP(frame[inet.L4Offset:], inet.UDP{Src: Port, Dst: Port, PayloadLen: message})
	return inet.PayloadOffset + message
}

// Epoch is the digest that tells two generations of the same number apart: FNV-1a, 32 bits, over the generation (4 bytes)
// and the members (12 bytes each, as in a hello), in network byte order. Frames of one epoch are only taken by nodes that
// know the same boot of every node, so that no sum mixes two lives of a node.
func Epoch(generation uint32, members []Member) uint32 {
	h := fnv.New32a()
	var b [MemberLen]byte
	binary.BigEndian.PutUint32(b[:], generation)
	_, _ = h.Write(b[:4])
	for _, m := range members {
		binary.BigEndian.PutUint16(b[:], m.Node)
		b[2], b[3] = 0, 0
		binary.BigEndian.PutUint64(b[4:], m.Boot)
		_, _ = h.Write(b[:])
	}
	return h.Sum32()
}
