package aggregation

import (
	"slices"
	"testing"
	"time"
)

func partialSum(n, slot int, workers []int, k uint32) []int32 {
	s := make([]int32, n)
	for _, w := range workers {
		for i, v := range values(n, slot, w, k) {
			s[i] += v
		}
	}
	return s
}

// Worker 2 is late. The round ends at the deadline without it; when it comes it
// gets the result of the others, and takes part again in the next round.
func TestRoundEndsAtDeadline(t *testing.T) {
	p := mustPool(t, Spec{Rule: Rounds, Workers: 3, Slots: 4, Elements: 5, Stragglers: Partial, Deadline: 10 * time.Nanosecond})
	contribute(t, p, 1, 0, 100, Added, nil) // contribute passes the round as the time
	contribute(t, p, 3, 1, 103, Added, nil)
	contribute(t, p, 1, 1, 100, Added, nil)
	if _, _, _, ok := p.NextOverdue(109, 0); ok {
		t.Error("overdue before the deadline")
	}
	slot, set, next, ok := p.NextOverdue(110, 0)
	if !ok || slot != 1 || set != 0 {
		t.Fatalf("slot %d set %d %v is overdue, want slot 1 set 0", slot, set, ok)
	}
	if _, _, _, ok = p.NextOverdue(110, next); ok {
		t.Error("a second one is overdue")
	}
	if slot, set, _, ok = p.NextOverdue(113, next); !ok || slot != 3 || set != 1 {
		t.Errorf("then slot %d set %d %v is overdue, want slot 3 set 1", slot, set, ok)
	}
	if got := p.Missing(nil, 1, 0); !slices.Equal(got, []int{2}) {
		t.Errorf("waits for %v", got)
	}

	want := partialSum(5, 1, []int{0, 1}, 100)
	out := make([]byte, 20)
	if !p.CompletePartial(1, 0, out) || !slices.Equal(decode(out), want) {
		t.Fatalf("partial result %v, want %v", decode(out), want)
	}
	if s := p.State(1, 0); s.Phase != Complete || s.Count != 2 || s.Round != 100 {
		t.Errorf("%+v", s)
	}
	if p.CompletePartial(1, 0, out) || p.CompletePartial(1, 1, out) {
		t.Error("ended a round that is not collecting")
	}
	contribute(t, p, 1, 0, 101, Added, nil)
	contribute(t, p, 1, 2, 100, Answered, want)
	contribute(t, p, 1, 2, 101, Added, nil)
	contribute(t, p, 1, 1, 101, Completed, sum(5, 1, 3, 101))
	if p.Collecting() != 1 {
		t.Errorf("%d collecting, want slot 3 alone", p.Collecting())
	}
}

// With the policy to wait a deadline names those who are late, and ends nothing.
func TestWaitingOnlyNames(t *testing.T) {
	for _, rule := range []Rule{SwitchML, Rounds} {
		p := mustPool(t, Spec{Rule: rule, Workers: 3, Slots: 2, Elements: 1, Deadline: 10})
		contribute(t, p, 1, 1, 0, Added, nil)
		slot, set, _, ok := p.NextOverdue(10, 0)
		if !ok || slot != 1 || set != 0 {
			t.Fatalf("%v: slot %d set %d %v", rule, slot, set, ok)
		}
		if p.CompletePartial(slot, set, nil) {
			t.Errorf("%v: ended a round that has to wait", rule)
		}
		var walked []State
		p.Walk(func(slot, set int, s State) bool {
			walked = append(walked, s)
			if got := p.Missing(nil, slot, set); !slices.Equal(got, []int{0, 2}) {
				t.Errorf("%v: waits for %v", rule, got)
			}
			return true
		})
		if !slices.Equal(walked, []State{{Phase: Collecting, Count: 1}}) {
			t.Errorf("%v: walked %+v", rule, walked)
		}
		contribute(t, p, 1, 0, 0, Added, nil)
		contribute(t, p, 1, 2, 0, Completed, sum(1, 1, 3, 0))
		if _, _, _, ok := p.NextOverdue(1<<60, 0); ok {
			t.Errorf("%v: a complete round is overdue", rule)
		}
	}
}

func TestAbortGivesSlotsBack(t *testing.T) {
	p := mustPool(t, Spec{Rule: Rounds, Workers: 2, Slots: 2, Elements: 1})
	contribute(t, p, 0, 0, 8, Added, nil)
	contribute(t, p, 0, 1, 8, Completed, sum(1, 0, 2, 8))
	contribute(t, p, 0, 0, 9, Added, nil)
	contribute(t, p, 1, 0, 5, Added, nil)
	p.Abort(0)
	if idle, collecting, _ := p.Occupancy(); idle != 3 || collecting != 1 || p.Collecting() != 1 {
		t.Errorf("%d idle, %d collecting (%d)", idle, collecting, p.Collecting())
	}
	p.Abort(0) // once more changes nothing
	for _, k := range []uint32{9, 8, 7, 1} {
		contribute(t, p, 0, 1, k, Aborted, nil)
	}
	contribute(t, p, 0, 1, 20, Added, nil)
	contribute(t, p, 0, 1, 9, Aborted, nil)
	contribute(t, p, 0, 0, 20, Completed, sum(1, 0, 2, 20))
	p.AbortAll()
	if idle, _, _ := p.Occupancy(); idle != 4 || p.Collecting() != 0 {
		t.Errorf("%d idle after all were aborted", idle)
	}
	contribute(t, p, 1, 1, 5, Aborted, nil)
	p.Reset()
	contribute(t, p, 1, 1, 5, Added, nil)
}

func TestAbortOfSwitchMLMakesNew(t *testing.T) {
	p := mustPool(t, Spec{Workers: 2, Slots: 1, Elements: 1, Exponents: 2})
	contribute(t, p, 0, 0, 0, Added, nil)
	p.Abort(0)
	if p.Collecting() != 0 || p.State(0, 0) != (State{}) {
		t.Errorf("%d collecting, %+v", p.Collecting(), p.State(0, 0))
	}
	contribute(t, p, 0, 0, 0, Added, nil)
	contribute(t, p, 0, 1, 0, Completed, sum(1, 0, 2, 0))
}

// 10^5 rounds without a pause. One worker is slow: before it comes, the others
// have sent everything twice. Nothing is lost, added twice or left behind.
func TestManyRoundsWithOneSlowWorker(t *testing.T) {
	for _, s := range []Spec{{Rule: SwitchML}, {Rule: Rounds}, {Rule: Rounds, Order: Ranked, Policy: Saturate}} {
		s.Workers, s.Slots, s.Elements = 3, 1, 2
		p, rule := mustPool(t, s), s.Rule
		out := make([]byte, 8)
		var counts [NumOutcomes]int
		for k := range uint32(100_000) {
			for _, w := range []int{1, 0, 1, 0, 2, 2, 0} {
				v := encode([]int32{int32(k) + int32(w), -int32(k)})
				o := p.Contribute(&Contribution{Set: int(k & 1), Worker: w, Round: k, Values: v}, 0, out)
				counts[o]++
				if want := []int32{3*int32(k) + 3, -3 * int32(k)}; o.HasResult() && !slices.Equal(decode(out), want) {
					t.Fatalf("%v round %d: %v, want %v", rule, k, decode(out), want)
				}
			}
		}
		if want := [NumOutcomes]int{Added: 200_000, Duplicate: 200_000, Completed: 100_000, Answered: 200_000}; counts != want {
			t.Errorf("%v: outcomes %v, want %v", rule, counts, want)
		}
	}
}
