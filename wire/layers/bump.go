package layers

import (
	"encoding/binary"
	"errors"
	"hash/crc32"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"gradnic/wire/bump"
	"gradnic/wire/inet"
)

// Bump is a frame between two NICs with a bump in the wire, behind Ethernet's header. Its payload are the items, or the
// body of a control message. Bytes of Ethernet's padding are not in it.
type Bump struct {
	layers.BaseLayer
	Kind     bump.Kind
	ItemsN   uint8  // number of items
	Length   uint16 // of the body
	Boot     uint32
	Sequence uint32
	Seed     uint32
	Checksum uint32 // CRC-32C over the Ethernet addresses too: see Verify and SetLinkLayerForChecksum

	ethernet *layers.Ethernet
}

// LayerType is LayerTypeBump.
func (u *Bump) LayerType() gopacket.LayerType { return LayerTypeBump }

// CanDecode is LayerTypeBump.
func (u *Bump) CanDecode() gopacket.LayerClass { return LayerTypeBump }

// NextLayerType is the body, as bytes.
func (u *Bump) NextLayerType() gopacket.LayerType { return gopacket.LayerTypePayload }

// header are the fields as wire/bump has them.
func (u *Bump) header() bump.Header {
	h := bump.Header{
		Kind: u.Kind, Items: int(u.ItemsN), Length: int(u.Length), Boot: u.Boot, Sequence: u.Sequence, Seed: u.Seed,
	}
	if u.ethernet != nil {
		copy(h.Dst[:], u.ethernet.DstMAC)
		copy(h.Src[:], u.ethernet.SrcMAC)
	}
	return h
}

// Items reads the host frames that a data frame carries.
func (u *Bump) Items() ([]bump.Item, error) {
	h := u.header()
	if u.Kind != bump.Data {
		return nil, nil
	}
	r := bump.NewReader(u.Payload, &h)
	var items []bump.Item
	for {
		var it bump.Item
		more, f := r.Next(&it)
		if f != bump.OK {
			return items, errors.New(f.String())
		}
		if !more {
			return items, nil
		}
		items = append(items, it)
	}
}

// Control is the body of a control message; ok is false for data, and for a body that is none.
func (u *Bump) Control() (c bump.Control, ok bool) {
	if u.Kind == bump.Data {
		return c, false
	}
	f := bump.ParseControl(u.Payload, &c)
	return c, f == bump.OK
}

// Verify reports what wire/bump says of the frame with this Ethernet header, its checksum included.
func (u *Bump) Verify(e *layers.Ethernet) bump.Fault {
	frame := append(append(append([]byte{}, e.Contents...), u.Contents...), u.Payload...)
	var h bump.Header
	_, f := bump.Open(frame, &h)
	return f
}

// SetLinkLayerForChecksum says between which hosts the frame goes, which SerializeTo needs to compute the checksum.
func (u *Bump) SetLinkLayerForChecksum(e *layers.Ethernet) { u.ethernet = e }

// DecodeFromBytes reads what follows an Ethernet header. It refuses what wire/bump refuses but for a wrong checksum,
// which covers the Ethernet header.
func (u *Bump) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	// wire/bump wants the frame from its start. With the checksum made to fit, the rest is judged.
	if len(data) < bump.HeaderLen {
		return refuse(bump.Short, df)
	}
	length := int(binary.BigEndian.Uint16(data[2:]))
	if len(data) < bump.HeaderLen+length {
		return refuse(bump.Short, df)
	}
	end := bump.HeaderLen + length
	frame := make([]byte, inet.EthernetLen, inet.EthernetLen+end)
	binary.BigEndian.PutUint16(frame[12:], bump.EtherType)
	frame = append(frame, data[:end]...)
	setChecksum(frame)
	var h bump.Header
	if _, f := bump.Open(frame, &h); f != bump.OK {
		return refuse(f, df)
	}
	*u = Bump{
		BaseLayer: layers.BaseLayer{Contents: data[:bump.HeaderLen], Payload: data[bump.HeaderLen:end:end]},
		Kind:      h.Kind, ItemsN: uint8(h.Items), Length: uint16(h.Length), Boot: h.Boot, Sequence: h.Sequence, Seed: h.Seed,
		Checksum: binary.BigEndian.Uint32(data[16:]),
	}
	return nil
}

// setChecksum writes the checksum of a whole frame.
func setChecksum(frame []byte) {
	field := frame[bump.BodyOffset-4 : bump.BodyOffset]
	clear(field)
	binary.BigEndian.PutUint32(field, crc32.Checksum(frame, crc32.MakeTable(crc32.Castagnoli)))
}

// SerializeTo writes the header before the body. With FixLengths the length is the body's. With ComputeChecksums the
// checksum is made for the Ethernet header of SetLinkLayerForChecksum.
func (u *Bump) SerializeTo(b gopacket.SerializeBuffer, opts gopacket.SerializeOptions) error {
	h, payload, err := put(b, bump.HeaderLen)
	if err != nil {
		return err
	}
	if !opts.FixLengths {
		payload = int(u.Length)
	}
	h[0] = bump.Version<<4 | byte(u.Kind)&15
	h[1] = u.ItemsN
	binary.BigEndian.PutUint16(h[2:], uint16(payload))
	binary.BigEndian.PutUint32(h[4:], u.Boot)
	binary.BigEndian.PutUint32(h[8:], u.Sequence)
	binary.BigEndian.PutUint32(h[12:], u.Seed)
	binary.BigEndian.PutUint32(h[16:], u.Checksum)
	if !opts.ComputeChecksums {
		return nil
	}
	if u.ethernet == nil {
		return errors.New("bump: the checksum covers the Ethernet addresses: call SetLinkLayerForChecksum first")
	}
	hdr := u.header()
	frame := make([]byte, inet.EthernetLen, inet.EthernetLen+len(b.Bytes()))
	inet.PutEthernet(frame, hdr.Dst, hdr.Src, bump.EtherType)
	frame = append(frame, b.Bytes()...)
	setChecksum(frame)
	copy(h[16:], frame[bump.BodyOffset-4:bump.BodyOffset])
	return nil
}
