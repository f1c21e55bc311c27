package bump

import (
	"encoding/binary"
	"fmt"
	"strings"

	"gradnic/wire/inet"
)

// Type is the type of the elements in a payload.
type Type uint8

// The types. Words are bytes for lossless codecs.
const (
	Float32 Type = iota
	Float16
	BFloat16
	Word32
	Word16

	numTypes
)

var typeNames = [numTypes]string{"float32", "float16", "bfloat16", "word32", "word16"}

// String is the type's name.
func (t Type) String() string {
	if t < numTypes {
		return typeNames[t]
	}
	return fmt.Sprintf("type %d", uint8(t))
}

// ParseType returns the type of this name.
func ParseType(s string) (Type, error) {
	for i, n := range typeNames {
		if n == s {
			return Type(i), nil
		}
	}
	return 0, fmt.Errorf("element type %q: legal are %s", s, strings.Join(typeNames[:], ", "))
}

// Size is the bytes of an element, 2 or 4.
func (t Type) Size() int {
	if t == Float32 || t == Word32 {
		return 4
	}
	return 2
}

// Float reports whether elements have values that a lossy codec can be near to.
func (t Type) Float() bool { return t <= BFloat16 }

// Lengths of an item and its parts, in bytes.
const (
	// ItemLen is what every item starts with.
	ItemLen = 12
	// AlikeLen is an item's headers when they are like those of the item before.
	AlikeLen = 2
	// UDPHead and MaxHead are an item's IPv4 and transport headers when they are whole: UDP's, and the longest TCP's.
	UDPHead = inet.IPv4Len + inet.UDPLen
	MaxHead = inet.IPv4Len + 60
	// wholeLen is what precedes whole headers.
	wholeLen = 2

	protoTCP  = 6
	tcpLen    = 20
	formAlike = 0x80
	formOrder = 0x40
	formZero  = 0x30
	formType  = 0x0f
)

// Item is one host frame in a frame between NICs. Offsets in the item:
//
//	0   flow, 2 bytes
//	2   size of what follows the first 12 bytes, 2 bytes
//	4   sequence, 4 bytes
//	8   form: 0x80 headers like the item's before, 0x40 big endian, 0x0f element type
//	9   codec's wire id
//	10  payload, 2 bytes
//	12  whole headers: offset, 2 bytes; IPv4 header, 20 bytes; UDP or TCP header
//	    headers like before: the IPv4 identification, 2 bytes
//	    then the bytes before the elements, those after the last whole element, and the elements encoded
type Item struct {
	Flow     uint16 // the sender's number of the flow
	Sequence uint32 // counts the flow's items
	Codec    uint8
	Type     Type
	// BigEndian is the order of the elements' bytes in the payload.
	BigEndian bool
	// Alike says that the headers are those of the item before but for lengths, identification and checksums, and
	// that Offset is the same.
	Alike bool
	// Payload is the length of the host's UDP or TCP payload, Offset where in it the elements start.
	Payload, Offset int
	// Head are the IPv4 and transport headers as the host sent them. From a Reader, with Alike, they are those of the
	// last item that was not; ID is then what differs.
	Head []byte
	ID   uint16
	// Raw are the bytes of the payload before the elements, and those after the last whole element; Encoded is what
	// the codec made of the elements. They are set by a Reader only.
	Raw, Encoded []byte
}

// Elements is the number of whole elements of the payload.
func (it *Item) Elements() int { return (it.Payload - it.Offset) / it.Type.Size() }

// RawLen is the number of bytes of the payload that are no whole element.
func (it *Item) RawLen() int { return it.Payload - it.Elements()*it.Type.Size() }

// UDP reports whether the host's frame is UDP; else it is TCP.
func (it *Item) UDP() bool { return it.Head[9] == inet.ProtoUDP }

// FrameLen is the length of the host's frame.
func (it *Item) FrameLen() int { return inet.EthernetLen + len(it.Head) + it.Payload }

// HeadLen is how many bytes PutItem writes.
func (it *Item) HeadLen() int {
	if it.Alike {
		return ItemLen + AlikeLen
	}
	return ItemLen + wholeLen + len(it.Head)
}

// PutItem writes an item up to its headers and returns how many bytes that took, HeadLen. The caller appends raw bytes and
// elements and calls SetItemSize.
func PutItem(b []byte, it *Item) int {
	n := it.HeadLen()
	_ = b[n-1]
	binary.BigEndian.PutUint16(b, it.Flow)
	binary.BigEndian.PutUint32(b[4:], it.Sequence)
	form := byte(it.Type)
	if it.BigEndian {
		form |= formOrder
	}
	if it.Alike {
		form |= formAlike
		binary.BigEndian.PutUint16(b[ItemLen:], it.ID)
	} else {
		binary.BigEndian.PutUint16(b[ItemLen:], uint16(it.Offset))
		copy(b[ItemLen+wholeLen:], it.Head)
	}
	b[8], b[9] = form, it.Codec
	binary.BigEndian.PutUint16(b[10:], uint16(it.Payload))
	return n
}

// SetItemSize says that the item at the start of b is n bytes long, all in all.
func SetItemSize(b []byte, n int) { binary.BigEndian.PutUint16(b[2:], uint16(n-ItemLen)) }

// Reader walks the items of a body.
type Reader struct {
	left   []byte
	items  int
	head   []byte // of the last item with whole headers; nil before the first
	offset int
}

// NewReader starts at the first of the items of a body that Open returned with h.
func NewReader(body []byte, h *Header) Reader { return Reader{left: body, items: h.Items} }

// Next reads the next item; more is false when there is none, and after a fault, behind which nothing can be found. The
// slices of it alias the body.
func (r *Reader) Next(it *Item) (more bool, f Fault) {
	if r.items == 0 {
		if len(r.left) != 0 {
			r.left = nil
			return false, BadLength
		}
		return false, OK
	}
	r.items--
	if f := r.next(it); f != OK {
		r.items, r.left = 0, nil
		return false, f
	}
	return true, OK
}

func (r *Reader) next(it *Item) Fault {
	b := r.left
	if len(b) < ItemLen {
		return BadLength
	}
	size := int(binary.BigEndian.Uint16(b[2:]))
	if len(b) < ItemLen+size {
		return BadLength
	}
	b, r.left = b[:ItemLen+size:ItemLen+size], b[ItemLen+size:]
	form := b[8]
	*it = Item{
		Flow: binary.BigEndian.Uint16(b), Sequence: binary.BigEndian.Uint32(b[4:]), Codec: b[9],
		Type: Type(form & formType), BigEndian: form&formOrder != 0, Alike: form&formAlike != 0,
		Payload: int(binary.BigEndian.Uint16(b[10:])),
	}
	if form&formZero != 0 || it.Type >= numTypes {
		return BadItem
	}
	b = b[ItemLen:]
	if it.Alike {
		if r.head == nil || len(b) < AlikeLen {
			return BadItem
		}
		if r.head[9] != inet.ProtoUDP || inet.IPv4Len+inet.UDPLen+it.Payload > 0xffff {
			return BadHeader
		}
		it.ID, it.Head, it.Offset = binary.BigEndian.Uint16(b), r.head, r.offset
		b = b[AlikeLen:]
	} else {
		if len(b) < wholeLen {
			return BadItem
		}
		it.Offset = int(binary.BigEndian.Uint16(b))
		b = b[wholeLen:]
		n := headLen(b, it.Payload)
		if n == 0 {
			return BadHeader
		}
		it.Head, b = b[:n:n], b[n:]
		it.ID = binary.BigEndian.Uint16(it.Head[4:])
		r.head, r.offset = it.Head, it.Offset
	}
	if it.Offset > it.Payload {
		return BadItem
	}
	raw := it.RawLen()
	if len(b) < raw {
		return BadItem
	}
	it.Raw, it.Encoded = b[:raw:raw], b[raw:]
	return OK
}

// headLen is the length of the IPv4 and transport headers at the start of b when they are right for a payload of that
// length, and 0 when they are not: no options and no fragment of IPv4, its checksum right, UDP or TCP, lengths that agree.
func headLen(b []byte, payload int) int {
	if len(b) < UDPHead || b[0] != 0x45 || binary.BigEndian.Uint16(b[6:])&0x3fff != 0 || inet.Checksum(b[:inet.IPv4Len]) != 0 {
		return 0
	}
	n := UDPHead
	switch b[9] {
	case inet.ProtoUDP:
		if int(binary.BigEndian.Uint16(b[inet.IPv4Len+4:])) != inet.UDPLen+payload {
			return 0
		}
	case protoTCP:
		if len(b) < inet.IPv4Len+tcpLen {
			return 0
		}
		n = inet.IPv4Len + int(b[inet.IPv4Len+12]>>4)*4
		if n < inet.IPv4Len+tcpLen || len(b) < n {
			return 0
		}
	default:
		return 0
	}
	if int(binary.BigEndian.Uint16(b[2:])) != n+payload {
		return 0
	}
	return n
}

// Head returns the IPv4 and transport headers of a host's frame, as an item carries them, and the payload. ok is false for
// a frame that no item can carry exactly: not IPv4 with UDP or TCP, with options or in fragments, padded, or with
// a header that contradicts itself. The transport checksum is not looked at.
func Head(frame []byte) (head, payload []byte, ok bool) {
	if len(frame) < inet.EthernetLen+UDPHead || binary.BigEndian.Uint16(frame[12:]) != inet.EtherTypeIPv4 {
		return nil, nil, false
	}
	b := frame[inet.EthernetLen:]
	if int(binary.BigEndian.Uint16(b[2:])) != len(b) {
		return nil, nil, false
	}
	n := UDPHead
	if b[9] == protoTCP {
		if len(b) < inet.IPv4Len+tcpLen {
			return nil, nil, false
		}
		n = inet.IPv4Len + int(b[inet.IPv4Len+12]>>4)*4
	}
	if n > len(b) || headLen(b, len(b)-n) != n {
		return nil, nil, false
	}
	return b[:n:n], b[n:], true
}

// Alike reports whether an item whose headers are head can be sent as like the item whose headers are before: everything
// but lengths, identification and checksums is the same, the checksums of IPv4 are the ones that [PutHead] makes, and
// UDP has a checksum in both or in neither.
func Alike(head, before []byte) bool {
	if len(head) != UDPHead || len(before) != UDPHead {
		return false
	}
	const ports = inet.IPv4Len
	return binary.BigEndian.Uint16(head) == binary.BigEndian.Uint16(before) &&
		binary.BigEndian.Uint32(head[6:]) == binary.BigEndian.Uint32(before[6:]) && // flags, TTL, protocol
		binary.BigEndian.Uint64(head[12:]) == binary.BigEndian.Uint64(before[12:]) &&
		binary.BigEndian.Uint32(head[ports:]) == binary.BigEndian.Uint32(before[ports:]) &&
		(binary.BigEndian.Uint16(head[ports+6:]) == 0) == (binary.BigEndian.Uint16(before[ports+6:]) == 0) &&
		head[9] == inet.ProtoUDP && (head[10] != 0xff || head[11] != 0xff)
}

// PutHead writes the IPv4 and transport headers of the host's frame to b and returns their length. For a UDP header with
// a checksum the field is the item's, or that of the item before; the payload decides whether it holds.
func PutHead(b []byte, it *Item) int {
	n := copy(b, it.Head)
	if it.Alike {
		binary.BigEndian.PutUint16(b[2:], uint16(n+it.Payload))
		binary.BigEndian.PutUint16(b[4:], it.ID)
		inet.SetIPv4Checksum(b)
		binary.BigEndian.PutUint16(b[inet.IPv4Len+4:], uint16(inet.UDPLen+it.Payload))
	}
	return n
}
