package bump

import (
	"encoding/binary"
	"hash/crc32"
	"strconv"

	"gradnic/wire/inet"
)

// EtherType is that of all frames between two NICs: the second of IEEE 802's local experimental ones (IEEE 802, 9.2.4).
const EtherType = 0x88b6

// Version is the one version there is.
const Version = 1

// Lengths in bytes.
const (
	// HeaderLen is the header after Ethernet's.
	HeaderLen = 20
	// BodyOffset is where the items, or a control message's body, start in a frame.
	BodyOffset = inet.EthernetLen + HeaderLen
	// ControlLen is the body of a control message.
	ControlLen = 20
	// ControlFrameLen is a control message's frame, padded to Ethernet's minimum.
	ControlFrameLen = 60
)

// MaxItems is the most items of a frame.
const MaxItems = 255

// Kind is what a frame is.
type Kind uint8

// The kinds.
const (
	Data   Kind = 1 // items
	Hello  Kind = 2 // is there a NIC before the station that this is addressed to?
	Answer Kind = 3 // yes
	Bye    Kind = 4 // the NIC before the station that this comes from goes away

	firstKind, lastKind = Data, Bye
)

var kindNames = [...]string{Data: "data", Hello: "hello", Answer: "answer", Bye: "bye"}

// String is the kind's name.
func (k Kind) String() string {
	if k >= firstKind && k <= lastKind {
		return kindNames[k]
	}
	return "kind " + strconv.Itoa(int(k))
}

// Header are the fields of a frame's header. Offsets in the frame:
//
//	14  version (high nibble), kind (low nibble)
//	15  number of items; 0 in control messages
//	16  length of the body, 2 bytes; what follows is Ethernet's padding
//	18  boot, 4 bytes
//	22  sequence, 4 bytes
//	26  seed, 4 bytes
//	30  CRC-32C of the frame up to the body's end with these 4 bytes 0
type Header struct {
	Dst, Src inet.MAC // of the hosts
	Kind     Kind
	Items    int
	Length   int // of the body
	// Boot is the sender's life: a random number, not 0, that it drew when it started.
	Boot uint32
	// Sequence counts the data frames from Src to Dst in this life, from 0 on. A hello has a number of its own, which
	// its answer repeats.
	Sequence uint32
	// Seed is the key of the random numbers of stochastic codecs.
	Seed uint32
}

// IsBump reports whether a frame has the EtherType.
func IsBump(frame []byte) bool {
	return len(frame) >= inet.EthernetLen && binary.BigEndian.Uint16(frame[12:14]) == EtherType
}

// castagnoli is never written after this.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// zeros stand in for the field of the checksum.
var zeros [4]byte

const crcOffset = 30

func checksum(frame []byte) uint32 {
	c := crc32.Update(0, castagnoli, frame[:crcOffset])
	c = crc32.Update(c, castagnoli, zeros[:])
	return crc32.Update(c, castagnoli, frame[BodyOffset:])
}

// Seal writes the header of a frame whose body is in place, checksum included. The frame must end with the body, whose
// length is taken from it: h.Length is not used. It panics when the frame is shorter than a header.
func Seal(frame []byte, h *Header) {
	_ = frame[BodyOffset-1]
	inet.PutEthernet(frame, h.Dst, h.Src, EtherType)
	frame[14] = Version<<4 | byte(h.Kind)
	frame[15] = byte(h.Items)
	binary.BigEndian.PutUint16(frame[16:], uint16(len(frame)-BodyOffset))
	binary.BigEndian.PutUint32(frame[18:], h.Boot)
	binary.BigEndian.PutUint32(frame[22:], h.Sequence)
	binary.BigEndian.PutUint32(frame[26:], h.Seed)
	binary.BigEndian.PutUint32(frame[crcOffset:], checksum(frame))
}

// Open reads and checks the header of a frame and returns its body, which aliases the frame. The items are not looked at.
func Open(frame []byte, h *Header) (body []byte, f Fault) {
	*h = Header{}
	if len(frame) < BodyOffset {
		return nil, Short
	}
	if frame[14]>>4 != Version {
		return nil, BadVersion
	}
	h.Dst, h.Src = inet.MAC(frame[0:6]), inet.MAC(frame[6:12])
	h.Kind, h.Items = Kind(frame[14]&15), int(frame[15])
	h.Length = int(binary.BigEndian.Uint16(frame[16:]))
	h.Boot = binary.BigEndian.Uint32(frame[18:])
	h.Sequence = binary.BigEndian.Uint32(frame[22:])
	h.Seed = binary.BigEndian.Uint32(frame[26:])
	switch {
	case h.Kind < firstKind || h.Kind > lastKind || h.Boot == 0:
		return nil, BadKind
	case len(frame) < BodyOffset+h.Length:
		return nil, Short
	case (h.Kind == Data) != (h.Items > 0) || h.Kind != Data && h.Length != ControlLen:
		return nil, BadLength
	}
	frame = frame[:BodyOffset+h.Length]
	if checksum(frame) != binary.BigEndian.Uint32(frame[crcOffset:]) {
		return nil, BadChecksum
	}
	return frame[BodyOffset:], OK
}

// Control is the body of a hello, an answer or a bye. Offsets in the body:
//
//	0   to, 4 bytes
//	4   longest, 2 bytes
//	6   reserved, 2 bytes, 0
//	8   codecs, 8 bytes
//	16  IPv4 address of the station that the frame is addressed to, or 0.0.0.0
type Control struct {
	To      uint32 // an answer's: the life whose hello it answers; else 0
	Longest int    // the longest frame that the sender takes from the wire, Ethernet header included, up to 65535
	Codecs  uint64 // bit i: the sender decodes the codec with wire id i
	Station inet.Addr
}

// PutControl writes a whole control message, ControlFrameLen bytes, and returns that length.
func PutControl(frame []byte, h *Header, c *Control) int {
	frame = frame[:ControlFrameLen]
	clear(frame[BodyOffset:])
	b := frame[BodyOffset:]
	binary.BigEndian.PutUint32(b, c.To)
	binary.BigEndian.PutUint16(b[4:], uint16(c.Longest))
	binary.BigEndian.PutUint64(b[8:], c.Codecs)
	copy(b[16:], c.Station[:])
	Seal(frame[:BodyOffset+ControlLen], h)
	return ControlFrameLen
}

// ParseControl reads the body of a control message that Open has returned.
func ParseControl(body []byte, c *Control) Fault {
	*c = Control{}
	if len(body) != ControlLen {
		return BadLength
	}
	if binary.BigEndian.Uint16(body[6:]) != 0 {
		return BadKind
	}
	c.To = binary.BigEndian.Uint32(body)
	c.Longest = int(binary.BigEndian.Uint16(body[4:]))
	c.Codecs = binary.BigEndian.Uint64(body[8:])
	c.Station = inet.Addr(body[16:20])
	return OK
}
