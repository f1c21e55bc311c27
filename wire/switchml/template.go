package switchml

import (
	"encoding/binary"

	"gradnic/wire/inet"
)

// ReplyTemplate is the headers of a reply without its destination, for results
// that go to several workers.
type ReplyTemplate struct {
	header [ValuesOffset]byte
	sum    uint32 // of the IPv4 header without checksum and destination
}

// NewReplyTemplate makes the headers that PutReply would write; the reply's
// worker is not looked at. ok is false if Elements has no size code.
func NewReplyTemplate(r Reply) (t ReplyTemplate, ok bool) {
	code, ok := SizeOf(r.Elements)
	if !ok {
		return t, false
	}
	r.Worker = Endpoint{}
	n := FrameLen(r.Elements)
	putHeaders(t.header[:], &r.Switch, &r.Worker, code, n, ReplyTTL)
	putHeader(t.header[:], r.Job, r.TSI, r.PoolIndex&^(1<<14), r.E0, r.E1)
	ip := t.header[inet.L3Offset:inet.L4Offset]
	ip[10], ip[11] = 0, 0
	t.sum = inet.Sum(0, ip)
	return t, true
}

// Put writes the headers, bytes 0..52, for one worker. It panics if frame is
// shorter than that.
func (t *ReplyTemplate) Put(frame []byte, mac inet.MAC, ip inet.Addr, port uint16) {
	_ = frame[ValuesOffset-1]
	*(*[ValuesOffset]byte)(frame) = t.header
	*(*inet.MAC)(frame) = mac
	*(*inet.Addr)(frame[30:34]) = ip
	binary.BigEndian.PutUint16(frame[24:26], ^uint16(inet.Sum(t.sum, ip[:])))
	binary.BigEndian.PutUint16(frame[36:38], port)
}
