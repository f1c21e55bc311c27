package aggregation

import (
	"errors"
	"fmt"
)

// Reference gives the result of one round as order Ranked defines it, whatever
// the order in s: contributions[r] is what rank r sends, Spec.WireBytes long, or
// nil for a worker that does not come. It writes the result to out, which must
// have room for Spec.ResultBytes. It is for checking an all-reduce from end to
// end: by one goroutine, over the same loops as a pool, and not fast.
func Reference(s Spec, contributions [][]byte, out []byte) (Flags, error) {
	s.Rule, s.Slots, s.Order = Rounds, 1, Arrival // in which they come by rank
	s.Stragglers, s.Deadline = Partial, 1
	s.Workers = len(contributions)
	p, err := NewPool(s)
	if err != nil {
		return 0, err
	}
	if len(out) < p.result {
		return 0, fmt.Errorf("aggregation reference: room for %d bytes of a result of %d", len(out), p.result)
	}
	done := false
	for rank, values := range contributions {
		if values == nil {
			continue
		}
		switch o := p.Contribute(&Contribution{Worker: rank, Values: values}, 0, out); o {
		case Added:
		case Completed:
			done = true
		default:
			return 0, fmt.Errorf("aggregation reference: contribution of rank %d: %v", rank, o)
		}
	}
	if !done && !p.CompletePartial(0, 0, out) {
		return 0, errors.New("aggregation reference: no contribution")
	}
	return p.Flags(0, 0), nil
}
