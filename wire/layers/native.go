package layers

import (
	"encoding/binary"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"gradnic/wire/native"
)

// Native is a message of the native protocol (docs/protocol.md). Its payload are values, or the body of a report, a
// notice or a leave, without what a tag adds.
type Native struct {
	layers.BaseLayer
	native.Header
	Length uint16 // bytes after the header: the payload, and what a tag adds

	// Of a message that has native.FlagTagged; whether the tag is right only those know who have the key.
	Salt    native.Salt // in reports alone
	Counter uint64
	Tag     [native.TagLen]byte
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
	return native.ParseReport(n.Payload, n.Flags)
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
		BaseLayer: layers.BaseLayer{Contents: v[:native.HeaderLen], Payload: v.Untagged().Payload()},
		Header:    v.Header(), Length: uint16(len(v.Payload())),
	}
	if v.Tagged() {
		n.Counter, n.Tag = v.Counter(), v.Tag()
		if n.Kind == native.Report {
			n.Salt = v.Salt()
		}
	}
	return nil
}

// SerializeTo writes the header before the payload, and after it what a tag adds when the flag is set. With FixLengths
// the length is that of both.
func (n *Native) SerializeTo(b gopacket.SerializeBuffer, opts gopacket.SerializeOptions) error {
	if n.Flags&native.FlagTagged != 0 {
		if n.Kind == native.Report {
			salt, err := b.AppendBytes(native.SaltLen)
			if err != nil {
				return err
			}
			copy(salt, n.Salt[:])
		}
		end, err := b.AppendBytes(native.TrailerLen)
		if err != nil {
			return err
		}
		binary.BigEndian.PutUint64(end, n.Counter)
		copy(end[native.TrailerLen-native.TagLen:], n.Tag[:])
	}
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
