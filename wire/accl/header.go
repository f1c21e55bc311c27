package accl

import "encoding/binary"

const (
	// HeaderLen is the length of a message's header.
	HeaderLen = 64
	// Word is what every datagram's length is a multiple of: the width of the card's data path.
	Word = 64
	// MaxDatagram is the longest UDP payload.
	MaxDatagram = 4096
	// OneDatagram is the most bytes of elements in a message of one datagram.
	OneDatagram = MaxDatagram - HeaderLen
	// TagAny is the tag of every message of a collective. A receiver takes it for whatever tag it waits for.
	TagAny = 0xffffffff
	// BasePort is the UDP port of rank 0 as the card's software sets it; rank r has BasePort + r.
	BasePort = 5500
	// MaxRanks is the most ranks of a communicator: the entries of the card's table of UDP peers, its own included.
	MaxRanks = 16
)

// MsgType is what a message is. Only Eager exists over UDP.
type MsgType uint8

// The message types.
const (
	Eager               MsgType = 0 // elements, for a buffer of the receiver's pool
	RendezvousWrite     MsgType = 1 // elements written straight to memory: no header, never seen here
	RendezvousInit      MsgType = 2 // the receiver tells where to write
	RendezvousWriteDone MsgType = 3 // the sender tells that it has written
)

// Header are the fields of a message.
type Header struct {
	Count   uint32  // bytes of elements in the message
	Tag     uint32  // of the call; TagAny in collectives
	Src     uint32  // rank of the sender
	Seq     uint32  // number of the message from this sender to this receiver; wraps
	Stream  uint32  // 0: for memory; otherwise a stream of the receiver's kernel, not counted by Seq
	Session uint16  // the sender's number for the receiver: its rank, as the card's software sets it. To be ignored
	Type    MsgType // Eager
	Host    uint8   // 0 or 1; rendezvous only
	Address uint64  // rendezvous target; leftovers in eager messages. To be ignored
}

// Put writes the header and returns HeaderLen. It panics if b is shorter than that.
func (h *Header) Put(b []byte) int {
	b = b[:HeaderLen]
	binary.LittleEndian.PutUint32(b[0:], h.Count)
	binary.LittleEndian.PutUint32(b[4:], h.Tag)
	binary.LittleEndian.PutUint32(b[8:], h.Src)
	binary.LittleEndian.PutUint32(b[12:], h.Seq)
	binary.LittleEndian.PutUint32(b[16:], h.Stream)
	binary.LittleEndian.PutUint16(b[20:], h.Session)
	b[22], b[23] = byte(h.Type), h.Host
	binary.LittleEndian.PutUint64(b[24:], h.Address)
	clear(b[32:])
	return HeaderLen
}

// ParseHeader reads the header at the start of a datagram into h. It returns [Short], [NotHeader] when bits that are
// always zero are set, and OK otherwise; what the fields mean together is for a [Receiver] to say.
func ParseHeader(b []byte, h *Header) Fault {
	if len(b) < HeaderLen {
		return Short
	}
	*h = Header{
		Count:   binary.LittleEndian.Uint32(b[0:]),
		Tag:     binary.LittleEndian.Uint32(b[4:]),
		Src:     binary.LittleEndian.Uint32(b[8:]),
		Seq:     binary.LittleEndian.Uint32(b[12:]),
		Stream:  binary.LittleEndian.Uint32(b[16:]),
		Session: binary.LittleEndian.Uint16(b[20:]),
		Type:    MsgType(b[22]),
		Host:    b[23],
		Address: binary.LittleEndian.Uint64(b[24:]),
	}
	var set byte
	for _, v := range b[32:HeaderLen] {
		set |= v
	}
	if set != 0 || h.Host > 1 || h.Type > RendezvousWriteDone {
		return NotHeader
	}
	return OK
}

// Padded is a length rounded up to whole words.
func Padded(n int) int { return (n + Word - 1) &^ (Word - 1) }

// Datagrams is how many datagrams a message of count bytes of elements takes.
func Datagrams(count int) int { return (HeaderLen + count + MaxDatagram - 1) / MaxDatagram }

// Piece says what of a message of count bytes of elements is in its i-th datagram: elements from offset on, size bytes of
// them, in a UDP payload of length bytes. In the first one the header comes before them.
func Piece(count, i int) (offset, size, length int) {
	if i == 0 {
		size = min(count, OneDatagram)
		return 0, size, HeaderLen + Padded(size)
	}
	offset = i*MaxDatagram - HeaderLen
	size = min(count-offset, MaxDatagram)
	return offset, size, Padded(size)
}
