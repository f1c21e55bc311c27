package layers

import (
	"errors"
	"net/netip"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"gradnic/wire/accl"
)

// ACCL is the first datagram of a message of an ACCL card. Its payload are the message's first elements, and padding to
// whole words of 64 bytes.
type ACCL struct {
	layers.BaseLayer
	accl.Header
}

// LayerType is LayerTypeACCL.
func (a *ACCL) LayerType() gopacket.LayerType { return LayerTypeACCL }

// CanDecode is LayerTypeACCL.
func (a *ACCL) CanDecode() gopacket.LayerClass { return LayerTypeACCL }

// NextLayerType is the payload, as bytes.
func (a *ACCL) NextLayerType() gopacket.LayerType { return gopacket.LayerTypePayload }

// Elements are the bytes of elements in this datagram, without padding.
func (a *ACCL) Elements() []byte {
	return a.Payload[:min(uint64(len(a.Payload)), uint64(a.Count))]
}

// DecodeFromBytes reads a UDP payload that begins with a header. What does not is another datagram of a message, or
// damaged: a header's last 32 bytes are zero and its count goes with the datagram's length, so elements are rarely taken
// for one.
func (a *ACCL) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	var h accl.Header
	if f := accl.ParseHeader(data, &h); f != accl.OK {
		return refuse(f, df)
	}
	if h.Count == 0 {
		return refuse(accl.Empty, df)
	}
	if _, _, length := accl.Piece(int(h.Count), 0); len(data) != length {
		if len(data) < length {
			df.SetTruncated()
		}
		return refuse(accl.WrongPiece, df)
	}
	*a = ACCL{BaseLayer: layers.BaseLayer{Contents: data[:accl.HeaderLen], Payload: data[accl.HeaderLen:]}, Header: h}
	return nil
}

// SerializeTo writes the header before the payload. With FixLengths the payload is padded to whole words; Count is what
// it says in any case, since a message can be longer than its first datagram.
func (a *ACCL) SerializeTo(b gopacket.SerializeBuffer, opts gopacket.SerializeOptions) error {
	if n := len(b.Bytes()); opts.FixLengths && n < accl.Padded(n) {
		tail, err := b.AppendBytes(accl.Padded(n) - n)
		if err != nil {
			return err
		}
		clear(tail)
	}
	h, _, err := put(b, accl.HeaderLen)
	if err != nil {
		return err
	}
	a.Header.Put(h)
	return nil
}

// ACCLPart is what one datagram is in its message.
type ACCLPart struct {
	Header   accl.Header // of the message
	First    bool        // the datagram begins with the header
	Last     bool        // the message is complete with it
	Offset   int         // of Elements in the message
	Elements []byte      // without padding; aliases the datagram
}

// ACCLSessions follows the messages of all peers in a capture. Unlike accl.Receiver, which serves a rank that must not
// take anything wrong, it needs not know the ranks, begins in the middle, and goes on after a fault. The zero value is
// ready.
type ACCLSessions struct {
	left map[[2]netip.AddrPort]session
}

type session struct {
	header accl.Header
	piece  int // datagrams of the message that were here
}

// Datagram reads the next datagram from one address to another: a packet's, in the order of the capture. An error begins
// with the name of the drop reason, and ends the message that was open: the next datagram is tried as a first one.
func (s *ACCLSessions) Datagram(from, to netip.AddrPort, payload []byte) (ACCLPart, error) {
	if s.left == nil {
		s.left = map[[2]netip.AddrPort]session{}
	}
	key := [2]netip.AddrPort{from, to}
	open, inside := s.left[key]
	delete(s.left, key)
	if !inside {
		if f := accl.ParseHeader(payload, &open.header); f != accl.OK {
			return ACCLPart{}, errors.New(f.String())
		}
		if open.header.Count == 0 {
			return ACCLPart{}, errors.New(accl.Empty.String())
		}
	}
	count := int(open.header.Count)
	offset, size, length := accl.Piece(count, open.piece)
	if len(payload) != length {
		return ACCLPart{}, errors.New(accl.WrongPiece.String())
	}
	part := ACCLPart{Header: open.header, First: !inside, Last: offset+size >= count, Offset: offset, Elements: payload[:size]}
	if part.First {
		part.Elements = payload[accl.HeaderLen:][:size]
	}
	if !part.Last {
		open.piece++
		s.left[key] = open
	}
	return part, nil
}
