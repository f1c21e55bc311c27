package native

import (
	"encoding/binary"
	"strconv"

	"gradnic/internal/element"
	"gradnic/wire/inet"
)

// Port is the UDP destination port of everything that a worker sends, and the
// source port of everything that it gets: 0xBEF0.
const Port = 48880

// Version is the one version there is.
const Version = 1

// HeaderLen is the length of the header.
const HeaderLen = 32

// ValuesOffset is where a message's payload starts in a frame.
const ValuesOffset = inet.PayloadOffset + HeaderLen

// MaxSlots is the largest number of slots of a job: a report has a bit for each, and fits in a frame of 1500 bytes.
const MaxSlots = 8192

// MaxWorkers is the largest number of workers of a job.
const MaxWorkers = 1024

// Kind is what a message is.
type Kind uint8

// The kinds. Those from Result on are sent by the network.
const (
	Contribution Kind = 1 // a worker's values for one round of one slot
	Report       Kind = 2 // what a worker has: it joins with it, and answers a new epoch
	Supply       Kind = 3 // a result that a worker has, for those who lack it
	Leave        Kind = 4 // a worker gives up

	Result Kind = 8  // the values of a round
	Notice Kind = 9  // the state of the job
	Ask    Kind = 10 // asks a worker to Supply the result of a round
)

var kindNames = [16]string{
	Contribution: "contribution", Report: "report", Supply: "supply", Leave: "leave",
	Result: "result", Notice: "notice", Ask: "ask",
}

// String is the kind's name.
func (k Kind) String() string {
	if k < 16 && kindNames[k] != "" {
		return kindNames[k]
	}
	return "kind " + strconv.Itoa(int(k))
}

// hasValues reports whether a message of the kind carries values, which a codec may have compressed.
func (k Kind) hasValues() bool { return k == Contribution || k == Supply || k == Result }

// FromNetwork reports whether a message of the kind goes to a worker.
func (k Kind) FromNetwork() bool { return k&8 != 0 }

// Flags are bits of the second byte.
type Flags uint8

// The flags.
const (
	FlagResend    Flags = 1 << iota // sent before; or a result that is sent to one worker once more
	FlagPartial                     // the round ended without some workers; their number is in the header
	FlagSaturated                   // a value was clamped on the way
	FlagNonFinite                   // the result holds an infinity or a NaN
	FlagWrapped                     // an integer wrapped on the way
	FlagRelayed                     // the result was supplied by a worker after a loss of memory
	FlagTagged                      // the message ends with a counter and a tag, see Auth
	flagReserved
)

// FlagNoValues is FlagPartial in what workers send. In a contribution: its worker takes the result without its values, and gets a
// Result without a payload, or one with values all the same. In a report: it lists the values that the worker has, and not the
// results, see ReportBody. A contribution without a payload needs no flag: its worker takes part without values.
const FlagNoValues = FlagPartial

// FlagsOfResult are the flags that tell about a result's values.
const FlagsOfResult = FlagPartial | FlagSaturated | FlagNonFinite | FlagWrapped

// Type is the element type.
type Type uint8

// The element types.
const (
	Int32    = Type(element.Int32)
	Int64    = Type(element.Int64)
	Int8     = Type(element.Int8)
	Float32  = Type(element.Float32)
	Float64  = Type(element.Float64)
	Float16  = Type(element.Float16)
	BFloat16 = Type(element.BFloat16)
	BFP16    = Type(element.BFP16) // blocks of 16 elements with a shared exponent, as codec bfp16 has them

	numTypes = Type(element.Count)
)

var typeNames = element.Names()

// String is the type's name.
func (t Type) String() string {
	if t < numTypes {
		return typeNames[t]
	}
	return "type " + strconv.Itoa(int(t))
}

// Bytes is the length of a payload of n elements that no codec compressed. BFP16 has 17 bytes for every 16 elements that
// are begun.
func (t Type) Bytes(n int) int {
	if t == BFP16 {
		blocks := (n + 15) / 16
		return 17 * blocks
	}
	return n * t.Size()
}

// MaxCodec is the highest codec there is. docs/codecs.md lists them by their numbers; 0 is none.
const MaxCodec = 14

// Size is the bytes of one element; 0 for BFP16, whose elements come in blocks, and for what is no type.
func (t Type) Size() int { return element.Type(t).Size() }

// Header are the fields of a message.
type Header struct {
	Kind       Kind
	Flags      Flags
	Type       Type
	Codec      uint8  // how values of type Float32 are compressed; 0: not
	Job        uint16 // the job's number at the NIC
	Rank       uint16 // of the worker that sends, or that is spoken to; in a Result the contributions in it
	Epoch      uint32 // one life of the job in the NIC's memory
	Round      uint32 // number of this use of the slot
	Slot       uint32
	Collective uint32 // number of the worker's call
	Elements   uint16 // of the payload that mean something; the rest is padding
	Plane      uint8  // reserved: 0
}

// Put writes the header with the payload's length at the start of b and returns HeaderLen.
func (h *Header) Put(b []byte, payload int) int {
	_ = b[HeaderLen-1]
	b[0] = Version<<4 | byte(h.Kind)&15
	b[1] = byte(h.Flags)
	b[2] = byte(h.Type)
	b[3] = h.Codec
	binary.BigEndian.PutUint16(b[4:], h.Job)
	binary.BigEndian.PutUint16(b[6:], h.Rank)
	binary.BigEndian.PutUint32(b[8:], h.Epoch)
	binary.BigEndian.PutUint32(b[12:], h.Round)
	binary.BigEndian.PutUint32(b[16:], h.Slot)
	binary.BigEndian.PutUint32(b[20:], h.Collective)
	binary.BigEndian.PutUint16(b[24:], h.Elements)
	binary.BigEndian.PutUint16(b[26:], uint16(payload))
	b[28], b[29], b[30], b[31] = h.Plane, 0, 0, 0
	return HeaderLen
}

// Fault says why a payload is no message. The zero value is OK.
type Fault uint8

// The reasons, each with the drop reason that String gives.
const (
	OK            Fault = iota // "ok"
	Short                      // "native-short": less than the header
	BadVersion                 // "native-version": another version
	UnknownKind                // "native-kind": a kind without a meaning
	BadLength                  // "native-length": not as long as the header says
	Reserved                   // "native-reserved": a bit that must be zero is set
	BadType                    // "native-type": an element type without a meaning
	UnknownFormat              // "native-codec": a codec without a meaning or where none belongs

	// NumFaults is the number of values, for counters indexed by Fault.
	NumFaults = int(iota)
)

var faultNames = [NumFaults]string{
	"ok", "native-short", "native-version", "native-kind", "native-length", "native-reserved", "native-type", "native-codec",
}

// String is the drop reason's name, in kebab case.
func (f Fault) String() string {
	if int(f) < NumFaults {
		return faultNames[f]
	}
	return "unknown-fault"
}

// View is a validated message. It aliases the frame.
type View []byte

// Validate checks a UDP payload. The view is nil unless the fault is OK; it ends with the message, and a UDP payload
// that is longer or shorter is refused.
func Validate(b []byte) (View, Fault) {
	if len(b) < HeaderLen {
		return nil, Short
	}
	if b[0]>>4 != Version {
		return nil, BadVersion
	}
	if kindNames[b[0]&15] == "" {
		return nil, UnknownKind
	}
	if len(b) != HeaderLen+int(binary.BigEndian.Uint16(b[26:])) {
		return nil, BadLength
	}
	if b[28]|b[29]|b[30]|b[31] != 0 || Flags(b[1])&flagReserved != 0 {
		return nil, Reserved
	}
	if Type(b[2]) >= numTypes {
		return nil, BadType
	}
	if b[3] > MaxCodec {
		return nil, UnknownFormat
	}
	if v := View(b); v.Tagged() && len(b) < HeaderLen+v.tagLen() {
		return nil, BadLength
	}
	if b[3] != 0 && (Type(b[2]) != Float32 || !Kind(b[0]&15).hasValues()) {
		return nil, UnknownFormat
	}
	return View(b[:len(b):len(b)]), OK
}

// Kind is what the message is.
func (v View) Kind() Kind { return Kind(v[0] & 15) }

// Flags are the flag bits.
func (v View) Flags() Flags { return Flags(v[1]) }

// Type is the element type.
func (v View) Type() Type { return Type(v[2]) }

// Codec is how the values are compressed, 0 for not at all.
func (v View) Codec() uint8 { return v[3] }

// Job is the job's number.
func (v View) Job() uint16 { return binary.BigEndian.Uint16(v[4:]) }

// Rank is the worker's rank; in a Result the number of contributions.
func (v View) Rank() int { return int(binary.BigEndian.Uint16(v[6:])) }

// Epoch is the life of the job's memory that the message belongs to.
func (v View) Epoch() uint32 { return binary.BigEndian.Uint32(v[8:]) }

// Round is the number of this use of the slot.
func (v View) Round() uint32 { return binary.BigEndian.Uint32(v[12:]) }

// Slot is the slot.
func (v View) Slot() uint32 { return binary.BigEndian.Uint32(v[16:]) }

// Collective is the number of the worker's call.
func (v View) Collective() uint32 { return binary.BigEndian.Uint32(v[20:]) }

// Elements is how many elements mean something.
func (v View) Elements() int { return int(binary.BigEndian.Uint16(v[24:])) }

// Payload is what follows the header.
func (v View) Payload() []byte { return v[HeaderLen:] }

// Header reads all fields.
func (v View) Header() Header {
	return Header{
		Kind: v.Kind(), Flags: v.Flags(), Type: v.Type(), Codec: v[3], Job: v.Job(), Rank: uint16(v.Rank()), Epoch: v.Epoch(),
		Round: v.Round(), Slot: v.Slot(), Collective: v.Collective(), Elements: uint16(v.Elements()), Plane: v[28],
	}
}
