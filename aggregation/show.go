package aggregation

import "math/bits"

// State is one version of a slot as seen from outside.
type State struct {
	Phase   Phase
	Round   uint32 // rule Rounds: the round it holds
	Count   int    // contributions that are in it
	Started int64  // now of its first contribution
	Flags   Flags  // final when it is complete
}

// State describes a version. By rule Rounds the set of round r is r&1. Like all
// readers here it panics when the slot or the set is out of range.
func (p *Pool) State(slot, set int) State {
	i := p.at(slot, set)
	v := &p.versions[i]
	s := State{Phase: p.phase(i), Round: v.round, Started: v.started, Flags: v.flags}
	switch {
	case s.Phase == Idle:
		return State{}
	case p.spec.Rule == Rounds:
		s.Count = int(v.count)
	case s.Phase == Collecting:
		s.Count = p.spec.Workers - int(v.count)
	default:
		s.Count = p.spec.Workers
	}
	return s
}

// Started is the now of the first contribution to what a version holds, or held last.
func (p *Pool) Started(slot, set int) int64 { return p.versions[p.at(slot, set)].started }

// phase is the phase of the version with index i. By rule SwitchML a complete
// version becomes idle when the last worker has moved on to the other set.
func (p *Pool) phase(i int) Phase {
	v := &p.versions[i]
	switch {
	case p.spec.Rule == Rounds:
		return v.phase
	case v.count != 0:
		return Collecting
	case anyBit(p.bitmap(i)):
		return Complete
	}
	return Idle
}

// Exponents are those of the result, or of what has come so far. Those that the
// spec does not have are 0.
func (p *Pool) Exponents(slot, set int) (e0, e1 int8) {
	e := p.versions[p.at(slot, set)].exps
	return e[0], e[1]
}

// Flags tells what befell the values of a result. They are final when the
// version is complete, and are the same however often it is asked for.
func (p *Pool) Flags(slot, set int) Flags { return p.versions[p.at(slot, set)].flags }

// Result writes the values of a version to out in wire order. Of a version that
// is not complete they are the values so far: zeros when nothing has come, sums
// that are not yet divided for Mean, and without the contributions that order
// Ranked keeps for later.
func (p *Pool) Result(slot, set int, out []byte) {
	i := p.at(slot, set)
	out = out[:p.result]
	if phase := p.phase(i); phase == Idle || p.spec.Rule == Rounds && phase == Collecting && p.versions[i].valued == 0 {
		clear(out)
		return
	}
	p.cells.put(i, out)
}

// ResultLen is how many bytes of values a complete version's result has.
func (p *Pool) ResultLen(slot, set int) int {
	i := p.at(slot, set)
	if p.coded != nil {
		return int(p.coded.lengths[i])
	}
	return p.result
}

// Seen is the bitmap of ranks, 64 a word, lowest first. It aliases the pool's
// memory and must not be changed.
func (p *Pool) Seen(slot, set int) []uint64 { return p.bitmap(p.at(slot, set)) }

// Quiet is the bitmap of ranks that have no use for the values of a version's result, as Seen; nil when there are none.
func (p *Pool) Quiet(slot, set int) []uint64 {
	if i := p.at(slot, set); p.versions[i].quiet {
		return p.quietBitmap(i)
	}
	return nil
}

// Missing appends to dst the ranks whose bit is not set.
func (p *Pool) Missing(dst []int, slot, set int) []int {
	for w, word := range p.Seen(slot, set) {
		for rest := ^word; rest != 0; rest &= rest - 1 {
			rank := w*64 + bits.TrailingZeros64(rest)
			if rank >= p.spec.Workers {
				break
			}
			dst = append(dst, rank)
		}
	}
	return dst
}

// Walk calls fn for every version that is collecting, lowest slot first, until
// fn returns false. fn may read the pool but not change it.
func (p *Pool) Walk(fn func(slot, set int, s State) bool) {
	if p.collecting == 0 {
		return
	}
	for i := range p.versions {
		if p.phase(i) == Collecting {
			slot, set := i/Versions, i%Versions
			if !fn(slot, set, p.State(slot, set)) {
				return
			}
		}
	}
}

// Oldest is the version that has been collecting for the longest time; ok is false when none is.
func (p *Pool) Oldest() (slot, set int, started int64, ok bool) {
	left := p.collecting
	for i := 0; left > 0 && i < len(p.versions); i++ {
		if p.phase(i) != Collecting {
			continue
		}
		left--
		if s := p.versions[i].started; !ok || s < started {
			slot, set, started, ok = i/Versions, i%Versions, s, true
		}
	}
	return slot, set, started, ok
}

// Collecting is the number of versions that wait for workers.
func (p *Pool) Collecting() int { return p.collecting }

// Occupancy counts the versions by phase.
func (p *Pool) Occupancy() (idle, collecting, complete int) {
	for i := range p.versions {
		switch p.phase(i) {
		case Idle:
			idle++
		case Collecting:
			collecting++
		default:
			complete++
		}
	}
	return idle, collecting, complete
}
