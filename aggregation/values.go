package aggregation

import "gradnic/aggregation/kernel"

// set starts a version's values with a first contribution.
func (p *Pool) set(i int, src []byte) { kernel.SetInt32BE(p.vals(i), src) }

// add adds a contribution.
func (p *Pool) add(i int, src []byte) {
	p.wrapped += uint64(kernel.AddInt32BE(p.vals(i), src))
}

// setPut is set for a contribution that is the result at the same time.
func (p *Pool) setPut(i int, src, out []byte) {
	kernel.SetInt32BE(p.vals(i), src)
	copy(out, src)
}

// addPut is add for the contribution that completes the result.
func (p *Pool) addPut(i int, src, out []byte) {
	if out == nil {
		p.add(i, src)
		return
	}
	p.wrapped += uint64(kernel.AddPutInt32BE(out, p.vals(i), src))
}

// put encodes a stored result.
func (p *Pool) put(i int, out []byte) {
	if out != nil {
		kernel.PutInt32BE(out, p.vals(i))
	}
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
