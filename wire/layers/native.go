package layers

import (
	"encoding/binary"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"gradnic/wire/native"
)

// Native is a message of the native protocol (docs/protocol.md). Its payload are values, or the body of a report, a
// notice or a leave.
type Native struct {
	layers.BaseLayer
	native.Header
	Length uint16 // bytes of payload
}

// LayerType is LayerTypeNative.
func (n *Native) LayerType() gopacket.LayerType { return LayerTypeNative }

// CanDecode is LayerTypeNative.
func (n *Native) CanDecode() gopacket.LayerClass { return LayerTypeNative }

// NextLayerType is the payload, as bytes.
func (n *Native) NextLayerType() gopacket.LayerType { return gopacket.LayerTypePayload }

// Report is the body of a report; ok is false for another kind, and for a body that is none.
func (n *Native) Report() (r native.ReportBody, ok bool) {
	if n.Kind != native.Report {
		return r, false
	}
	return native.ParseReport(n.Payload)
}

// Notice is the body of a notice; ok is false for another kind, and for a body that is none.
func (n *Native) Notice() (b native.NoticeBody, ok bool) {
	if n.Kind != native.Notice {
		return b, false
	}
	return native.ParseNotice(n.Payload)
}

// Leave is the nonce of a leave; ok is false for another kind, and for a body that is none.
func (n *Native) Leave() (nonce uint32, ok bool) {
	if n.Kind != native.Leave || len(n.Payload) != native.LeaveLen {
		return 0, false
	}
	return binary.BigEndian.Uint32(n.Payload), true
}

// DecodeFromBytes reads a UDP payload. It refuses what wire/native refuses; bodies are not looked at.
func (n *Native) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	v, f := native.Validate(data)
	if f != native.OK {
		return refuse(f, df)
	}
	*n = Native{
		BaseLayer: layers.BaseLayer{Contents: v[:native.HeaderLen], Payload: v.Payload()},
		Header:    v.Header(), Length: uint16(len(v.Payload())),
	}
	return nil
}

// SerializeTo writes the header before the payload. With FixLengths the length is the payload's.
func (n *Native) SerializeTo(b gopacket.SerializeBuffer, opts gopacket.SerializeOptions) error {
	h, payload, err := put(b, native.HeaderLen)
	if err != nil {
		return err
	}
	if !opts.FixLengths {
		payload = int(n.Length)
	}
	n.Header.Put(h, payload)
	return nil
}
