package ring

import "encoding/binary"

// Fault says why a payload is no message. The zero value is OK.
type Fault uint8

// The faults, each with the drop reason that String gives.
const (
	OK          Fault = iota // "ok"
	Short                    // "ring-short": less than the header
	BadVersion               // "ring-version": another version
	UnknownKind              // "ring-kind": a kind without a meaning
	BadLength                // "ring-length": not as long as the header says, or a payload that its kind does not have
	Reserved                 // "ring-reserved": a bit that must be zero is set, or a flag of another kind
	BadRange                 // "ring-range": a field with a value that no node sends
	// The rest is for those who know the ring: the message is one, but not theirs.
	Foreign  // "ring-foreign": another ring, or from a node that is not the neighbour it would have to be
	Stale    // "ring-stale": of another generation or epoch
	Refused  // "ring-refused": data without credit or beyond the window, or that contradict the request
	Repeated // "ring-duplicate": data that are there already
	Stranger // "ring-stranger": not from the MAC, IP address and UDP port of the node that it says it is from

	// NumFaults is the number of values, for counters indexed by Fault.
	NumFaults = int(iota)
)

var faultNames = [NumFaults]string{
	"ok", "ring-short", "ring-version", "ring-kind", "ring-length", "ring-reserved", "ring-range",
	"ring-foreign", "ring-stale", "ring-refused", "ring-duplicate", "ring-stranger",
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

var flagsOf = [numKinds]Flags{Data: FlagResend | FlagGather, Ack: FlagReply, Hello: FlagFormed}

// Validate checks a UDP payload. The view is nil unless the fault is OK; it ends with the message.
func Validate(b []byte) (View, Fault) {
	if len(b) < HeaderLen {
		return nil, Short
	}
	if b[0]>>4 != Version {
		return nil, BadVersion
	}
	k := Kind(b[0] & 15)
	if k == 0 || k >= numKinds {
		return nil, UnknownKind
	}
	payload := int(binary.BigEndian.Uint16(b[38:]))
	if len(b) != HeaderLen+payload {
		return nil, BadLength
	}
	if Flags(b[1])&^flagsOf[k] != 0 {
		return nil, Reserved
	}
	v := View(b[:len(b):len(b)])
	var f Fault
	switch k {
	case Data:
		f = v.checkData(payload)
	case Ack:
		f = v.checkAck(payload)
	case Hello:
		f = v.checkHello(payload)
	default:
		f = v.checkNotice(payload)
	}
	if f != OK {
		return nil, f
	}
	if v.Node() == NoNode || v.Generation() == 0 && k != Hello {
		return nil, BadRange
	}
	return v, OK
}

func (v View) checkData(payload int) Fault {
	if payload == 0 {
		return BadLength
	}
	step, slice, count := int(v[3]), binary.BigEndian.Uint16(v[32:]), binary.BigEndian.Uint16(v[36:])
	if step > 2*MaxNodes-3 || slice >= MaxNodes || count == 0 {
		return BadRange
	}
	return OK
}

func (v View) checkAck(payload int) Fault {
	if payload > SackBytes {
		return BadLength
	}
	if v[2]|v[3]|v[36]|v[37] != 0 {
		return Reserved
	}
	if v.Ack().WaitHops > MaxNodes {
		return BadRange
	}
	return OK
}

func (v View) checkHello(payload int) Fault {
	nodes := int(binary.BigEndian.Uint16(v[32:]))
	if nodes > MaxNodes || nodes < 1 || binary.BigEndian.Uint64(v[24:]) == 0 {
		return BadRange
	}
	if payload != nodes*MemberLen {
		return BadLength
	}
	bits := v[2] | v[3] | v[34] | v[35] | v[36] | v[37]
	for i := range nodes {
		p := v[HeaderLen+i*MemberLen:]
		bits |= p[2] | p[3]
	}
	if bits != 0 {
		return Reserved
	}
	return OK
}

func (v View) checkNotice(payload int) Fault {
	if payload != 0 {
		return BadLength
	}
	if v[3]|v[28]|v[29]|v[30]|v[31]|v[36]|v[37] != 0 {
		return Reserved
	}
	if r := Reason(v[2]); r == 0 || r >= numReasons || binary.BigEndian.Uint16(v[32:]) == NoNode || binary.BigEndian.Uint16(v[34:]) == NoNode {
		return BadRange
	}
	return OK
}

// Kind is what the message is.
func (v View) Kind() Kind { return Kind(v[0] & 15) }

// Flags are the flag bits.
func (v View) Flags() Flags { return Flags(v[1]) }

// Node is the sender's number.
func (v View) Node() uint16 { return binary.BigEndian.Uint16(v[6:]) }

// Generation is the ring's.
func (v View) Generation() uint32 { return binary.BigEndian.Uint32(v[8:]) }

// Payload is what follows the header.
func (v View) Payload() []byte { return v[HeaderLen:] }

// Common are the fields that all kinds have.
func (v View) Common() Common {
	return Common{
		Ring: binary.BigEndian.Uint16(v[4:]), Node: v.Node(), Generation: v.Generation(), Epoch: binary.BigEndian.Uint32(v[12:]),
	}
}

// Data reads the fields of a data message.
func (v View) Data() DataHeader {
	return DataHeader{
		Common: v.Common(), Flags: v.Flags(), Codec: v[2], Step: v[3],
		Sequence: binary.BigEndian.Uint32(v[16:]), Request: binary.BigEndian.Uint32(v[20:]), Block: binary.BigEndian.Uint32(v[24:]),
		Length: binary.BigEndian.Uint32(v[28:]), Slice: binary.BigEndian.Uint16(v[32:]), Offset: binary.BigEndian.Uint16(v[34:]),
		Elements: binary.BigEndian.Uint16(v[36:]),
	}
}

// Ack reads the fields of an acknowledgement. Bit i of the payload (bit i mod 8 of byte i div 8, least significant
// first) says that the frame of number Cumulative + 1 + i has arrived.
func (v View) Ack() AckHeader {
	return AckHeader{
		Common: v.Common(), Flags: v.Flags(),
		Cumulative: binary.BigEndian.Uint32(v[16:]), Reduce: binary.BigEndian.Uint32(v[20:]), Gather: binary.BigEndian.Uint32(v[24:]),
		WaitRequest: binary.BigEndian.Uint32(v[28:]), WaitNode: binary.BigEndian.Uint16(v[32:]), WaitHops: binary.BigEndian.Uint16(v[34:]),
	}
}

// Hello reads the fields of a hello.
func (v View) Hello() HelloHeader {
	return HelloHeader{
		Common: v.Common(), Flags: v.Flags(),
		SliceElements: binary.BigEndian.Uint32(v[16:]), MTU: binary.BigEndian.Uint16(v[20:]), Window: binary.BigEndian.Uint16(v[22:]),
		Boot: binary.BigEndian.Uint64(v[24:]), Nodes: binary.BigEndian.Uint16(v[32:]),
	}
}

// Member is member i of a hello.
func (v View) Member(i int) Member {
	p := v[HeaderLen+i*MemberLen:]
	return Member{Node: binary.BigEndian.Uint16(p), Boot: binary.BigEndian.Uint64(p[4:])}
}

// Notice reads the fields of a notice.
func (v View) Notice() NoticeHeader {
	return NoticeHeader{
		Common: v.Common(), Reason: Reason(v[2]),
		Request: binary.BigEndian.Uint32(v[16:]), Boot: binary.BigEndian.Uint64(v[20:]), Failed: binary.BigEndian.Uint16(v[32:]),
		Origin: binary.BigEndian.Uint16(v[34:]),
	}
}
