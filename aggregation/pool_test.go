package aggregation

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// contribute sends values(…, w, k) and checks the outcome and, when there is
// one, the result.
func contribute(t *testing.T, p *Pool, slot, w int, k uint32, want Outcome, result []int32) {
	t.Helper()
	n := p.Spec().Elements
	out := make([]byte, 4*n)
	got := p.Contribute(&Contribution{Slot: slot, Set: int(k & 1), Worker: w, Round: k, Values: encode(values(n, slot, w, k))}, int64(k), out)
	if got != want {
		t.Fatalf("worker %d round %d: %v, want %v", w, k, got, want)
	}
	if got.HasResult() && !slices.Equal(decode(out), result) {
		t.Fatalf("worker %d round %d: result %v, want %v", w, k, decode(out), result)
	}
}

// Four workers, slot 7: worker 0 twice, then the others; a resend after
// completion; a packet of the round before.
func TestFourWorkersSlotSeven(t *testing.T) {
	for _, rule := range []Rule{SwitchML, Rounds} {
		t.Run(rule.String(), func(t *testing.T) {
			p := mustPool(t, Spec{Rule: rule, Workers: 4, Slots: 8, Elements: 64})
			r0, r1 := sum(64, 7, 4, 0), sum(64, 7, 4, 1)
			contribute(t, p, 7, 0, 0, Added, nil)
			contribute(t, p, 7, 0, 0, Duplicate, nil)
			if s := p.State(7, 0); s.Phase != Collecting || s.Count != 1 {
				t.Errorf("after worker 0 came twice: %+v", s)
			}
			contribute(t, p, 7, 1, 0, Added, nil)
			contribute(t, p, 7, 2, 0, Added, nil)
			contribute(t, p, 7, 3, 0, Completed, r0)
			contribute(t, p, 7, 1, 0, Answered, r0)
			contribute(t, p, 7, 1, 0, Answered, r0)
			for w := range 3 {
				contribute(t, p, 7, w, 1, Added, nil)
			}
			// Worker 3 lost the result of round 0 and asks again while the others are at round 1.
			contribute(t, p, 7, 3, 0, Answered, r0)
			contribute(t, p, 7, 3, 1, Completed, r1)
			if rule == Rounds {
				for w := range 4 {
					contribute(t, p, 7, w, 0, Answered, r0) // late packets of the round before
				}
				contribute(t, p, 7, 0, 1, Answered, r1)
				contribute(t, p, 7, 0, 2, Added, nil)
				contribute(t, p, 7, 0, 0, Stale, nil) // and of a round that is gone
				contribute(t, p, 7, 0, 3, Early, nil)
				if s := p.State(7, 0); s.Round != 2 || s.Count != 1 {
					t.Errorf("round 2 was touched: %+v", s)
				}
			}
		})
	}
}

// SwitchML has no round number. A stale duplicate that comes after its worker
// moved on is taken for a new contribution; the switch does the same.
func TestSwitchMLTakesStaleDuplicateAsNew(t *testing.T) {
	p := mustPool(t, Spec{Workers: 2, Slots: 1, Elements: 4})
	contribute(t, p, 0, 0, 0, Added, nil)
	contribute(t, p, 0, 1, 0, Completed, sum(4, 0, 2, 0))
	contribute(t, p, 0, 0, 1, Added, nil)
	contribute(t, p, 0, 0, 0, Added, nil) // the network delivered round 0 again
	if s := p.State(0, 0); s.Phase != Collecting {
		t.Errorf("%+v", s)
	}
}

func TestOneWorkerGetsItsOwnData(t *testing.T) {
	for _, rule := range []Rule{SwitchML, Rounds} {
		p := mustPool(t, Spec{Rule: rule, Workers: 1, Slots: 1, Elements: 5, Exponents: 2})
		for k := range uint32(100) {
			want := values(5, 0, 0, k)
			contribute(t, p, 0, 0, k, Completed, want)
			contribute(t, p, 0, 0, k, Answered, want)
			if k > 0 && rule == Rounds {
				contribute(t, p, 0, 0, k-1, Answered, values(5, 0, 0, k-1))
			}
		}
		if p.Collecting() != 0 || p.Wrapped() != 0 {
			t.Errorf("%v: %d collecting, %d wrapped", rule, p.Collecting(), p.Wrapped())
		}
	}
}

// Reuse leaves nothing behind, with as many workers as there can be, and across
// the end of the round numbers.
func TestReuse(t *testing.T) {
	for _, rule := range []Rule{SwitchML, Rounds} {
		for _, n := range []int{2, 64, 65, 1024} {
			p := mustPool(t, Spec{Rule: rule, Workers: n, Slots: 3, Elements: 3, Exponents: 2})
			for i := range uint32(100) {
				k := i - 50
				for w := range n - 1 {
					contribute(t, p, 1, w, k, Added, nil)
				}
				if got := p.Missing(nil, 1, int(k&1)); !slices.Equal(got, []int{n - 1}) {
					t.Fatalf("%v, %d workers: waits for %v", rule, n, got)
				}
				contribute(t, p, 1, n-1, k, Completed, sum(3, 1, n, k))
			}
			if idle, collecting, complete := p.Occupancy(); collecting != 0 || idle+complete != 6 || complete == 0 {
				t.Errorf("%v: %d idle, %d collecting, %d complete", rule, idle, collecting, complete)
			}
		}
	}
}

func TestExponentsAreSignedMaximum(t *testing.T) {
	for _, rule := range []Rule{SwitchML, Rounds} {
		for exponents := range 3 {
			p := mustPool(t, Spec{Rule: rule, Workers: 3, Slots: 1, Elements: 1, Exponents: exponents})
			for w, e := range [][2]int8{{-128, 5}, {-7, -128}, {-100, 127}} {
				p.Contribute(&Contribution{Worker: w, Exponents: e, Values: make([]byte, 4)}, 0, nil)
			}
			want := [3][2]int8{{0, 0}, {-7, 0}, {-7, 127}}[exponents]
			if e0, e1 := p.Exponents(0, 0); e0 != want[0] || e1 != want[1] {
				t.Errorf("%v with %d exponents: %d %d, want %v", rule, exponents, e0, e1, want)
			}
		}
	}
}

func TestWrapsAreCounted(t *testing.T) {
	for _, out := range [][]byte{nil, make([]byte, 12)} {
		p := mustPool(t, Spec{Workers: 3, Slots: 1, Elements: 3})
		add := func(w int, v ...int32) { p.Contribute(&Contribution{Worker: w, Values: encode(v)}, 0, out) }
		add(0, math.MaxInt32, math.MinInt32, 5)
		add(1, 1, -1, 6)                          // two wraps
		add(2, math.MinInt32, 0, math.MaxInt32-5) // MinInt32+MinInt32 wraps, MaxInt32+0 does not, 11+MaxInt32-5 does
		if p.Wrapped() != 4 {
			t.Errorf("%d wraps, want 4", p.Wrapped())
		}
		got := make([]byte, 12)
		p.Result(0, 0, got)
		if want := []int32{0, math.MaxInt32, math.MinInt32 + 5}; !slices.Equal(decode(got), want) {
			t.Errorf("sums %v, want %v", decode(got), want)
		}
		if out != nil && !slices.Equal(out, got) {
			t.Errorf("the result that was sent, %x, is not the one that is kept, %x", out, got)
		}
		if p.Reset(); p.Wrapped() != 0 {
			t.Error("Reset keeps the counter")
		}
	}
}

// A lane may build the result where the completing packet lies.
func TestResultMayReplaceContribution(t *testing.T) {
	for _, n := range []int{1, 3} {
		p := mustPool(t, Spec{Workers: n, Slots: 1, Elements: 67})
		for w := range n {
			b := encode(values(67, 0, w, 0))
			o := p.Contribute(&Contribution{Worker: w, Values: b}, 0, b)
			if w < n-1 {
				if o != Added || !slices.Equal(decode(b), values(67, 0, w, 0)) {
					t.Errorf("worker %d: %v changed the packet", w, o)
				}
			} else if o != Completed || !slices.Equal(decode(b), sum(67, 0, n, 0)) {
				t.Errorf("%v: %v", o, decode(b))
			}
		}
		b := encode(values(67, 0, 0, 0))
		if o := p.Contribute(&Contribution{Values: b}, 0, b); o != Answered || !slices.Equal(decode(b), sum(67, 0, n, 0)) {
			t.Errorf("%v: %v", o, decode(b))
		}
	}
}

// What cannot be for this pool is refused and touches nothing.
func TestInvalidContributions(t *testing.T) {
	for _, rule := range []Rule{SwitchML, Rounds} {
		p := mustPool(t, Spec{Rule: rule, Workers: 3, Slots: 4, Elements: 2})
		ok := Contribution{Slot: 3, Set: 1, Worker: 2, Round: 1, Values: make([]byte, 8)}
		for _, c := range []struct {
			mutate func(*Contribution)
			want   Outcome
		}{
			{func(c *Contribution) { c.Slot = -1 }, InvalidSlot},
			{func(c *Contribution) { c.Slot = 4 }, InvalidSlot},
			{func(c *Contribution) { c.Slot = math.MaxInt }, InvalidSlot},
			{func(c *Contribution) { c.Worker = -1 }, InvalidWorker},
			{func(c *Contribution) { c.Worker = 3 }, InvalidWorker},
			{func(c *Contribution) { c.Values = nil }, InvalidLength},
			{func(c *Contribution) { c.Values = make([]byte, 7) }, InvalidLength},
			{func(c *Contribution) { c.Values = make([]byte, 9) }, InvalidLength},
			{func(c *Contribution) { c.Set = 2 }, InvalidSet},
			{func(c *Contribution) { c.Set = -1 }, InvalidSet},
		} {
			x := ok
			c.mutate(&x)
			if rule == Rounds && c.want == InvalidSet {
				continue // not looked at
			}
			if got := p.Contribute(&x, 0, nil); got != c.want {
				t.Errorf("%v %+v: %v, want %v", rule, x, got, c.want)
			}
		}
		if idle, _, _ := p.Occupancy(); idle != 8 {
			t.Errorf("%v: %d of 8 versions are idle", rule, idle)
		}
		if got := p.Contribute(&ok, 0, nil); got != Added {
			t.Errorf("%v: %v", rule, got)
		}
	}
}

func TestContributeAllocatesNothing(t *testing.T) {
	for _, rule := range []Rule{SwitchML, Rounds} {
		p := mustPool(t, Spec{Rule: rule, Workers: 3, Slots: 4, Elements: 64, Exponents: 2})
		out, vals := make([]byte, 256), make([]byte, 256)
		k := uint32(0)
		var c Contribution
		if n := testing.AllocsPerRun(100, func() {
			for w := range 3 {
				c = Contribution{Slot: 2, Set: int(k & 1), Worker: w, Round: k, Values: vals}
				p.Contribute(&c, 0, out)
				p.Contribute(&c, 0, out)
			}
			p.NextOverdue(5, 0)
			k++
		}); n != 0 {
			t.Errorf("%v: %v allocations a round", rule, n)
		}
	}
}

func TestValuesLieOnCacheLines(t *testing.T) {
	for _, elements := range []int{1, 15, 16, 17, 64, 255, 256} {
		for _, slots := range []int{1, 3, 100} {
			p := mustPool(t, Spec{Workers: 2, Slots: slots, Elements: elements})
			last := uintptr(0)
			for i := range 2 * slots {
				at := reflect.ValueOf(p.cells.(*plain[int32]).of(i)).Pointer()
				if at%64 != 0 {
					t.Fatalf("%d elements: version %d lies at %#x", elements, i, at)
				}
				if want := last + uintptr(elements+15)/16*64; i > 0 && at != want {
					t.Fatalf("%d elements: version %d lies at %#x, want %#x", elements, i, at, want)
				}
				last = at
			}
		}
	}
}

// Bytes is what the pool's blocks take.
func TestBytes(t *testing.T) {
	for _, s := range []Spec{
		{Workers: 1, Slots: 1, Elements: 1},
		{Workers: 65, Slots: 10, Elements: 17},
		{Workers: 1024, Slots: 8192, Elements: 256, Exponents: 2},
		{Rule: Rounds, Workers: 3, Slots: 10, Elements: 17, Type: Int64},
		{Rule: Rounds, Workers: 64, Slots: 10, Elements: 17, Type: Int64, Order: Ranked, Policy: Saturate},
		{Rule: Rounds, Workers: 64, Slots: 10, Elements: 17, Type: Int32, Order: Ranked, Policy: Saturate},
		{Rule: Rounds, Workers: 64, Slots: 10, Elements: 17, Type: Float32, Order: Ranked, Op: Min},
		{Rule: Rounds, Workers: 64, Slots: 10, Elements: 17, Type: Int64, Order: Ranked},
		{Rule: Rounds, Workers: 64, Slots: 10, Elements: 33, Type: Float16, Order: Ranked, Op: Mean},
		{Rule: Rounds, Workers: 5, Slots: 10, Elements: 33, Type: BFP16, Order: Ranked},
		{Rule: Rounds, Workers: 1, Slots: 10, Elements: 33, Type: Float64, Order: Ranked},
	} {
		p := mustPool(t, s)
		if size := int(reflect.TypeFor[version]().Size()); size != versionBytes {
			t.Fatalf("a version takes %d bytes, not %d", size, versionBytes)
		}
		var values int
		switch c := p.cells.(type) {
		case *plain[int32]:
			values = 4 * len(c.values)
		case *plain[int64]:
			values = 8 * len(c.values)
		case *plain[float32]:
			values = 4 * len(c.values)
		case *plain[float64]:
			values = 8 * len(c.values)
		case *blocks:
			values = 4*len(c.values) + 4*len(c.decoded)
		}
		got := int64(len(p.versions)*versionBytes + (len(p.seen)+len(p.quiet))*8 + values + 4*len(p.keptLens) + len(p.kept) + len(p.scratch) + 2*lineBytes)
		if got != s.Bytes() {
			t.Errorf("%+v takes %d bytes, Bytes says %d", s, got, s.Bytes())
		}
		keeps := s.Order == Ranked && s.Op != Min && s.Workers > 1 && (s.Type >= Float32 || s.Policy == Saturate)
		if want := len(p.versions) * (s.Workers - 1) * p.stride; keeps && len(p.kept) != want || !keeps && len(p.kept) != 0 {
			t.Errorf("%+v keeps %d bytes of contributions", s, len(p.kept))
		}
	}
	if b := (Spec{}).Bytes(); b != 0 {
		t.Errorf("a spec that is refused takes %d bytes", b)
	}
}

func TestSpecRefused(t *testing.T) {
	good := Spec{Workers: 2, Slots: 2, Elements: 2}
	for _, c := range []struct {
		mutate func(*Spec)
		say    string
	}{
		{func(s *Spec) { s.Workers = 0 }, "workers 0"},
		{func(s *Spec) { s.Workers = 1025 }, "workers 1025"},
		{func(s *Spec) { s.Slots = 0 }, "slots 0"},
		{func(s *Spec) { s.Slots = MaxSlots + 1 }, "slots 1048577"},
		{func(s *Spec) { s.Elements = -1 }, "elements -1"},
		{func(s *Spec) { s.Elements = MaxElements + 1 }, "elements 16385"},
		{func(s *Spec) { s.Exponents = 3 }, "exponents 3"},
		{func(s *Spec) { s.Rule = 9 }, "rule 9"},
		{func(s *Spec) { s.Stragglers = 9 }, "straggler policy 9"},
		{func(s *Spec) { s.Stragglers, s.Deadline = Partial, time.Second }, "needs rounds"},
		{func(s *Spec) { s.Rule, s.Stragglers = Rounds, Partial }, "deadline"},
		{func(s *Spec) { s.Type = 99 }, "type 99"},
		{func(s *Spec) { s.Op = 99 }, "operation 99"},
		{func(s *Spec) { s.Order = 99 }, "order 99"},
		{func(s *Spec) { s.Policy = 99 }, "policy 99"},
		{func(s *Spec) { s.ByteOrder = 9 }, "byte order 9"},
		{func(s *Spec) { s.Order = Ranked }, "needs rule rounds"},
		{func(s *Spec) { s.Rule, s.Order, s.Workers = Rounds, Ranked, 65 }, "at most 64 workers, not 65"},
	} {
		s := good
		c.mutate(&s)
		_, err := NewPool(s)
		if err == nil || !strings.Contains(err.Error(), c.say) {
			t.Errorf("%+v: %v, want an error about %q", s, err, c.say)
		}
	}
}

func TestReadersRefuseWhatIsNotThere(t *testing.T) {
	p := mustPool(t, Spec{Workers: 2, Slots: 2, Elements: 2})
	for _, at := range [][2]int{{-1, 0}, {2, 0}, {0, -1}, {0, 2}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("State%v did not panic", at)
				}
			}()
			p.State(at[0], at[1])
		}()
	}
}

func TestNames(t *testing.T) {
	for _, list := range [][]string{ruleNames, typeNames, opNames, orderNames, policyNames, stragglerNames, phaseNames, outcomeNames, flagNames} {
		for i, n := range list {
			if n == "" || slices.Index(list, n) != i {
				t.Errorf("name %d of %q", i, list)
			}
		}
	}
	if len(outcomeNames) != NumOutcomes || Outcome(200).String() != "outcome 200" || fmt.Sprint(Completed) != "completed" {
		t.Errorf("outcomes %q", outcomeNames)
	}
}

func BenchmarkContribute(b *testing.B) {
	for _, rule := range []Rule{SwitchML, Rounds} {
		for _, elements := range []int{64, 256} {
			b.Run(fmt.Sprintf("%v/%d", rule, elements), func(b *testing.B) {
				p, err := NewPool(Spec{Rule: rule, Workers: 8, Slots: 512, Elements: elements, Exponents: 2})
				if err != nil {
					b.Fatal(err)
				}
				vals, out := make([]byte, 4*elements), make([]byte, 4*elements)
				c := Contribution{Values: vals}
				b.SetBytes(int64(len(vals)))
				for i := 0; b.Loop(); i++ {
					c.Worker = i & 7
					c.Slot = i >> 3 & 511
					c.Round = uint32(i >> 12)
					c.Set = int(c.Round & 1)
					p.Contribute(&c, 0, out)
				}
				if p.Collecting() > 1 {
					b.Fatal("rounds did not complete")
				}
			})
		}
	}
}
