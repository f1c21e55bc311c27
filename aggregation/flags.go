package aggregation

import "strings"

// Flags tell what befell the values of a result, so that no wrong number looks
// right. A protocol that has room for them sends them with the result.
type Flags uint8

// The flags. Which of the first three can occur follows from type and policy:
// docs/numbers.md has the table.
const (
	FlagNonFinite Flags = 1 << iota // the result holds an infinity or a NaN
	FlagSaturated                   // policy Saturate: a value was clamped on the way
	FlagWrapped                     // policy Propagate: an integer wrapped on the way; the result is right modulo 2^bits
	FlagPartial                     // the round ended without some workers
)

// String lists the flags, joined by "+"; none is "-".
func (f Flags) String() string {
	var set []string
	for i, n := range flagNames {
		if f&(1<<i) != 0 {
			set = append(set, n)
		}
	}
	if len(set) == 0 {
		return "-"
	}
	return strings.Join(set, "+")
}

// Counters count what Flags tell of, since the pool was made or reset.
type Counters struct {
	// NonFinite is the number of elements of completed results that were
	// infinite or NaN; of BFP16, before they made their block NaN.
	NonFinite uint64
	// Saturated and Wrapped are the numbers of times that an element was
	// clamped or wrapped. The last contribution to a slot counts an element
	// once, though it may be clamped both in the slot and on the wire.
	Saturated, Wrapped uint64
	// Partial is the number of rounds that ended without some workers.
	Partial uint64
}

// Counters are the pool's.
func (p *Pool) Counters() Counters { return p.counters }

// Wrapped is Counters().Wrapped.
func (p *Pool) Wrapped() uint64 { return p.counters.Wrapped }

// flag accounts for the elements that a step flagged in version i: final says
// that the step gave the result. It is called for what is rare, flagged > 0.
func (p *Pool) flag(i, flagged int, final bool) {
	v := &p.versions[i]
	n := uint64(flagged)
	float := p.spec.Type >= Float32
	switch {
	case !float && p.spec.Policy == Propagate:
		v.flags |= FlagWrapped
		p.counters.Wrapped += n
	case !float:
		v.flags |= FlagSaturated
		p.counters.Saturated += n
	case p.spec.Policy == Propagate:
		// What a sum has that is not finite stays so to its end; what a
		// minimum or maximum has may go.
		if final {
			v.flags |= FlagNonFinite
			p.counters.NonFinite += n
		}
	default:
		// NaN stays, and every step flags it again.
		nans := uint64(p.cells.nans(i))
		if n > nans {
			v.flags |= FlagSaturated
			p.counters.Saturated += n - nans
		}
		if final && nans > 0 {
			v.flags |= FlagNonFinite
			p.counters.NonFinite += nans
		}
	}
}
