package aggregation

import (
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

var workerCounts = rapid.OneOf(rapid.IntRange(1, 5), rapid.SampledFrom([]int{8, 31, 32, 33, 63, 64, 65, 130}))

// tape is random numbers of which each is one event of a test. They come from a
// seed, because numbers drawn one by one are mostly small, and then the fields
// cut out of them are mostly 0.
func tape(t *rapid.T) []uint32 {
	rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
	ops := make([]uint32, rapid.SampledFrom([]int{5, 20, 60, 120, 400}).Draw(t, "events"))
	for i := range ops {
		ops[i] = rng.Uint32()
	}
	return ops
}

// Any packets at all, sensible or not: what the pool says and stores is what the
// switch's program says and stores.
func TestSwitchMLEqualsProgram(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, elements, slots := workerCounts.Draw(t, "workers"), rapid.IntRange(1, 19).Draw(t, "elements"), rapid.IntRange(1, 3).Draw(t, "slots")
		p := mustPool(t, Spec{Workers: n, Slots: slots, Elements: elements, Exponents: 2})
		models := make([]*p4Slot, slots)
		for i := range models {
			models[i] = newP4Slot(n)
		}
		out := make([]byte, 4*elements)
		turn := 0
		for k, op := range tape(t) {
			slot, set, w := int(op&3)%slots, int(op>>2&1), int(op>>3&0xff)%n
			if op>>27 < 24 { // three of four packets come as correct workers send them
				slot, set, w = 0, turn/n&1, turn%n
				turn++
			}
			exps := [2]int8{int8(op >> 11), int8(op >> 19)}
			vals := values(elements, slot, w, uint32(k))
			m := models[slot]
			want := m.step(w, set, exps, vals)
			got := p.Contribute(&Contribution{Slot: slot, Set: set, Worker: w, Exponents: exps, Values: encode(vals)}, 0, out)
			if got != want {
				t.Fatalf("packet %d of worker %d for slot %d set %d: %v, want %v", k, w, slot, set, got, want)
			}
			if got.HasResult() && !slices.Equal(decode(out), m.vals[set]) {
				t.Fatalf("packet %d: result %v, want %v", k, decode(out), m.vals[set])
			}
			if e0, e1 := p.Exponents(slot, set); (e0 != m.exps[set][0] || e1 != m.exps[set][1]) && len(m.vals[set]) > 0 {
				t.Fatalf("packet %d: exponents %d %d, want %v", k, e0, e1, m.exps[set])
			}
			collecting := 0
			for _, m := range models {
				for s := range 2 {
					if m.count[s] != 0 {
						collecting++
					}
				}
			}
			if p.Collecting() != collecting {
				t.Fatalf("packet %d: %d collecting, want %d", k, p.Collecting(), collecting)
			}
		}
	})
}

// Any packets at all, aborts and ends at a deadline in between: what the pool
// says and stores is what the rule says.
func TestRoundsEqualsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, elements := workerCounts.Draw(t, "workers"), rapid.IntRange(1, 19).Draw(t, "elements")
		base := rapid.SampledFrom([]uint32{0, 7, 1<<31 - 2, 1<<32 - 2}).Draw(t, "first round")
		p := mustPool(t, Spec{Rule: Rounds, Workers: n, Slots: 2, Elements: elements, Exponents: 1, Stragglers: Partial, Deadline: 1})
		models := []*roundSlot{newRoundSlot(n), newRoundSlot(n)}
		turns := make([]int, 2)
		out := make([]byte, 4*elements)
		for k, op := range tape(t) {
			slot := int(op & 1)
			m := models[slot]
			if op>>1&0x1f == 0x1f {
				p.Abort(slot)
				m.abort()
				continue
			}
			if op>>1&0x1f == 0x1e {
				x := m.rounds[m.top]
				want := m.used && !x.done
				if got := p.CompletePartial(slot, int(m.top&1), out); got != want {
					t.Fatalf("packet %d: end of round %d: %v, want %v", k, m.top, got, want)
				}
				if want {
					x.done = true
					if !slices.Equal(decode(out), x.vals) || p.State(slot, int(m.top&1)).Count != len(x.seen) {
						t.Fatalf("packet %d: partial result %v of %d", k, decode(out), p.State(slot, int(m.top&1)).Count)
					}
				}
				continue
			}
			// Around the current round, seldom far away.
			r := base
			if m.used {
				r = m.top
			} else if m.floor != nil {
				r = *m.floor
			}
			r += []uint32{0, 0, 0, 0, 0, 1, 1, 1, ^uint32(0), ^uint32(0), ^uint32(1), 2, 3, ^uint32(2), 1 << 31, 1<<31 + 1}[op>>6&15]
			w, exp := int(op>>10&0xff)%n, int8(op>>18)
			if op>>27 < 24 { // three of four packets come from workers in turn
				w = turns[slot] % n
				turns[slot]++
			}
			vals := values(elements, slot, w, uint32(k))
			want := m.step(w, r, exp, vals)
			got := p.Contribute(&Contribution{Slot: slot, Worker: w, Round: r, Exponents: [2]int8{exp}, Values: encode(vals)}, 0, out)
			if got != want {
				t.Fatalf("packet %d of worker %d for slot %d round %d (at %d): %v, want %v", k, w, slot, r, m.top, got, want)
			}
			if x := m.rounds[r]; got.HasResult() {
				if e0, _ := p.Exponents(slot, int(r&1)); !slices.Equal(decode(out), x.vals) || e0 != x.exp {
					t.Fatalf("packet %d: result %v exponent %d, want %v %d", k, decode(out), e0, x.vals, x.exp)
				}
				if s := p.State(slot, int(r&1)); s.Phase != Complete || s.Round != r || s.Count != len(x.seen) {
					t.Fatalf("packet %d: %+v", k, s)
				}
			}
			collecting := 0
			for _, m := range models {
				if m.used && !m.rounds[m.top].done {
					collecting++
				}
			}
			if p.Collecting() != collecting {
				t.Fatalf("packet %d: %d collecting, want %d", k, p.Collecting(), collecting)
			}
		}
	})
}

// packet is one contribution or one result on its way.
type packet struct {
	worker, slot int
	round        uint32
	result       []byte // nil for a contribution
}

// network runs workers over a pool. Each worker contributes to every slot,
// round after round, and goes on when it has the result. The tape of random
// numbers decides what happens next to the packets under way.
type network struct {
	t       *rapid.T
	pool    *Pool
	n       int
	slots   int
	first   uint32
	rounds  uint32
	at      [][]uint32 // [worker][slot]: rounds finished
	up      [][]packet // contributions under way, by worker
	down    [][]packet // results under way, by worker
	ordered bool       // packets of one worker stay in order, as SwitchML needs
	counted int
	done    int
}

func (x *network) send(w, slot int) {
	if k := x.at[w][slot]; k < x.rounds {
		x.up[w] = append(x.up[w], packet{worker: w, slot: slot, round: x.first + k})
	}
}

func (x *network) deliver(p packet) {
	elements := x.pool.Spec().Elements
	out := make([]byte, 4*elements)
	c := Contribution{Slot: p.slot, Set: int(p.round & 1), Worker: p.worker, Round: p.round, Values: encode(values(elements, p.slot, p.worker, p.round))}
	o := x.pool.Contribute(&c, 0, out)
	switch {
	case o.Counted():
		x.counted++
	case o == Early || o >= Aborted:
		x.t.Fatalf("worker %d slot %d round %d: %v", p.worker, p.slot, p.round, o)
	case x.ordered && o == Stale:
		x.t.Fatalf("worker %d slot %d round %d: %v", p.worker, p.slot, p.round, o)
	}
	if !o.HasResult() {
		return
	}
	if want := sum(elements, p.slot, x.n, p.round); !slices.Equal(decode(out), want) {
		x.t.Fatalf("slot %d round %d %v: %v, want %v", p.slot, p.round, o, decode(out), want)
	}
	r := packet{slot: p.slot, round: p.round, result: out}
	if o == Answered {
		x.down[p.worker] = append(x.down[p.worker], r)
		return
	}
	x.done++
	for w := range x.down {
		x.down[w] = append(x.down[w], r)
	}
}

func (x *network) receive(w int, r packet) {
	if x.first+x.at[w][r.slot] != r.round {
		return // a duplicate of an older result
	}
	x.at[w][r.slot]++
	x.send(w, r.slot)
}

// step takes one decision: which worker, which direction, which packet, and
// whether it is delivered, lost, or delivered and delivered again later.
func (x *network) step(op uint32) {
	w := int(op&0xff) % x.n
	q := &x.up[w]
	if op>>8&1 == 1 {
		q = &x.down[w]
	}
	fate := op >> 9 & 7
	if len(*q) == 0 || fate == 0 {
		x.send(w, int(op>>12&0xff)%x.slots) // a timer runs out
		return
	}
	i := 0
	if !x.ordered {
		i = int(op>>12&0xff) % len(*q)
	}
	p := (*q)[i]
	if fate != 1 { // 1: the network duplicates it
		*q = slices.Delete(*q, i, i+1)
	}
	if fate == 2 {
		return // lost
	}
	if p.result == nil {
		x.deliver(p)
	} else {
		x.receive(w, p)
	}
}

// finish resends and delivers everything until all workers are done.
func (x *network) finish() {
	for turn := 0; ; turn++ {
		open := false
		for w := range x.n {
			for s := range x.slots {
				if x.at[w][s] < x.rounds {
					open = true
					x.send(w, s)
				}
			}
		}
		if !open {
			break
		}
		if turn > 4*int(x.rounds) {
			x.t.Fatalf("workers at %v after %d turns", x.at, turn)
		}
		for w := range x.n {
			for len(x.up[w]) > 0 {
				p := x.up[w][0]
				x.up[w] = x.up[w][1:]
				x.deliver(p)
			}
		}
		for w := range x.n {
			for len(x.down[w]) > 0 {
				r := x.down[w][0]
				x.down[w] = x.down[w][1:]
				x.receive(w, r)
			}
		}
	}
	want := int(x.rounds) * x.slots
	if x.done != want || x.counted != want*x.n {
		x.t.Fatalf("%d results of %d contributions, want %d of %d", x.done, x.counted, want, want*x.n)
	}
}

func runNetwork(t *rapid.T, rule Rule, first uint32) {
	n, slots := rapid.OneOf(rapid.IntRange(1, 4), rapid.SampledFrom([]int{8, 65})).Draw(t, "workers"), rapid.IntRange(1, 2).Draw(t, "slots")
	x := &network{
		t: t, n: n, slots: slots, first: first, rounds: uint32(rapid.IntRange(1, 4).Draw(t, "rounds")),
		pool:    mustPool(t, Spec{Rule: rule, Workers: n, Slots: slots, Elements: rapid.IntRange(1, 5).Draw(t, "elements")}),
		ordered: rule == SwitchML,
		up:      make([][]packet, n), down: make([][]packet, n), at: make([][]uint32, n),
	}
	for w := range n {
		x.at[w] = make([]uint32, slots)
		for s := range slots {
			x.send(w, s)
		}
	}
	for _, op := range tape(t) {
		x.step(op)
	}
	x.finish()
}

// Loss, duplication, resends and any order over all packets: every result is
// the sum, every contribution counts once, every round completes once.
func TestRoundsOverAnyNetwork(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		runNetwork(t, Rounds, rapid.SampledFrom([]uint32{0, 1, 1<<31 - 1, 1<<32 - 2}).Draw(t, "first round"))
	})
}

// The same for SwitchML, over a network that keeps each worker's packets in order.
func TestSwitchMLOverOrderedNetwork(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { runNetwork(t, SwitchML, 0) })
}
