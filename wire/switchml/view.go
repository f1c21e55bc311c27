package switchml

import (
	"encoding/binary"

	"gradnic/wire/inet"
)

// UDP destination ports of the protocol: (port & PortMask) == PortBase.
const (
	PortBase = 0xBEE0
	PortMask = 0xFFF0
)

// HeaderLen is the length of the protocol's own header: bytes 42..52 of the frame.
const HeaderLen = 10

// ValuesOffset is where the values start in a frame.
const ValuesOffset = inet.PayloadOffset + HeaderLen

// MaxElements is the largest number of values in a frame.
const MaxElements = 256

// MessageType is the one message type in use, for requests and replies.
const MessageType = 1

// Slots is the number of slots a pool index can name.
const Slots = 1 << 14

// SizeCode is the packet size as the header and the controller write it.
type SizeCode uint8

// Size codes by the bytes of values they stand for. The switch drops Size128
// and Size512, and so does Validate.
const (
	Size128  SizeCode = 0
	Size256  SizeCode = 1 // 64 elements
	Size512  SizeCode = 2
	Size1024 SizeCode = 3 // 256 elements
)

// Elements is the number of int32 values of a supported size, and 0 for every
// other code.
func (c SizeCode) Elements() int {
	switch c {
	case Size256:
		return 64
	case Size1024:
		return 256
	}
	return 0
}

// SizeOf is the size code of a number of elements; ok is false unless it is 64 or 256.
func SizeOf(elements int) (code SizeCode, ok bool) {
	switch elements {
	case 64:
		return Size256, true
	case 256:
		return Size1024, true
	}
	return 0, false
}

// FrameLen is the length of a frame with that many elements, without the frame
// check sequence: 308 for 64, 1076 for 256.
func FrameLen(elements int) int { return ValuesOffset + 4*elements }

// IsPort reports whether a UDP destination port belongs to the protocol.
func IsPort(port uint16) bool { return port&PortMask == PortBase }

// Fault says why a payload is not a SwitchML message. The zero value is OK.
type Fault uint8

// The reasons, each with the drop reason that String gives.
const (
	OK              Fault = iota // "ok"
	Short                        // "switchml-short": less than the header
	BadType                      // "switchml-message-type": not message type 1
	UnknownSize                  // "switchml-size-unknown": a size code without a meaning
	UnsupportedSize              // "switchml-size-unsupported": 128 or 512 bytes, which the switch does not aggregate
	BadLength                    // "switchml-length": the payload is not as long as its size code says

	// NumFaults is the number of values, for counters indexed by Fault.
	NumFaults = int(iota)
)

var faultNames = [NumFaults]string{
	OK:              "ok",
	Short:           "switchml-short",
	BadType:         "switchml-message-type",
	UnknownSize:     "switchml-size-unknown",
	UnsupportedSize: "switchml-size-unsupported",
	BadLength:       "switchml-length",
}

// String is the drop reason's name, in kebab case.
func (f Fault) String() string {
	if int(f) < NumFaults {
		return faultNames[f]
	}
	return "unknown-fault"
}

// View is a validated UDP payload: header and values, nothing after them. It
// aliases the frame.
type View []byte

// Validate checks a UDP payload's message type and size against its length.
// The view is nil unless the fault is OK. Bit 3 of the first byte is unused and
// ignored, as the P4 program does.
func Validate(payload []byte) (View, Fault) {
	if len(payload) < HeaderLen {
		return nil, Short
	}
	if payload[0]>>4 != MessageType {
		return nil, BadType
	}
	code := SizeCode(payload[0] & 7)
	n := code.Elements()
	if n == 0 {
		if code == Size128 || code == Size512 {
			return nil, UnsupportedSize
		}
		return nil, UnknownSize
	}
	if len(payload) != HeaderLen+4*n {
		return nil, BadLength
	}
	return View(payload), OK
}

// SizeCode is the size of the message.
func (v View) SizeCode() SizeCode { return SizeCode(v[0] & 7) }

// Elements is the number of values: 64 or 256.
func (v View) Elements() int { return (len(v) - HeaderLen) / 4 }

// Job is the client's job number, modulo 256.
func (v View) Job() uint8 { return v[1] }

// TSI is the client's packet number as it stands on the wire. Clients write it
// in their own byte order; a switch only copies it.
func (v View) TSI() [4]byte { return [4]byte(v[2:6]) }

// PoolIndex is set and slot as on the wire, bit 14 included.
func (v View) PoolIndex() uint16 { return binary.BigEndian.Uint16(v[6:8]) }

// Set is the version of the slot, 0 or 1.
func (v View) Set() int { return int(v[6] >> 7) }

// Slot is the slot's index, 0..16383.
func (v View) Slot() int { return int(v.PoolIndex() & (Slots - 1)) }

// Exponents are the two signed exponents.
func (v View) Exponents() (e0, e1 int8) { return int8(v[8]), int8(v[9]) }

// Values are the values' bytes, int32 big endian.
func (v View) Values() []byte { return v[HeaderLen:] }

// PoolIndexOf builds a pool index from a set, 0 or 1, and a slot, 0..16383.
func PoolIndexOf(set, slot int) uint16 {
	return uint16(set&1)<<15 | uint16(slot&(Slots-1))
}
