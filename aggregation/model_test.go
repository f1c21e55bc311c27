package aggregation

import (
	"encoding/binary"
	"flag"
	"os"
	"slices"
	"testing"
)

// The property tests run 10,000 cases each, 1,000 under the race detector;
// -rapid.checks=N on the command line changes that.
func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", checks); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// p4Slot is the switch's rule on one slot, written down again with maps.
type p4Slot struct {
	spec     Spec
	counters *Counters
	bitmap   [2]map[int]bool
	count    [2]int
	exps     [2][2]int8
	cells    [2]*numbers
}

func newP4Slot(s Spec, counters *Counters) *p4Slot {
	return &p4Slot{spec: s, counters: counters, bitmap: [2]map[int]bool{{}, {}}}
}

func (m *p4Slot) step(w, s int, exps [2]int8, vals []byte) (Outcome, []byte) {
	n := m.spec.Workers
	fresh, seen := len(m.bitmap[s]) == 0, m.bitmap[s][w]
	m.bitmap[s][w] = true
	delete(m.bitmap[1-s], w)
	flag := m.count[s]
	if n == 1 {
		flag = map[bool]int{false: 1, true: 0}[seen]
	} else if !seen {
		m.count[s] = (m.count[s] + n - 1) % n
	}
	var result []byte
	if !seen {
		if fresh {
			m.cells[s], m.exps[s] = &numbers{Spec: m.spec, counters: m.counters}, [2]int8{-128, -128}
		}
		result = m.cells[s].take(fresh, vals, map[bool]int{true: n}[flag == 1])
		m.exps[s] = [2]int8{max(m.exps[s][0], exps[0]), max(m.exps[s][1], exps[1])}
	}
	switch {
	case !seen && flag == 1:
		return Completed, result
	case seen && flag == 0:
		return Answered, m.cells[s].encode(make([]bool, m.spec.Elements))
	case seen:
		return Duplicate, nil
	}
	return Added, nil
}

// roundSlot is the rule with rounds on one slot, written down again with maps.
type roundSlot struct {
	spec     Spec
	counters *Counters
	rounds   map[uint32]*round
	used     bool
	top      uint32
	floor    *uint32 // last aborted round
	started  int     // rounds since then
}

type round struct {
	arrived []int          // ranks
	sent    map[int][]byte // empty: without values
	quiet   []bool         // as arrived
	exp     int8
	done    bool
	result  []byte
	flags   Flags
}

func newRoundSlot(s Spec, counters *Counters) *roundSlot {
	return &roundSlot{spec: s, counters: counters, rounds: map[uint32]*round{}}
}

func (m *roundSlot) step(w int, r uint32, exp int8, vals []byte, quiet bool) Outcome {
	if m.floor != nil && m.started < 2 && int32(r-*m.floor) <= 0 {
		return Aborted
	}
	ahead := int32(r - m.top)
	switch {
	case !m.used || ahead == 1 && m.rounds[m.top].done:
		m.rounds[r] = &round{sent: map[int][]byte{}, exp: -128}
		m.used, m.top = true, r
		m.started++
	case ahead > 0:
		return Early
	case ahead < -1 || m.rounds[r] == nil:
		return Stale
	}
	x := m.rounds[r]
	if x.done {
		return Answered
	}
	if x.sent[w] != nil {
		return Duplicate
	}
	x.arrived = append(x.arrived, w)
	x.sent[w] = vals
	x.exp = max(x.exp, exp)
	x.quiet = append(x.quiet, quiet)
	if len(x.sent) == m.spec.Workers {
		x.complete(m.spec, m.counters)
		return Completed
	}
	return Added
}

// complete works out the result of those who came. Where the order makes no
// difference to the values it makes one to the counters of wraps and clamps,
// and ranked pools then go by arrival.
func (x *round) complete(s Spec, counters *Counters) {
	order := slices.Clone(x.arrived)
	if s.Order == Ranked {
		slices.Sort(order)
	}
	gather := func(order []int) (all [][]byte) {
		for _, w := range order {
			if len(x.sent[w]) > 0 { // it brought values
				all = append(all, x.sent[w])
			}
		}
		return all
	}
	var partial Flags
	if len(order) < s.Workers {
		partial = FlagPartial
		counters.Partial++
	}
	x.done = true
	if len(gather(order)) == 0 {
		x.result, _ = result(s, &Counters{}, make([]byte, s.WireBytes()))
		x.flags = partial
		return
	}
	if s.Order == Ranked && s.kept() == 0 {
		x.result, _ = result(s, &Counters{}, gather(order)...)
		_, x.flags = resultOf(s, counters, partial != 0, gather(x.arrived)...)
	} else {
		x.result, x.flags = resultOf(s, counters, partial != 0, gather(order)...)
	}
	x.flags |= partial
}

func (m *roundSlot) abort() {
	if m.used {
		floor := m.top
		*m = roundSlot{spec: m.spec, counters: m.counters, rounds: map[uint32]*round{}, floor: &floor}
	}
}

func encode(v []int32) []byte {
	b := make([]byte, 0, 4*len(v))
	for _, x := range v {
		b = binary.BigEndian.AppendUint32(b, uint32(x))
	}
	return b
}

func decode(b []byte) []int32 {
	v := make([]int32, len(b)/4)
	for i := range v {
		v[i] = int32(binary.BigEndian.Uint32(b[4*i:]))
	}
	return v
}

// values is what worker w contributes to round k of a slot in the tests: large
// enough to wrap, different in every element.
func values(n, slot, w int, k uint32) []int32 {
	v := make([]int32, n)
	for i := range v {
		v[i] = int32(uint32(i+1)*0x9e3779b1 ^ uint32(w+1)*0x85ebca6b ^ (k+1)*0xc2b2ae35 ^ uint32(slot)*0x27d4eb2f)
	}
	return v
}

func sum(n, slot, workers int, k uint32) []int32 {
	s := make([]int32, n)
	for w := range workers {
		for i, v := range values(n, slot, w, k) {
			s[i] += v
		}
	}
	return s
}

func mustPool(t interface {
	Helper()
	Fatal(...any)
}, s Spec) *Pool {
	t.Helper()
	p, err := NewPool(s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
