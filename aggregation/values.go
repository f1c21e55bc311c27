package aggregation

// fold takes a contribution into version i, which it starts when it is first.
func (p *Pool) fold(i int, src []byte, first bool) {
	var flagged int
	switch c := &p.int32s; {
	case first:
		flagged = p.cells.set(i, src)
	case c.ops != nil:
		flagged = c.ops.Fold(c.of(i), src)
	default:
		flagged = p.cells.fold(i, src)
	}
	if flagged != 0 {
		p.flag(i, flagged, false)
	}
}

// foldLast is fold for the contribution that completes the result of count
// contributions.
func (p *Pool) foldLast(i int, src []byte, first bool, count int, out []byte) {
	if out == nil {
		out = p.scratch
	}
	var flagged int
	switch {
	case first:
		flagged = p.cells.set(i, src)
	case p.after:
		flagged = p.cells.fold(i, src)
	default:
		if c := &p.int32s; c.ops != nil {
			flagged = c.ops.FoldPut(out, c.of(i), src)
		} else {
			flagged = p.cells.foldPut(i, out, src)
		}
		if flagged != 0 {
			p.flag(i, flagged, true)
		}
		return
	}
	p.finish(i, count, flagged, out)
}

// finish makes the result out of what was folded, of which the last step
// flagged some elements. The step and the encoding are one for the counters:
// of the elements that they flag the one's are always among the other's.
func (p *Pool) finish(i, count, flagged int, out []byte) {
	if out == nil {
		out = p.scratch
	}
	if p.spec.Op == Mean {
		p.cells.divide(i, count)
	}
	if p.coded != nil {
		p.coded.state.Round = uint64(p.versions[i].round)*uint64(p.spec.Slots) + uint64(i/Versions)
	}
	if flagged = max(flagged, p.cells.put(i, out)); flagged != 0 {
		p.flag(i, flagged, true)
	}
	if p.coded != nil {
		p.coded.keep(i, out)
	}
}

// bring is fold by rule Rounds.
func (p *Pool) bring(i int, src []byte) {
	v := &p.versions[i]
	first := v.valued == 0
	v.valued++
	p.fold(i, src, first)
}

// bringLast is foldLast by rule Rounds, for a contribution that may be one without values.
func (p *Pool) bringLast(i int, src []byte, none bool, out []byte) {
	if none {
		p.finishValued(i, out)
		return
	}
	v := &p.versions[i]
	first := v.valued == 0
	v.valued++
	p.foldLast(i, src, first, int(v.valued), out)
}

// finishValued makes the result out of the contributions with values that were folded; where there were none it is zeros.
func (p *Pool) finishValued(i int, out []byte) {
	n := int(p.versions[i].valued)
	if n == 0 {
		p.cells.zero(i)
	}
	p.finish(i, max(n, 1), 0, out)
}

// answer encodes a stored result again. Its flags are known.
func (p *Pool) answer(i int, out []byte) {
	if out != nil {
		p.cells.put(i, out)
	}
}

// take is fold and foldLast in the order of ranks: a contribution is folded
// when all ranks below have come, together with those that wait for it, or else
// kept. Its bit in the bitmap is set.
func (p *Pool) take(i int, c *Contribution, out []byte) {
	v := &p.versions[i]
	r := int(v.next)
	if c.Worker != r {
		copy(p.keptArea(i, c.Worker), c.Values)
		p.keptLens[i*p.nkept+c.Worker-1] = int32(len(c.Values)) // 0 for None
		return
	}
	seen := p.bitmap(i)
	for src := c.Values; ; src = p.keep(i, r) {
		if r == p.spec.Workers-1 {
			p.bringLast(i, src, len(src) == 0, out)
			r++
			break
		}
		if len(src) > 0 {
			p.bring(i, src)
		}
		if r++; seen[r>>6]>>(r&63)&1 == 0 {
			break
		}
	}
	v.next = uint16(r)
}

// takeRest folds the contributions that are kept, although lower ranks have not
// come and will not.
func (p *Pool) takeRest(i int) {
	if p.nkept == 0 {
		return
	}
	v := &p.versions[i]
	seen := p.bitmap(i)
	for r := int(v.next); r < p.spec.Workers; r++ {
		if seen[r>>6]>>(r&63)&1 == 1 {
			if src := p.keep(i, r); len(src) > 0 {
				p.bring(i, src)
			}
		}
	}
	v.next = uint16(p.spec.Workers)
}

// keep is where version i keeps the contribution of a rank above 0; it is empty when there are no values in it.
func (p *Pool) keep(i, rank int) []byte {
	return p.keptArea(i, rank)[:p.keptLens[i*p.nkept+rank-1]]
}

// keptArea is the room for it.
func (p *Pool) keptArea(i, rank int) []byte {
	off := (i*p.nkept + rank - 1) * p.stride
	return p.kept[off : off+p.wire]
}

// setExponents and maxExponents combine as many exponents as the spec has.
func (p *Pool) setExponents(v *version, e [2]int8) {
	for i := range p.spec.Exponents {
		v.exps[i] = e[i]
	}
}

func (p *Pool) maxExponents(v *version, e [2]int8) {
	for i := range p.spec.Exponents {
		v.exps[i] = max(v.exps[i], e[i])
	}
}
