package aggregation

// contributeSwitchML is the P4 program's rule, table by table: bitmap, counter,
// values, exponents. It is deliberately no cleverer than the program. After
// packets that no correct worker sends, the counter and the bitmap can disagree,
// and then a switch and this pool go wrong in the same way.
func (p *Pool) contributeSwitchML(c *Contribution, now int64, out []byte) Outcome {
	i := c.Slot*Versions + c.Set
	v := &p.versions[i]
	word, bit := c.Worker>>6, uint64(1)<<(c.Worker&63)

	own := p.bitmap(i)
	empty := !anyBit(own)
	seen := own[word]&bit != 0
	own[word] |= bit
	p.bitmap(i ^ 1)[word] &^= bit

	if seen {
		if v.count != 0 {
			return Duplicate
		}
		p.answer(i, out)
		return Answered
	}

	// A new contribution. flag is the counter before it; the last one of a
	// version finds 1. A job of one worker has no counter.
	last := p.spec.Workers == 1
	if !last {
		flag := v.count
		if flag == 0 {
			v.count = uint16(p.spec.Workers - 1)
			v.started = now
			p.collecting++
		} else {
			v.count--
			if flag == 1 {
				last = true
				p.collecting--
			}
		}
	} else {
		v.started = now
	}

	if empty {
		v.flags = 0
		p.setExponents(v, c.Exponents)
	} else {
		p.maxExponents(v, c.Exponents)
	}
	if last {
		p.foldLast(i, c.Values, empty, p.spec.Workers, out)
		return Completed
	}
	p.fold(i, c.Values, empty)
	return Added
}
