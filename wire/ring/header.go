package ring

import (
	"encoding/binary"
	"strconv"

	"gradnic/wire/inet"
)

// Port is the UDP port of the ring, source and destination of every message: 0xBEF1.
const Port = 48881

// Version is the one version there is.
const Version = 1

// HeaderLen is the length of the header, of every kind.
const HeaderLen = 40

// PayloadOffset is where a message's payload starts in a frame.
const PayloadOffset = inet.PayloadOffset + HeaderLen

// MaxNodes is the largest ring.
const MaxNodes = 64

// NoNode is the node number that stands for none.
const NoNode = 0xffff

// SackBytes is the longest selective acknowledgement: a bit for each of 1024 frames.
const SackBytes = 128

// PayloadRoom is how many bytes of payload a message can have on a link whose layer 3 takes mtu bytes.
func PayloadRoom(mtu int) int { return mtu - inet.IPv4Len - inet.UDPLen - HeaderLen }

// Kind is what a message is.
type Kind uint8

// The kinds.
const (
	Data   Kind = 1 // part of a slice, to the next node downstream
	Ack    Kind = 2 // what has arrived and what may be sent, to the next node upstream
	Hello  Kind = 3 // who is there, to both neighbours
	Notice Kind = 4 // the generation has ended and why, to both neighbours

	numKinds = 5
)

var kindNames = [numKinds]string{Data: "data", Ack: "ack", Hello: "hello", Notice: "notice"}

// String is the kind's name.
func (k Kind) String() string {
	if k < numKinds && k != 0 {
		return kindNames[k]
	}
	return "kind " + strconv.Itoa(int(k))
}

// Flags are bits of the second byte.
type Flags uint8

// The flags.
const (
	FlagResend Flags = 1 << iota // data: sent before, with the same bytes
	FlagGather                   // data: a finished slice on its way round; else one that is being summed
	FlagFormed                   // hello: the sender knows the boots of all nodes
	FlagReply                    // ack: answers a probe or a duplicate
)

// Common are the fields that all kinds have.
type Common struct {
	Ring       uint16 // which ring, of several that share nodes
	Node       uint16 // the sender's number
	Generation uint32 // how often the ring was formed; from 1
	Epoch      uint32 // a digest of the nodes and their boots: see Epoch
}

// DataHeader are the fields of a data message.
type DataHeader struct {
	Common
	Flags    Flags
	Codec    uint8  // wire id of the codec of the payload
	Step     uint8  // which send of the block this is at the sender: 0 its own slice, to 2N-3
	Sequence uint32 // number of the frame on this link
	Request  uint32 // number of the request in its generation, from 0
	Block    uint32 // number of the block in its generation, from 0, over all requests
	Length   uint32 // elements of the whole request
	Slice    uint16 // of the block, 0 to N-1
	Offset   uint16 // of the first element in its slice
	Elements uint16 // in this frame, with padding
}

// AckHeader are the fields of an acknowledgement.
type AckHeader struct {
	Common
	Flags      Flags
	Cumulative uint32 // all frames below have arrived
	Reduce     uint32 // frames of the reduce half may be of blocks below
	Gather     uint32 // frames of the gather half may be of blocks below
	// A request that a host has not handed in although frames for it are there, the node that it is missed at, and how
	// many nodes this has gone through; WaitNode is NoNode when nothing is missed.
	WaitRequest uint32
	WaitNode    uint16
	WaitHops    uint16
}

// HelloHeader are the fields of a hello. All nodes of a ring have the same slices and settings.
type HelloHeader struct {
	Common
	Flags         Flags
	SliceElements uint32
	MTU           uint16
	Window        uint16 // blocks
	Boot          uint64 // of the sender: larger after each start, never 0
	Nodes         uint16 // members in the payload
}

// NoticeHeader are the fields of a notice, which has no payload.
type NoticeHeader struct {
	Common
	Reason  Reason
	Request uint32 // the request that failed first, if one did
	Boot    uint64 // of the failed node, as far as known
	Failed  uint16 // the node that the generation ended for
	Origin  uint16 // the node that noticed; Node is the one that passes it on
}

// Reason is why a generation ended.
type Reason uint8

// The reasons.
const (
	Silent     Reason = 1 // a neighbour has heard nothing of the node for too long
	Restarted  Reason = 2 // the node has another boot than when the generation formed
	Mismatch   Reason = 3 // the node's request, codec or settings are not those of its neighbour
	Deadline   Reason = 4 // a request's deadline has passed at the node that the notice began at, which waited for the named one
	Left       Reason = 5 // the node was stopped
	Superseded Reason = 6 // the node forms a later generation
	numReasons        = 7
)

var reasonNames = [numReasons]string{
	"ok", "is silent", "has restarted", "disagrees about the request or the settings", "was waited for until the deadline", "has left",
	"forms a new ring",
}

// String says it as the end of a sentence that begins with the node.
func (r Reason) String() string {
	if r < numReasons {
		return reasonNames[r]
	}
	return "failed for reason " + strconv.Itoa(int(r))
}

// Member is one node of a hello's payload: 12 bytes, in the order of the ring.
type Member struct {
	Node uint16
	Boot uint64 // 0: not known to the sender
}

// MemberLen is the length of a Member.
const MemberLen = 12

func putCommon(b []byte, k Kind, f Flags, c *Common, payload int) {
	clear(b[:HeaderLen])
	b[0] = Version<<4 | byte(k)
	b[1] = byte(f)
	binary.BigEndian.PutUint16(b[4:], c.Ring)
	binary.BigEndian.PutUint16(b[6:], c.Node)
	binary.BigEndian.PutUint32(b[8:], c.Generation)
	binary.BigEndian.PutUint32(b[12:], c.Epoch)
	binary.BigEndian.PutUint16(b[38:], uint16(payload))
}

// Put writes the header with the payload's length at the start of b and returns HeaderLen.
func (h *DataHeader) Put(b []byte, payload int) int {
	putCommon(b, Data, h.Flags, &h.Common, payload)
	b[2], b[3] = h.Codec, h.Step
	binary.BigEndian.PutUint32(b[16:], h.Sequence)
	binary.BigEndian.PutUint32(b[20:], h.Request)
	binary.BigEndian.PutUint32(b[24:], h.Block)
	binary.BigEndian.PutUint32(b[28:], h.Length)
	binary.BigEndian.PutUint16(b[32:], h.Slice)
	binary.BigEndian.PutUint16(b[34:], h.Offset)
	binary.BigEndian.PutUint16(b[36:], h.Elements)
	return HeaderLen
}

// Put writes the header with the selective part's length at the start of b and returns HeaderLen.
func (h *AckHeader) Put(b []byte, payload int) int {
	putCommon(b, Ack, h.Flags, &h.Common, payload)
	binary.BigEndian.PutUint32(b[16:], h.Cumulative)
	binary.BigEndian.PutUint32(b[20:], h.Reduce)
	binary.BigEndian.PutUint32(b[24:], h.Gather)
	binary.BigEndian.PutUint32(b[28:], h.WaitRequest)
	binary.BigEndian.PutUint16(b[32:], h.WaitNode)
	binary.BigEndian.PutUint16(b[34:], h.WaitHops)
	return HeaderLen
}

// Put writes the header and the members at the start of b and returns the length of both.
func (h *HelloHeader) Put(b []byte, members []Member) int {
	h.Nodes = uint16(len(members))
	n := MemberLen * len(members)
	putCommon(b, Hello, h.Flags, &h.Common, n)
	binary.BigEndian.PutUint32(b[16:], h.SliceElements)
	binary.BigEndian.PutUint16(b[20:], h.MTU)
	binary.BigEndian.PutUint16(b[22:], h.Window)
	binary.BigEndian.PutUint64(b[24:], h.Boot)
	binary.BigEndian.PutUint16(b[32:], h.Nodes)
	for i, m := range members {
		p := b[HeaderLen+i*MemberLen:]
		binary.BigEndian.PutUint16(p, m.Node)
		p[2], p[3] = 0, 0
		binary.BigEndian.PutUint64(p[4:], m.Boot)
	}
	return HeaderLen + n
}

// Put writes the header at the start of b and returns HeaderLen.
func (h *NoticeHeader) Put(b []byte) int {
	putCommon(b, Notice, 0, &h.Common, 0)
	b[2] = byte(h.Reason)
	binary.BigEndian.PutUint32(b[16:], h.Request)
	binary.BigEndian.PutUint64(b[20:], h.Boot)
	binary.BigEndian.PutUint16(b[32:], h.Failed)
	binary.BigEndian.PutUint16(b[34:], h.Origin)
	return HeaderLen
}
