package aggregation

import (
	"fmt"
	"time"

	"gradnic/aggregation/kernel"
	"gradnic/codec"
	"gradnic/internal/element"
)

// Rule is how contributions are judged.
type Rule uint8

// The rules.
const (
	SwitchML Rule = iota // two sets without round numbers, as the P4 program
	Rounds               // every use of a slot has a number
)

// Type is the element type on the wire. It decides what the slot holds.
type Type uint8

// The element types.
const (
	Int32    = Type(element.Int32)    // slot int32
	Int64    = Type(element.Int64)    // slot int64
	Int8     = Type(element.Int8)     // slot int32, brought into 8 bits once, in the result
	Float32  = Type(element.Float32)  // slot float32
	Float64  = Type(element.Float64)  // slot float64
	Float16  = Type(element.Float16)  // IEEE 754 binary16; slot float32, rounded to 16 bits once, in the result
	BFloat16 = Type(element.BFloat16) // upper half of a float32; slot float32, rounded to 16 bits once, in the result
	BFP16    = Type(element.BFP16)    // codec bfp16: blocks of 16 with a shared exponent; slot float32, encoded once, in the result
)

// ByteOrder is the order of an element's bytes on the wire. It has no meaning
// for Int8 and BFP16.
type ByteOrder = kernel.ByteOrder

// The byte orders. SwitchML's int32 are big-endian.
const (
	BigEndian    = kernel.BigEndian
	LittleEndian = kernel.LittleEndian
)

// Op is what is computed over the workers.
type Op uint8

// The operations. Min and Max of floats are IEEE 754-2019 minimum and maximum:
// a NaN wins, and -0 is less than +0.
const (
	Sum  Op = iota
	Mean    // the sum, divided once by the number of contributions in it; integers to the nearest, ties to even
	Min
	Max
)

// Order is the order in which contributions are combined. docs/numbers.md
// states what each promises.
type Order uint8

// The orders.
const (
	Arrival Order = iota // as they come, like a card
	Ranked               // by rank, so that the result has the same bits whatever the arrival; rule Rounds only
)

// Policy is what happens on overflow, infinities and NaN. Either way it is
// counted, and the result carries Flags.
type Policy uint8

// The policies.
const (
	Propagate Policy = iota // integers wrap; floats follow IEEE 754
	Saturate                // integers that overflow and floats that are infinite become the nearest bound of the type; NaN stays
)

// Stragglers is what happens to a round that some workers do not come to.
type Stragglers uint8

// The straggler policies.
const (
	Wait    Stragglers = iota // a round ends when all have contributed
	Partial                   // after Spec.Deadline a round may end with those present; rule Rounds only
)

// Limits of a Spec.
const (
	MaxWorkers       = 1024
	MaxRankedWorkers = 64 // order Ranked: each slot may have to keep all contributions but one, twice
	MaxSlots         = 1 << 20
	MaxElements      = 1 << 14
)

// Versions is the number of versions a slot has.
const Versions = 2

// Spec describes a pool. The zero values of the enumerations are wrapping sums
// of big-endian int32 in arrival order by the rule of SwitchML, waiting for all
// workers.
type Spec struct {
	Rule      Rule
	Workers   int // 1..MaxWorkers
	Slots     int // 1..MaxSlots
	Elements  int // values of one contribution, 1..MaxElements
	Exponents int // signed exponents of one contribution that are combined by maximum, 0..2

	Type      Type
	ByteOrder ByteOrder
	Op        Op
	Order     Order
	Policy    Policy

	// Codec and Result compress contributions and results of type Float32, by rule Rounds; nil: they are plain. Seed is that of
	// results that are rounded at random.
	Codec, Result codec.Codec
	Seed          uint64

	Stragglers Stragglers
	Deadline   time.Duration // from the first contribution of a round; Partial needs one above 0
}

// Validate reports the first thing in the spec that cannot be served.
func (s Spec) Validate() error {
	bad := func(what string, got, lo, hi int) error {
		return fmt.Errorf("aggregation pool: %s %d, want %d..%d", what, got, lo, hi)
	}
	switch {
	case s.Rule > Rounds:
		return fmt.Errorf("aggregation pool: unknown %v", s.Rule)
	case s.Workers < 1 || s.Workers > MaxWorkers:
		return bad("workers", s.Workers, 1, MaxWorkers)
	case s.Slots < 1 || s.Slots > MaxSlots:
		return bad("slots", s.Slots, 1, MaxSlots)
	case s.Elements < 1 || s.Elements > MaxElements:
		return bad("elements", s.Elements, 1, MaxElements)
	case s.Exponents < 0 || s.Exponents > 2:
		return bad("exponents", s.Exponents, 0, 2)
	case s.Stragglers > Partial:
		return fmt.Errorf("aggregation pool: unknown %v", s.Stragglers)
	case s.Stragglers == Partial && s.Rule != Rounds:
		return fmt.Errorf("aggregation pool: %v needs %v, because %v cannot tell a late packet from a new one", Partial, Rounds, s.Rule)
	case s.Stragglers == Partial && s.Deadline <= 0:
		return fmt.Errorf("aggregation pool: %v needs a deadline above 0, have %v", Partial, s.Deadline)
	case !s.Type.known():
		return fmt.Errorf("aggregation pool: unknown %v", s.Type)
	case s.ByteOrder > LittleEndian:
		return fmt.Errorf("aggregation pool: unknown byte order %d", uint8(s.ByteOrder))
	case s.Op > Max:
		return fmt.Errorf("aggregation pool: unknown %v", s.Op)
	case s.Order > Ranked:
		return fmt.Errorf("aggregation pool: unknown %v", s.Order)
	case s.Policy > Saturate:
		return fmt.Errorf("aggregation pool: unknown %v", s.Policy)
	case s.Order == Ranked && s.Rule != Rounds:
		return fmt.Errorf("aggregation pool: order %v needs rule %v, because %v can count a stale packet twice", Ranked, Rounds, s.Rule)
	case s.Order == Ranked && s.Workers > MaxRankedWorkers:
		return fmt.Errorf("aggregation pool: order %v keeps every contribution, so it has at most %d workers, not %d", Ranked, MaxRankedWorkers, s.Workers)
	}
	return s.validateCodecs()
}

// WireBytes is the length of one contribution's values on the wire, and without codecs of a result's; with a codec the most
// that it can be.
func (s Spec) WireBytes() int {
	if s.HasCodec() {
		return s.codec().MaxEncoded(s.Elements)
	}
	if s.Type == BFP16 {
		return bfp16.MaxEncoded(s.Elements)
	}
	return s.Elements * s.Type.size()
}

// Bytes is the memory of the pool that the spec describes, for admission: the
// values, each version rounded up to a cache line, the contributions that order
// Ranked may have to keep, and the state beside them. It is 0 for a spec that
// Validate refuses.
func (s Spec) Bytes() int64 {
	if s.Validate() != nil {
		return 0
	}
	versions := int64(s.Slots) * Versions
	perVersion := int64(s.stride()*s.slotSize()) + versionBytes + int64(s.words())*8 + int64(s.kept())*int64(s.keptStride()+4)
	if s.HasCodec() {
		perVersion += 4
	}
	if s.Rule == Rounds {
		perVersion += int64(s.words()) * 8
	}
	return versions*perVersion + int64(s.scratchBytes()) + 2*lineBytes
}

// lineBytes is the size of a cache line.
const lineBytes = 64

// slotSize is the bytes of one element in the slot.
func (s Spec) slotSize() int {
	if s.Type == Int64 || s.Type == Float64 {
		return 8
	}
	return 4
}

// stride is the number of elements from one version's values to the next.
func (s Spec) stride() int {
	line := lineBytes / s.slotSize()
	n := s.Elements
	if s.HasCodec() {
		n = max(n, (s.ResultBytes()+3)/4) // the result takes the values' place
	}
	return (n + line - 1) / line * line
}

// words is the number of 64-bit words of a bitmap of workers.
func (s Spec) words() int { return (s.Workers + 63) / 64 }

// kept is the number of contributions for which a version has room: all but
// rank 0's, which is always folded at once, and none where the order makes no
// difference to a bit of the result. Integers that wrap, the sums of Int8,
// which fit in their slot, minima and maxima are such.
func (s Spec) kept() int {
	integer := s.Type == Int32 || s.Type == Int64
	if s.Order == Arrival || s.Op > Mean || s.Type == Int8 || integer && s.Policy == Propagate {
		return 0
	}
	return s.Workers - 1
}

// keptStride is the bytes from one kept contribution to the next.
func (s Spec) keptStride() int { return (s.WireBytes() + lineBytes - 1) / lineBytes * lineBytes }

// scratchBytes is the memory in which blocks are decoded, and in which a result
// is encoded that nobody asked for but whose flags are to be known.
func (s Spec) scratchBytes() int {
	n := s.ResultBytes()
	if s.HasCodec() {
		return n + 8*s.Elements + int(codec.StateBytes(lossless(s.codec(), s.resultCodec()), s.Elements, false))
	}
	if s.Type == BFP16 {
		n += s.Elements * 4
	}
	return n
}
