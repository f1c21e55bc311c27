package aggregation

import (
	"errors"
	"fmt"
	"time"
)

// Rule is how contributions are judged.
type Rule uint8

// The rules.
const (
	SwitchML Rule = iota // two sets without round numbers, as the P4 program
	Rounds               // every use of a slot has a number
)

// Type is the element type on the wire and in the slot.
type Type uint8

// The element types. Only Int32 is built; Validate refuses the others.
const (
	Int32 Type = iota
	Int64
	Int8
	Float32
	Float64
	Float16
	BFloat16
	BFP16
)

// Op is what is computed over the workers.
type Op uint8

// The operations. Only Sum is built; Validate refuses the others.
const (
	Sum Op = iota
	Mean
	Min
	Max
)

// Order is the order in which contributions are combined.
type Order uint8

// The orders. Integer sums do not depend on it. Only Arrival is built;
// Validate refuses Ranked.
const (
	Arrival Order = iota // as they come, like a card
	Ranked               // by rank, reproducible to the bit for floats
)

// Policy is what happens on overflow, infinities and NaN.
type Policy uint8

// The policies. Only Propagate is built; Validate refuses Saturate.
const (
	Propagate Policy = iota // integers wrap and the wraps are counted; floats follow IEEE 754
	Saturate                // clamp, count and flag
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
	MaxWorkers  = 1024
	MaxSlots    = 1 << 20
	MaxElements = 1 << 14
)

// Versions is the number of versions a slot has.
const Versions = 2

// Spec describes a pool. The zero values of the enumerations are int32 sums in
// arrival order by the rule of SwitchML, waiting for all workers.
type Spec struct {
	Rule      Rule
	Workers   int // 1..MaxWorkers
	Slots     int // 1..MaxSlots
	Elements  int // values of one contribution, 1..MaxElements
	Exponents int // signed exponents of one contribution that are combined by maximum, 0..2

	Type   Type
	Op     Op
	Order  Order
	Policy Policy

	Stragglers Stragglers
	Deadline   time.Duration // from the first contribution of a round; Partial needs one above 0
}

// ErrNotBuilt is in the chain of errors about a type, operation, order or
// policy that has a name but no implementation.
var ErrNotBuilt = errors.New("not built")

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
	case s.Type != Int32:
		return notBuilt(s.Type.known(), s.Type, Int32)
	case s.Op != Sum:
		return notBuilt(s.Op <= Max, s.Op, Sum)
	case s.Order != Arrival:
		return notBuilt(s.Order <= Ranked, s.Order, Arrival)
	case s.Policy != Propagate:
		return notBuilt(s.Policy <= Saturate, s.Policy, Propagate)
	}
	return nil
}

func notBuilt(known bool, have, want fmt.Stringer) error {
	if !known {
		return fmt.Errorf("aggregation pool: unknown %v", have)
	}
	return fmt.Errorf("aggregation pool: %v is %w, %v is", have, ErrNotBuilt, want)
}

// WireBytes is the length of one contribution's or result's values on the wire.
func (s Spec) WireBytes() int { return s.Elements * s.Type.size() }

// Bytes is the memory of the pool that the spec describes, for admission: the
// values, each version rounded up to a cache line, and the state beside them.
// It is 0 for a spec that Validate refuses.
func (s Spec) Bytes() int64 {
	if s.Validate() != nil {
		return 0
	}
	versions := int64(s.Slots) * Versions
	perVersion := int64(s.stride())*4 + versionBytes + int64(s.words())*8
	return versions*perVersion + lineBytes
}

// lineBytes is the size of a cache line.
const lineBytes = 64

// stride is the number of int32 from one version's values to the next.
func (s Spec) stride() int {
	const line = lineBytes / 4
	return (s.Elements + line - 1) / line * line
}

// words is the number of 64-bit words of a bitmap of workers.
func (s Spec) words() int { return (s.Workers + 63) / 64 }
