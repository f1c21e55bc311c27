package aggregation

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// FuzzContribute plays bytes as packets, good and hostile, against both rules.
// Four bytes choose the pool: rule, type, operation, policy, order and size;
// then eight bytes are one event. The pool must
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
						if x.complete(spec, &counters); !bytes.Equal(out, x.result) || p.Flags(s, set) != x.flags {
							t.Fatalf("%+v: partial result %x %v, want %x %v", spec, out, p.Flags(s, set), x.result, x.flags)
						}
					}
				}
				continue
			}
			c := Contribution{Slot: slot, Set: int(int8(b[3])), Worker: int(binary.BigEndian.Uint16(b[1:])), Round: r, Exponents: [2]int8{int8(b[6]), int8(b[7])}}
			vals := wireValues(spec, slot, c.Worker, r)
			c.Values = vals
			if b[3] == 0x7f {
				c.Values = c.Values[1:]
			}
			got := p.Contribute(&c, int64(b[4]), out)
			want := InvalidSet
			var result []byte
			var flags Flags
			switch {
			case slot >= spec.Slots:
				want = InvalidSlot
			case c.Worker >= spec.Workers:
				want = InvalidWorker
			case b[3] == 0x7f:
				want = InvalidLength
			case spec.Rule == Rounds:
				want = ro[slot].step(c.Worker, r, c.Exponents[0], vals, false)
				if x := ro[slot].rounds[r]; x != nil {
					result, flags = x.result, x.flags
				}
			case c.Set == 0 || c.Set == 1:
				want, result = sw[slot].step(c.Worker, c.Set, c.Exponents, vals)
				flags = sw[slot].cells[c.Set].flags
			}
			if got != want {
				t.Fatalf("%+v: %v, want %v", c, got, want)
			}
			if set := setOf(spec, &c); got.HasResult() && (!bytes.Equal(out, result) || p.Flags(slot, set) != flags) {
				t.Fatalf("%+v %+v: result %x %v, want %x %v", spec, c, out, p.Flags(slot, set), result, flags)
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
	})
}

// setOf is the version that a contribution is for.
func setOf(s Spec, c *Contribution) int {
	if s.Rule == Rounds {
		return int(c.Round & 1)
	}
	return c.Set
}
