package switchml

import (
	"encoding/binary"

	"gradnic/wire/inet"
)

// TTLs as the two ends write them. A client's first packets carry ClientTTL;
// later ones carry the TTL of the reply they reuse, which is ReplyTTL.
const (
	ClientTTL = 128
	ReplyTTL  = 64
)

// Endpoint is one end of a frame.
type Endpoint struct {
	MAC  inet.MAC
	IP   inet.Addr
	Port uint16
}

// Request are the fields of a worker's request.
type Request struct {
	Worker, Switch Endpoint
	Elements       int   // 64 or 256
	TTL            uint8 // 0 means ClientTTL
	Job            uint8
	TSI            [4]byte
	PoolIndex      uint16 // see PoolIndexOf
	E0, E1         int8

	// Offload leaves the checksums as a client does that relies on its card:
	// IPv4 0, UDP the pseudo header's sum. Without it the IPv4 checksum is right
	// and UDP has none.
	Offload bool
}

// Reply are the fields of the switch's reply to one worker.
type Reply struct {
	Switch Endpoint // Port is the destination port of the request that completed the slot
	Worker Endpoint // Port is the source port of the request that completed the slot

	Elements  int // 64 or 256
	Job       uint8
	TSI       [4]byte
	PoolIndex uint16 // as in the request; bit 14 is cleared
	E0, E1    int8
}

// PutRequest writes a request's headers, bytes 0..52 of frame, and returns the
// length of the whole frame, FrameLen(Elements). The values belong at
// frame[ValuesOffset:n] and are not touched, so that they may be there already.
// It returns 0 and writes nothing if Elements has no size code or frame is too short.
func PutRequest(frame []byte, r Request) int {
	code, ok := SizeOf(r.Elements)
	n := FrameLen(r.Elements)
	if !ok || len(frame) < n {
		return 0
	}
	ttl := r.TTL
	if ttl == 0 {
		ttl = ClientTTL
	}
	putHeaders(frame, &r.Worker, &r.Switch, code, n, ttl)
	if r.Offload {
		frame[24], frame[25] = 0, 0
		sum := inet.PseudoHeaderSum(r.Worker.IP, r.Switch.IP, inet.ProtoUDP, n-inet.L4Offset)
		binary.BigEndian.PutUint16(frame[40:42], sum)
	}
	putHeader(frame, r.Job, r.TSI, r.PoolIndex, r.E0, r.E1)
	return n
}

// PutReply writes a reply's headers, bytes 0..52 of frame, and returns the
// length of the whole frame, FrameLen(Elements). The values belong at
// frame[ValuesOffset:n] and are not touched. It returns 0 and writes nothing if
// Elements has no size code or frame is too short.
func PutReply(frame []byte, r Reply) int {
	code, ok := SizeOf(r.Elements)
	n := FrameLen(r.Elements)
	if !ok || len(frame) < n {
		return 0
	}
	putHeaders(frame, &r.Switch, &r.Worker, code, n, ReplyTTL)
	putHeader(frame, r.Job, r.TSI, r.PoolIndex&^(1<<14), r.E0, r.E1)
	return n
}

// putHeaders writes Ethernet, IPv4, UDP and the size; n is the frame's length.
func putHeaders(frame []byte, from, to *Endpoint, code SizeCode, n int, ttl uint8) {
	inet.PutEthernet(frame, to.MAC, from.MAC, inet.EtherTypeIPv4)
	inet.PutIPv4(frame[inet.L3Offset:], inet.IPv4{
		TTL: ttl, Proto: inet.ProtoUDP, Src: from.IP, Dst: to.IP,
		PayloadLen: n - inet.L4Offset,
	})
	inet.PutUDP(frame[inet.L4Offset:], inet.UDP{
		Src: from.Port, Dst: to.Port, PayloadLen: n - inet.PayloadOffset,
	})
	frame[42] = MessageType<<4 | byte(code)
}

func putHeader(frame []byte, job uint8, tsi [4]byte, pool uint16, e0, e1 int8) {
	frame[43] = job
	copy(frame[44:48], tsi[:])
	binary.BigEndian.PutUint16(frame[48:50], pool)
	frame[50], frame[51] = byte(e0), byte(e1)
}
