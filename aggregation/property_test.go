package aggregation

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

var workerCounts = rapid.OneOf(rapid.IntRange(1, 5), rapid.SampledFrom([]int{8, 31, 32, 33, 63, 64, 65, 130}))

// anyNumbers draws all of a spec that is about numbers.
func anyNumbers(t *rapid.T, s Spec) Spec {
	s.Type = rapid.SampledFrom([]Type{Int32, Int64, Int8, Float32, Float64, Float16, BFloat16, BFP16}).Draw(t, "type")
	s.ByteOrder = rapid.SampledFrom([]ByteOrder{BigEndian, LittleEndian}).Draw(t, "byte order")
	s.Op = rapid.SampledFrom([]Op{Sum, Mean, Min, Max}).Draw(t, "operation")
	s.Policy = rapid.SampledFrom([]Policy{Propagate, Saturate}).Draw(t, "policy")
	if s.Rule == Rounds && s.Workers <= MaxRankedWorkers {
		s.Order = rapid.SampledFrom([]Order{Arrival, Ranked}).Draw(t, "order")
	}
	return s
}

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
		spec := anyNumbers(t, Spec{Workers: n, Slots: slots, Elements: elements, Exponents: 2})
		p := mustPool(t, spec)
		models := make([]*p4Slot, slots)
		var counters Counters
		for i := range models {
			models[i] = newP4Slot(spec, &counters)
		}
		out := make([]byte, spec.WireBytes())
		turn := 0
		for k, op := range tape(t) {
			slot, set, w := int(op&3)%slots, int(op>>2&1), int(op>>3&0xff)%n
			if op>>27 < 24 { // three of four packets come as correct workers send them
				slot, set, w = 0, turn/n&1, turn%n
				turn++
			}
			exps := [2]int8{int8(op >> 11), int8(op >> 19)}
			vals := wireValues(spec, slot, w, uint32(k))
			m := models[slot]
			want, result := m.step(w, set, exps, vals)
			got := p.Contribute(&Contribution{Slot: slot, Set: set, Worker: w, Exponents: exps, Values: vals}, 0, out)
			if got != want {
				t.Fatalf("packet %d of worker %d for slot %d set %d: %v, want %v", k, w, slot, set, got, want)
			}
			if got.HasResult() && (!bytes.Equal(out, result) || p.Flags(slot, set) != m.cells[set].flags) {
				t.Fatalf("%+v packet %d of worker %d for slot %d set %d, %x: %v, result %x %v, want %x %v", spec, k, w, slot, set, vals, got, out, p.Flags(slot, set), result, m.cells[set].flags)
			}
			if p.Counters() != counters {
				t.Fatalf("%+v packet %d: counters %+v, want %+v", spec, k, p.Counters(), counters)
			}
			if e0, e1 := p.Exponents(slot, set); (e0 != m.exps[set][0] || e1 != m.exps[set][1]) && m.cells[set] != nil {
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
		spec := anyNumbers(t, Spec{Rule: Rounds, Workers: n, Slots: 2, Elements: elements, Exponents: 1, Stragglers: Partial, Deadline: 1})
		p := mustPool(t, spec)
		var counters Counters
		models := []*roundSlot{newRoundSlot(spec, &counters), newRoundSlot(spec, &counters)}
		turns := make([]int, 2)
		out := make([]byte, spec.WireBytes())
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
					x.complete(spec, &counters)
					s := p.State(slot, int(m.top&1))
					if !bytes.Equal(out, x.result) || s.Count != len(x.sent) || s.Flags != x.flags {
						t.Fatalf("%+v packet %d: partial result %x, %+v, want %x %v", spec, k, out, s, x.result, x.flags)
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
			vals, none, quiet := wireValues(spec, slot, w, uint32(k)), op>>16&3 == 3, op>>20&7 > 4
			if none {
				vals = []byte{}
			}
			want := m.step(w, r, exp, vals, quiet)
			got := p.Contribute(&Contribution{Slot: slot, Worker: w, Round: r, Exponents: [2]int8{exp}, Values: vals, None: none, Quiet: quiet}, 0, out)
			if got != want {
				t.Fatalf("packet %d of worker %d for slot %d round %d (at %d): %v, want %v", k, w, slot, r, m.top, got, want)
			}
			if x := m.rounds[r]; got.HasResult() {
				if e0, _ := p.Exponents(slot, int(r&1)); !bytes.Equal(out, x.result) || e0 != x.exp {
					t.Fatalf("%+v packet %d: result %x exponent %d, want %x %d", spec, k, out, e0, x.result, x.exp)
				}
				if s := p.State(slot, int(r&1)); s.Phase != Complete || s.Round != r || s.Count != len(x.sent) || s.Flags != x.flags {
					t.Fatalf("%+v packet %d: %+v, want flags %v", spec, k, s, x.flags)
				}
				bits := p.Quiet(slot, int(r&1))
				for i, w := range x.arrived {
					if got := bits != nil && bits[w>>6]>>(w&63)&1 == 1; got != x.quiet[i] {
						t.Fatalf("packet %d: worker %d is quiet: %v", k, w, got)
					}
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

	played   map[[2]uint32]*round // by slot and round
	counters Counters
}

func (x *network) send(w, slot int) {
	if k := x.at[w][slot]; k < x.rounds {
		x.up[w] = append(x.up[w], packet{worker: w, slot: slot, round: x.first + k})
	}
}

func (x *network) deliver(p packet) {
	spec := x.pool.Spec()
	out := make([]byte, spec.WireBytes())
	vals := wireValues(spec, p.slot, p.worker, p.round)
	c := Contribution{Slot: p.slot, Set: int(p.round & 1), Worker: p.worker, Round: p.round, Values: vals}
	o := x.pool.Contribute(&c, 0, out)
	key := [2]uint32{uint32(p.slot), p.round}
	if x.played[key] == nil {
		x.played[key] = &round{sent: map[int][]byte{}}
	}
	r := x.played[key]
	switch {
	case o.Counted():
		x.counted++
		r.arrived = append(r.arrived, p.worker)
		r.sent[p.worker] = vals
		if len(r.arrived) == x.n {
			r.complete(spec, &x.counters)
		}
	case o == Early || o >= Aborted:
		x.t.Fatalf("worker %d slot %d round %d: %v", p.worker, p.slot, p.round, o)
	case x.ordered && o == Stale:
		x.t.Fatalf("worker %d slot %d round %d: %v", p.worker, p.slot, p.round, o)
	}
	if !o.HasResult() {
		return
	}
	if flags := x.pool.Flags(p.slot, int(p.round&1)); !bytes.Equal(out, r.result) || flags != r.flags {
		x.t.Fatalf("%+v slot %d round %d %v: %x %v, want %x %v", spec, p.slot, p.round, o, out, flags, r.result, r.flags)
	}
	reply := packet{slot: p.slot, round: p.round, result: out}
	if o == Answered {
		x.down[p.worker] = append(x.down[p.worker], reply)
		return
	}
	x.done++
	for w := range x.down {
		x.down[w] = append(x.down[w], reply)
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
	if x.pool.Counters() != x.counters {
		x.t.Fatalf("%+v: counters %+v, want %+v", x.pool.Spec(), x.pool.Counters(), x.counters)
	}
}

func runNetwork(t *rapid.T, rule Rule, first uint32) {
	n, slots := rapid.OneOf(rapid.IntRange(1, 4), rapid.SampledFrom([]int{8, 65})).Draw(t, "workers"), rapid.IntRange(1, 2).Draw(t, "slots")
	x := &network{
		t: t, n: n, slots: slots, first: first, rounds: uint32(rapid.IntRange(1, 4).Draw(t, "rounds")),
		pool:    mustPool(t, anyNumbers(t, Spec{Rule: rule, Workers: n, Slots: slots, Elements: rapid.IntRange(1, 5).Draw(t, "elements")})),
		played:  map[[2]uint32]*round{},
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
