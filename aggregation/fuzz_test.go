package aggregation

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
)

// FuzzContribute plays bytes as packets, good and hostile, against both rules.
// Four bytes choose the pool: rule, type, operation, policy, order and size;
// then eight bytes are one event. By rule Rounds some come without values, and some take a result without values. The pool must
// agree with the rules as written down in the models, and never panic.
func FuzzContribute(f *testing.F) {
	f.Add([]byte{0, 3, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0})
	f.Add([]byte{1, 1, 0, 5, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 1, 0, 0, 0, 8, 200, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{1, 64, 3, 16, 0, 0, 5, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 6, 0, 0, 0, 0, 0, 201, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 9, 9, 9, 9, 9, 9, 9, 9})
	for typ := range byte(8) { // every type, by rounds and ranked: rank 1 before rank 0, a round with special values, a deadline
		head := []byte{0x81 | typ<<1 | typ%2<<6, 1, typ << 1, 16}
		for round := range byte(3) {
			head = append(head, 0, 0, 1, 0, 0, 0, 0, round, 0, 0, 0, 0, 0, 0, 0, round)
		}
		f.Add(append(head, 0, 0, 1, 0, 0, 0, 0, 3, 201, 0, 0, 0, 0, 0, 1, 0))
	}
	for k := range byte(4) { // rounds of three: nobody brings values, the last one does, the first; sums and means, both orders, deadlines, an abort
		op, ranked := k&1, k>>1
		head := []byte{1 | Float32.fuzzed() | op<<4 | ranked<<7, 2, op << 2, 16}
		for round, sends := range [][3]byte{{1, 1, 3}, {3, 1, 2}, {0, 3, 1}, {2, 1, 0}} {
			for w, s := range sends {
				head = append(head, 0, 0, byte(w), s, 0, 0, 0, byte(round))
			}
		}
		head = append(head, 0, 0, 1, 3, 0, 0, 0, 4, 201, 0, 0, 0, 0, 0, 1, 0) // without values alone
		head = append(head, 0, 0, 2, 1, 0, 0, 0, 5, 0, 0, 0, 2, 0, 0, 0, 5, 201, 0, 0, 0, 0, 0, 1, 0)
		head = append(head, 0, 0, 2, noneWithValues, 0, 0, 0, 6, 0, 0, 2, 2, 0, 0, 0, 6, 200, 0, 0, 0, 0, 0, 0, 0)
		for w, s := range []byte{2, 0, 1} { // the version that had a quiet worker
			head = append(head, 0, 0, byte(w), s, 0, 0, 0, 8)
		}
		f.Add(head)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < 4 {
			return
		}
		spec := Spec{
			Workers: 1 + int(b[1]), Slots: 1 + int(b[2])%4, Elements: 1 + int(b[3])%20, Exponents: 2, Deadline: 100,
			Type: Type(b[0] >> 1 & 7), Op: Op(b[0] >> 4 & 3), Policy: Policy(b[0] >> 6 & 1), ByteOrder: ByteOrder(b[2] >> 2 & 1),
		}
		if b[0]&1 == 1 {
			spec.Rule, spec.Stragglers = Rounds, Partial
			if b[0]>>7 == 1 {
				spec.Order, spec.Workers = Ranked, 1+int(b[1])%MaxRankedWorkers
			}
		}
		p := mustPool(t, spec)
		var counters Counters
		unfinished := false
		sw, ro := make([]*p4Slot, spec.Slots), make([]*roundSlot, spec.Slots)
		for i := range spec.Slots {
			sw[i], ro[i] = newP4Slot(spec, &counters), newRoundSlot(spec, &counters)
		}
		out := make([]byte, spec.WireBytes())
		for b = b[4:]; len(b) >= 8; b = b[8:] {
			slot, r := int(b[0]), binary.BigEndian.Uint32(b[4:])
			switch slot {
			case 200: // a job's slot is aborted
				s := int(b[1]) % spec.Slots
				unfinished = unfinished || spec.Rule == Rounds && p.Collecting() > 0
				p.Abort(s)
				sw[s] = newP4Slot(spec, &counters)
				ro[s].abort()
				continue
			case 201: // time passes
				for s, set, next, ok := p.NextOverdue(int64(r), 0); ok; s, set, next, ok = p.NextOverdue(int64(r), next) {
					if p.CompletePartial(s, set, out) != (spec.Rule == Rounds) {
						t.Fatal("a round ended, or did not, against the policy")
					}
					if spec.Rule == Rounds {
						x := ro[s].rounds[ro[s].top]
						x.complete(spec, &counters)
						if err := x.is(p, s, set, out); err != nil {
							t.Fatalf("%+v: partial: %v", spec, err)
						}
					}
				}
				continue
			}
			c := Contribution{Slot: slot, Set: int(int8(b[3])), Worker: int(binary.BigEndian.Uint16(b[1:])), Round: r, Exponents: [2]int8{int8(b[6]), int8(b[7])}}
			vals := wireValues(spec, slot, c.Worker, r)
			c.Values = vals
			switch {
			case b[3] == shortValues:
				c.Values = c.Values[1:]
			case b[3] == noneWithValues:
				c.None = true
			case b[3] == noneInASet, spec.Rule == Rounds && b[3]&1 == 1:
				c.None, c.Values, vals = true, nil, []byte{}
			}
			c.Quiet = b[3]&2 == 2
			got := p.Contribute(&c, int64(b[4]), out)
			want := InvalidSet
			var result []byte
			var flags Flags
			switch {
			case slot >= spec.Slots:
				want = InvalidSlot
			case c.Worker >= spec.Workers:
				want = InvalidWorker
			case b[3] == shortValues, b[3] == noneWithValues, c.None && spec.Rule == SwitchML:
				want = InvalidLength
			case spec.Rule == Rounds:
				want = ro[slot].step(c.Worker, r, c.Exponents[0], vals, c.Quiet)
				if got.HasResult() && want == got {
					if err := ro[slot].rounds[r].is(p, slot, int(r&1), out); err != nil {
						t.Fatalf("%+v %+v: %v", spec, c, err)
					}
				}
			case c.Set == 0 || c.Set == 1:
				want, result = sw[slot].step(c.Worker, c.Set, c.Exponents, vals)
				flags = sw[slot].cells[c.Set].flags
			}
			if got != want {
				t.Fatalf("%+v: %v, want %v", c, got, want)
			}
			if spec.Rule == SwitchML && got.HasResult() && (!bytes.Equal(out, result) || p.Flags(slot, c.Set) != flags) {
				t.Fatalf("%+v %+v: result %x %v, want %x %v", spec, c, out, p.Flags(slot, c.Set), result, flags)
			}
		}
		collecting := 0
		p.Walk(func(slot, set int, s State) bool {
			collecting++
			if s.Phase != Collecting || s.Count < 1 || spec.Rule == Rounds && s.Count+len(p.Missing(nil, slot, set)) != spec.Workers {
				t.Fatalf("slot %d set %d: %+v, waits for %v", slot, set, s, p.Missing(nil, slot, set))
			}
			return true
		})
		if collecting != p.Collecting() {
			t.Fatalf("walked over %d, counter says %d", collecting, p.Collecting())
		}
		// The model of rounds counts what befell values when a round is complete, the pool as it adds them.
		if unfinished = unfinished || spec.Rule == Rounds && collecting > 0; !unfinished && p.Counters() != counters {
			t.Fatalf("%+v: counters %+v, want %+v", spec, p.Counters(), counters)
		}
	})
}

// What an event's fourth byte says; otherwise it is the set, or by rule Rounds two bits: without values, and quiet.
const (
	noneInASet     = 0x7d // without values, also where the rule has no such thing
	noneWithValues = 0x7e
	shortValues    = 0x7f
)

// fuzzed is the type as it stands in the first byte of an input.
func (t Type) fuzzed() byte { return byte(t) << 1 }

// is compares what a pool has of a complete round, whose result is in out, with the model's.
func (x *round) is(p *Pool, slot, set int, out []byte) error {
	s := p.State(slot, set)
	if !bytes.Equal(out, x.result) || s.Flags != x.flags || p.Flags(slot, set) != x.flags || s.Count != len(x.sent) {
		return fmt.Errorf("result %x, %+v, want %x %v of %d", out, s, x.result, x.flags, len(x.sent))
	}
	if e, _ := p.Exponents(slot, set); e != x.exp {
		return fmt.Errorf("exponent %d, want %d", e, x.exp)
	}
	again := make([]byte, len(out))
	if p.Result(slot, set, again); !bytes.Equal(again, out) {
		return fmt.Errorf("result %x, and %x when it is asked for", out, again)
	}
	want := make([]uint64, p.spec.words())
	for i, w := range x.arrived {
		if x.quiet[i] {
			want[w>>6] |= 1 << (w & 63)
		}
	}
	if got := p.Quiet(slot, set); !slices.Equal(got, want) && (got != nil || anyBit(want)) {
		return fmt.Errorf("quiet are %x, want %x", got, want)
	}
	return nil
}
