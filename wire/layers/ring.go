package layers

import (
	"fmt"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"gradnic/wire/ring"
)

// Ring is a message of the ring of NICs. Kind says which of the headers below is set. The payload is an encoded part of
// a slice, or a selective acknowledgement; a hello's members are part of the layer and no payload.
type Ring struct {
	layers.BaseLayer
	Kind    ring.Kind
	Length  uint16 // bytes of payload, or of members
	Data    ring.DataHeader
	Ack     ring.AckHeader
	Hello   ring.HelloHeader
	Members []ring.Member // of a hello
	Notice  ring.NoticeHeader
}

// LayerType is LayerTypeRing.
func (r *Ring) LayerType() gopacket.LayerType { return LayerTypeRing }

// CanDecode is LayerTypeRing.
func (r *Ring) CanDecode() gopacket.LayerClass { return LayerTypeRing }

// NextLayerType is the payload, as bytes; there is none in a hello, a notice, and an acknowledgement of nothing beyond.
func (r *Ring) NextLayerType() gopacket.LayerType {
	if len(r.Payload) == 0 {
		return gopacket.LayerTypeZero
	}
	return gopacket.LayerTypePayload
}

// DecodeFromBytes reads a UDP payload. It refuses what wire/ring refuses.
func (r *Ring) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	v, f := ring.Validate(data)
	if f != ring.OK {
		return refuse(f, df)
	}
	*r = Ring{
		BaseLayer: layers.BaseLayer{Contents: v[:ring.HeaderLen], Payload: v.Payload()},
		Kind:      v.Kind(), Length: uint16(len(v.Payload())), Members: r.Members[:0],
	}
	switch r.Kind {
	case ring.Data:
		r.Data = v.Data()
	case ring.Ack:
		r.Ack = v.Ack()
	case ring.Hello:
		r.Hello = v.Hello()
		for i := range int(r.Hello.Nodes) {
			r.Members = append(r.Members, v.Member(i))
		}
		r.Contents, r.Payload = v, nil
	case ring.Notice:
		r.Notice = v.Notice()
	}
	return nil
}

// SerializeTo writes the header before the payload. With FixLengths the length is the payload's. A hello's members, and
// their number, are those of Members.
func (r *Ring) SerializeTo(b gopacket.SerializeBuffer, opts gopacket.SerializeOptions) error {
	n := ring.HeaderLen
	if r.Kind == ring.Hello {
		n += len(r.Members) * ring.MemberLen
	}
	h, payload, err := put(b, n)
	if err != nil {
		return err
	}
	clear(h)
	if !opts.FixLengths {
		payload = int(r.Length)
	}
	switch r.Kind {
	case ring.Data:
		r.Data.Put(h, payload)
	case ring.Ack:
		r.Ack.Put(h, payload)
	case ring.Hello:
		r.Hello.Put(h, r.Members)
	case ring.Notice:
		r.Notice.Put(h)
	default:
		return fmt.Errorf("ring: %v has no header", r.Kind)
	}
	return nil
}
