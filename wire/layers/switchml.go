package layers

import (
	"encoding/binary"
	"fmt"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"gradnic/wire/switchml"
)

// SwitchML is a SwitchML message. Its payload are the values, int32 big endian.
type SwitchML struct {
	layers.BaseLayer
	Unused    bool // bit 3 of the first byte
	Size      switchml.SizeCode
	Job       uint8
	TSI       [4]byte // the client's packet number, in the client's byte order
	PoolIndex uint16  // bit 15 the set, bit 14 unused, then the slot
	E0, E1    int8    // exponents
}

// LayerType is LayerTypeSwitchML.
func (s *SwitchML) LayerType() gopacket.LayerType { return LayerTypeSwitchML }

// CanDecode is LayerTypeSwitchML.
func (s *SwitchML) CanDecode() gopacket.LayerClass { return LayerTypeSwitchML }

// NextLayerType is the values, as bytes.
func (s *SwitchML) NextLayerType() gopacket.LayerType { return gopacket.LayerTypePayload }

// Set is the version of the slot, 0 or 1.
func (s *SwitchML) Set() int { return int(s.PoolIndex >> 15) }

// Slot is the slot's index, 0..16383.
func (s *SwitchML) Slot() int { return int(s.PoolIndex & (switchml.Slots - 1)) }

// Values are the values of the payload.
func (s *SwitchML) Values() []int32 {
	v := make([]int32, len(s.Payload)/4)
	for i := range v {
		v[i] = int32(binary.BigEndian.Uint32(s.Payload[4*i:]))
	}
	return v
}

// DecodeFromBytes reads a UDP payload. It refuses what wire/switchml refuses.
func (s *SwitchML) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	v, f := switchml.Validate(data)
	if f != switchml.OK {
		return refuse(f, df)
	}
	*s = SwitchML{
		BaseLayer: layers.BaseLayer{Contents: v[:switchml.HeaderLen], Payload: v.Values()},
		Unused:    v[0]&8 != 0, Size: v.SizeCode(), Job: v.Job(), TSI: v.TSI(), PoolIndex: v.PoolIndex(),
	}
	s.E0, s.E1 = v.Exponents()
	return nil
}

// SerializeTo writes the header before the values. With FixLengths the size is that of the values.
func (s *SwitchML) SerializeTo(b gopacket.SerializeBuffer, opts gopacket.SerializeOptions) error {
	h, payload, err := put(b, switchml.HeaderLen)
	if err != nil {
		return err
	}
	size := s.Size
	if opts.FixLengths {
		var ok bool
		if size, ok = switchml.SizeOf(payload / 4); !ok || payload%4 != 0 {
			return fmt.Errorf("SwitchML: %d bytes of values: 256 or 1024 have a size code", payload)
		}
	}
	h[0] = switchml.MessageType<<4 | byte(size)&7
	if s.Unused {
		h[0] |= 8
	}
	h[1] = s.Job
	copy(h[2:6], s.TSI[:])
	binary.BigEndian.PutUint16(h[6:], s.PoolIndex)
	h[8], h[9] = byte(s.E0), byte(s.E1)
	return nil
}
