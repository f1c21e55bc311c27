package aggregation

// contributeRounds is the rule with numbered uses of a slot.
//
// A correct worker contributes to round r of a slot only when it has the result
// of round r-1 of that slot. So when round r is complete, everybody has the
// result of r-1, and its version is free for r+1. Until then r-1 is kept for
// those who lost it. Numbers are compared as serial numbers (RFC 1982), so they
// may wrap.
//
// The first packet of an idle slot says which round the slot begins with.
func (p *Pool) contributeRounds(c *Contribution, now int64, out []byte) Outcome {
	i := c.Slot*Versions + int(c.Round&1)
	v := &p.versions[i]
	if v.phase == Idle || v.round != c.Round {
		if o := p.start(v, &p.versions[i^1], c.Round); o != Added {
			return o
		}
		v.round = c.Round
		v.phase = Collecting
		v.aborted = false
		v.count = 0
		v.next = 0
		v.flags = 0
		v.started = now
		v.valued = 0
		clear(p.bitmap(i))
		if v.quiet {
			v.quiet = false
			clear(p.quietBitmap(i))
		}
		p.collecting++
	}

	seen := p.bitmap(i)
	word, bit := c.Worker>>6, uint64(1)<<(c.Worker&63)
	if v.phase == Complete {
		// Seen before, or too late for a round that ended without it.
		p.answer(i, out)
		return Answered
	}
	if seen[word]&bit != 0 {
		return Duplicate
	}
	seen[word] |= bit
	if c.Quiet {
		v.quiet = true
		p.quietBitmap(i)[word] |= bit
	}
	if v.count == 0 {
		p.setExponents(v, c.Exponents)
	} else {
		p.maxExponents(v, c.Exponents)
	}
	v.count++
	last := int(v.count) == p.spec.Workers
	switch first := v.valued == 0; {
	case p.nkept > 0:
		p.take(i, c, out)
	case c.None:
		if last {
			p.finishValued(i, out)
		}
	case last: // as bringLast and bring, which would be a call more
		v.valued++
		p.foldLast(i, c.Values, first, int(v.valued), out)
	default:
		v.valued++
		p.fold(i, c.Values, first)
	}
	if !last {
		return Added
	}
	v.phase = Complete
	p.collecting--
	return Completed
}

// start judges whether round r may take version v, which holds another round or
// none; other is the slot's other version. Added means yes.
func (p *Pool) start(v, other *version, r uint32) Outcome {
	if v.aborted && !after(r, v.round) || other.aborted && !after(r, other.round) {
		return Aborted
	}
	if v.phase != Idle && !after(r, v.round) {
		return Stale
	}
	switch {
	case other.phase == Idle && v.phase == Idle:
		return Added
	case other.phase == Idle: // v holds the only round so far, and r is not the next
		return Early
	case !after(r, other.round):
		return Stale
	case r == other.round+1 && other.phase == Complete:
		return Added
	}
	return Early
}

// after reports whether serial number a is later than b.
func after(a, b uint32) bool { return int32(a-b) > 0 }

// NextOverdue finds the first version at or after position from whose
// collecting began Spec.Deadline or longer before now. next is the position to
// go on from; positions run from 0 to 2*Slots. It is cheap when nothing is
// collecting. ok is false, and next 0, when there is none, or no deadline.
func (p *Pool) NextOverdue(now int64, from int) (slot, set, next int, ok bool) {
	if p.collecting == 0 || p.spec.Deadline <= 0 {
		return 0, 0, 0, false
	}
	for i := max(from, 0); i < len(p.versions); i++ {
		if p.phase(i) == Collecting && now-p.versions[i].started >= int64(p.spec.Deadline) {
			return i / Versions, i % Versions, i + 1, true
		}
	}
	return 0, 0, 0, false
}

// CompletePartial ends a collecting round with the contributions it has, if the
// spec's straggler policy is Partial, and writes the result as Contribute does.
// The result is to be sent to all members with the count that State gives, by
// which a mean was divided; it has FlagPartial. A contribution that comes later
// is Answered and not counted. It reports false,
// and does nothing, if the policy is Wait or the version is not collecting.
func (p *Pool) CompletePartial(slot, set int, out []byte) bool {
	i := p.at(slot, set)
	if p.spec.Stragglers != Partial || p.phase(i) != Collecting {
		return false
	}
	if out != nil {
		out = out[:p.result]
	}
	v := &p.versions[i]
	p.takeRest(i)
	p.finishValued(i, out)
	v.flags |= FlagPartial
	p.counters.Partial++
	v.phase = Complete
	p.collecting--
	return true
}

// Abort gives a slot back in whatever phase it is. By rule Rounds, packets of
// the rounds it held and of older ones are Aborted until two later rounds have
// started and make them Stale, and the first packet of a later round, whatever
// its number, starts the slot again. SwitchML has no number to tell late packets
// by: there the slot is as new.
func (p *Pool) Abort(slot int) {
	i := p.at(slot, 0)
	floor, held := p.top(i)
	for ; i < slot*Versions+Versions; i++ {
		v := &p.versions[i]
		if p.phase(i) == Collecting {
			p.collecting--
		}
		clear(p.bitmap(i))
		if v.quiet {
			v.quiet = false
			clear(p.quietBitmap(i))
		}
		if held {
			*v = version{round: floor, aborted: p.spec.Rule == Rounds}
		}
	}
}

// top is the latest round that the slot with versions i and i+1 holds.
func (p *Pool) top(i int) (round uint32, held bool) {
	a, b := &p.versions[i], &p.versions[i+1]
	switch {
	case p.spec.Rule != Rounds:
		return 0, true
	case a.phase == Idle:
		return b.round, b.phase != Idle
	case b.phase == Idle || after(a.round, b.round):
		return a.round, true
	}
	return b.round, true
}

// AbortAll is Abort for every slot.
func (p *Pool) AbortAll() {
	for slot := range p.spec.Slots {
		p.Abort(slot)
	}
}
