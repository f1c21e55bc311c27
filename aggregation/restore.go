package aggregation

// Restore puts the result of a round into a slot that holds nothing, as if its workers had contributed: those that
// ask for it are Answered, and round+1 may follow. It is for protocols of rule Rounds that recover a lost memory from
// what workers have kept. values are as on the wire.
//
// Completed means that it was stored, Answered that it was there already, and Stale that the slot holds something
// else; then nothing was touched. InvalidSlot, InvalidLength and InvalidValues are as for Contribute.
func (p *Pool) Restore(slot int, round uint32, values []byte, flags Flags) Outcome {
	switch {
	case uint(slot) >= uint(p.spec.Slots):
		return InvalidSlot
	case len(values) != p.result && (p.coded == nil || len(values) > p.result):
		return InvalidLength
	case p.spec.Rule != Rounds:
		return Stale
	}
	i := slot*Versions + int(round&1)
	v := &p.versions[i]
	if v.phase == Complete && v.round == round {
		return Answered
	}
	if v.phase != Idle || p.versions[i^1].phase != Idle {
		return Stale
	}
	if p.coded == nil {
		p.cells.set(i, values)
	} else if !p.coded.restore(i, values) {
		return InvalidValues
	}
	*v = version{round: round, count: uint16(p.spec.Workers), phase: Complete, flags: flags, next: uint16(p.spec.Workers)}
	seen := p.bitmap(i)
	for w := range p.spec.Workers {
		seen[w>>6] |= 1 << (w & 63)
	}
	return Completed
}
