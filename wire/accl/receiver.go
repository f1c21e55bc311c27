package accl

// Receiver puts the datagrams of one peer together again. It is what the card's depacketizer does, and stricter: a
// datagram must be exactly as long as its place in the message demands, headers must make sense, and sequence numbers
// must follow each other, since that is all there is to find a loss by. See the package's comment for what remains.
type Receiver struct {
	src     uint32 // the peer's rank
	segment int    // most bytes of elements in a message
	next    uint32 // sequence number of the next message

	header Header // of the message that is under way
	offset int    // bytes of it that are here
	left   int    // bytes of it that are to come
	ended  Fault
}

// NewReceiver starts a session with a peer. segment is the size of the receiver's buffers: the most bytes of elements in
// one message.
func NewReceiver(peer int, segment int) Receiver {
	return Receiver{src: uint32(peer), segment: segment}
}

// Part is what a datagram brought.
type Part struct {
	Header *Header // of its message; valid until the next datagram
	Offset int     // of Data in the message's elements
	Data   []byte  // elements, without padding; aliases the datagram
	Last   bool    // the message is complete
}

// Take reads one UDP payload. Unless the fault is OK there is no part. A fault that Ends keeps the receiver from taking
// anything more: OutOfStep from then on.
func (r *Receiver) Take(b []byte) (p Part, f Fault) {
	if r.ended != OK {
		return p, OutOfStep
	}
	if f = r.take(b, &p); f.Ends() {
		r.ended = f
	}
	return p, f
}

func (r *Receiver) take(b []byte, p *Part) Fault {
	switch {
	case len(b) > MaxDatagram:
		return TooLong
	case len(b) == 0 || len(b)%Word != 0:
		return Ragged
	}
	data := b
	if r.left == 0 {
		if f := r.open(b); f != OK {
			return f
		}
		data = b[HeaderLen:]
	} else if r.inside(b) {
		return HeaderFirst
	}
	size := min(r.left, MaxDatagram-(len(b)-len(data)))
	if len(data) != Padded(size) {
		return WrongPiece
	}
	r.left -= size
	if r.header.Stream != 0 {
		return ToStream
	}
	*p = Part{Header: &r.header, Offset: r.offset, Data: data[:size], Last: r.left == 0}
	r.offset += size
	if p.Last {
		r.next++
	}
	return OK
}

// open takes the header of a message.
func (r *Receiver) open(b []byte) Fault {
	var h Header
	if f := ParseHeader(b, &h); f != OK {
		return f
	}
	switch {
	case h.Type != Eager:
		return Rendezvous
	case h.Src != r.src:
		return WrongRank
	case h.Count == 0:
		return Empty
	}
	if h.Stream == 0 {
		switch ahead := int32(h.Seq - r.next); {
		case ahead > 0:
			return Ahead
		case ahead < 0:
			// All of it must be here, or its rest would be taken for headers.
			if int(min(h.Count, MaxDatagram)) <= OneDatagram && len(b) == HeaderLen+Padded(int(h.Count)) {
				return Behind
			}
			return WrongPiece
		case int64(h.Count) > int64(r.segment):
			return OverSegment
		}
	} else if h.Count > 1<<30 {
		return OverSegment
	}
	r.header, r.offset, r.left = h, 0, int(h.Count)
	return OK
}

// inside reports whether a datagram in the middle of a message is the first of another one. Elements that look exactly
// like a header of this peer are taken for one: an error, and never a wrong result.
func (r *Receiver) inside(b []byte) bool {
	const window = 1 << 16 // messages that can be under way at once
	var h Header
	if ParseHeader(b, &h) != OK || h.Type != Eager || h.Src != r.src || h.Count == 0 || h.Stream != 0 {
		return false
	}
	if d := int32(h.Seq - r.next); d < -window || d > window {
		return false
	}
	_, _, length := Piece(int(h.Count), 0)
	return length == len(b)
}

// Drop ends the session from outside: the message that is under way, or was the last, could not be kept.
func (r *Receiver) Drop(f Fault) { r.ended, r.next = f, r.header.Seq }

// Ended is the fault that ended the session, OK while it lives.
func (r *Receiver) Ended() Fault { return r.ended }

// Next is the sequence number of the message that is under way, or of the next one.
func (r *Receiver) Next() uint32 { return r.next }

// Partial is how many bytes of elements are still missing of the message that is under way, 0 between messages.
func (r *Receiver) Partial() int { return r.left }
