package xdp

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"testing"
)

// forSumPrograms runs a test with both programs, with addresses and ports, and with the whole port; not with each
// of these when the test loads many programs. taken is the verdict of what goes to the socket.
func forSumPrograms(t *testing.T, each bool, f func(t *testing.T, st *Steering, s *Sums, taken Verdict)) {
	for _, multi := range []bool{false, true} {
		for whole, taken := range map[bool]Verdict{false: TakenUDP, true: TakenAll} {
			if !each && multi != whole {
				continue
			}
			t.Run(fmt.Sprintf("frags=%t,whole=%t", multi, whole), func(t *testing.T) {
				st, s := summing(t, multi)
				if err := st.SetWholePort(whole); err != nil {
					t.Fatal(err)
				}
				if whole { // no port is served by number then
					if err := st.SetPorts(nil); err != nil {
						t.Fatal(err)
					}
				}
				f(t, st, s, taken)
			})
		}
	}
}

// sumSlot has all three ranks contribute their number plus one to a slot, and checks what each gets.
func sumSlot(t *testing.T, what string, st *Steering, elements, slot, set int, taken Verdict) {
	t.Helper()
	for rank := range 3 {
		e := sumRun(t, st, sumFrame(rank, slot, set, sumValues(elements, int32(rank+1))))
		if rank < 2 {
			e.is(t, what, xdpDrop, Summed, 0)
			sumRun(t, st, sumFrame(rank, slot, set, sumValues(elements, 9))).is(t, what+", again", xdpDrop, Repeated, 0)
			continue
		}
		e.is(t, what+", last", xdpRedirect, taken, sumMark(SumCompleted))
		e.all(t, what, elements, 6)
	}
	e := sumRun(t, st, sumFrame(1, slot, set, sumValues(elements, 9)))
	e.is(t, what+", late", xdpRedirect, taken, sumMark(SumAnswered))
	e.all(t, what+", late", elements, 6)
}

// sumPlain sends a frame of a worker that nothing adds up: it comes to the socket as it is.
func sumPlain(t *testing.T, what string, st *Steering, taken Verdict) {
	t.Helper()
	f := put16(40, 0x1234)(sumFrame(0, 0, 0, sumValues(64, 1)))
	e := sumRun(t, st, f)
	e.is(t, what, xdpRedirect, taken, 0x1234)
	if !bytes.Equal(e.frame, f) {
		t.Errorf("%s: the frame is changed", what)
	}
}

// What is over the budget, or has no socket, is not added, and not changed.
func TestSumsAfterBudgets(t *testing.T) {
	forSumPrograms(t, true, func(t *testing.T, st *Steering, s *Sums, taken Verdict) {
		id := installSum(t, s, SumJob{Workers: 2, Elements: 64, Slots: 1, Tag: sumTag})
		m0, _ := sumAddress(0)
		m1, _ := sumAddress(1)
		if err := st.SetBudgets(&Budgets{Named: []Budget{{Name: "a", Rate: slow, Burst: 1, Sources: [][6]byte{m0}}, {Name: "b", Rate: slow, Burst: 2, Sources: [][6]byte{m1}}}}); err != nil {
			t.Fatal(err)
		}
		values := sumValues(64, 4)
		sumRun(t, st, sumFrame(0, 0, 0, values)).is(t, "within the budget", xdpDrop, Summed, 0)
		before := sumStatus(t, s, id)
		for _, set := range []int{0, 1} {
			sumRun(t, st, sumFrame(0, 0, set, values)).is(t, "over the budget", xdpDrop, OverBudget, 0)
		}
		if err := st.Unbind(0); err != nil {
			t.Fatal(err)
		}
		f := put16(40, 7)(sumFrame(1, 0, 0, values))
		e := sumRun(t, st, f)
		e.is(t, "no socket", xdpPass, Unbound, 7)
		if !bytes.Equal(e.frame, f) {
			t.Error("no socket: the frame is changed")
		}
		if after := sumStatus(t, s, id); !reflect.DeepEqual(before, after) {
			t.Errorf("counted: %+v, before %+v", after, before)
		}
		bindSocket(t, st)
		sumRun(t, st, sumFrame(1, 0, 0, values)).is(t, "a socket, within the budget", xdpRedirect, taken, sumMark(SumCompleted))
		if a, b := spent(t, st, "a"), spent(t, st, "b"); a.Taken != 1 || a.Dropped != 2 || b.Taken != 1 || b.Dropped != 0 {
			t.Errorf("a: %+v, b: %+v", a, b)
		}
	})
}

// Sums come and go, answers come before them, and counters of verdicts go on.
func TestSumsAndAnswersInTurn(t *testing.T) {
	forSumPrograms(t, false, func(t *testing.T, st *Steering, s *Sums, taken Verdict) {
		first := installSum(t, s, SumJob{Workers: 3, Elements: 256, Slots: 4, Tag: sumTag})
		sumSlot(t, "at first", st, 256, 0, 0, taken)

		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		must(st.SetSums(nil))
		sumPlain(t, "without sums", st, taken)
		must(st.SetSums(nil))
		sumPlain(t, "still without sums", st, taken)
		must(st.SetSums(s))
		e := sumRun(t, st, sumFrame(0, 0, 0, sumValues(256, 1)))
		e.is(t, "what was there is there again", xdpRedirect, taken, sumMark(SumAnswered))
		e.all(t, "what was there is there again", 256, 6)
		sumSlot(t, "after that", st, 256, 1, 1, taken)

		must(st.SetAnswer(SinkHere, true))
		for _, set := range []int{0, 1} {
			sumRun(t, st, sumFrame(2, 2, set, sumValues(256, 1))).is(t, "sunk", xdpDrop, Sunk, 0)
		}
		must(st.SetAnswer(ReflectHere, false))
		if e := sumRun(t, st, sumFrame(2, 2, 0, sumValues(256, 1))); e.action != xdpTx || e.verdict != Reflected {
			t.Errorf("reflected: action %d, %v", e.action, e.verdict)
		}
		must(st.SetSums(nil))
		must(st.SetSums(s))
		sumRun(t, st, sumFrame(2, 2, 0, sumValues(256, 1))).is(t, "sums change while answers are given", xdpTx, Reflected, 0)
		must(st.SetAnswer(ToSocket, false))
		sumSlot(t, "after answers", st, 256, 2, 0, taken)

		must(st.SetAnswer(SinkHere, false))
		must(st.SetSums(nil))
		must(st.SetAnswer(ToSocket, false))
		sumPlain(t, "after answers, without sums", st, taken)
		must(st.SetSums(s))

		other := newSums(t, 4)
		second := installSum(t, other, SumJob{Workers: 3, Elements: 64, Slots: 4, Tag: sumTag})
		before := sumStatus(t, s, first)
		must(st.SetSums(other))
		sumSlot(t, "another memory", st, 64, 0, 0, taken)
		if after := sumStatus(t, s, first); !reflect.DeepEqual(before, after) {
			t.Errorf("the other memory changed: %+v, before %+v", after, before)
		}
		must(st.SetSums(s))
		sumSlot(t, "the first memory", st, 256, 3, 0, taken)
		if a, b := sumStatus(t, s, first), sumStatus(t, other, second); a.Results != 4 || b.Results != 1 || a.Complete != 4 || b.Complete != 1 {
			t.Errorf("%+v, %+v", a, b)
		}

		c, err := st.Counters()
		must(err)
		if c[Summed] != 5*2 || c[Repeated] != 5*2 || c[Sunk] != 2 || c[Reflected] != 2 || c[taken] != 5*2+3+1 || c.Passed() != 0 {
			t.Errorf("%d summed, %d repeated, %d sunk, %d reflected, %d taken, %d passed", c[Summed], c[Repeated], c[Sunk], c[Reflected], c[taken], c.Passed())
		}
	})
}

// A memory that is closed is refused, and everything goes on as it did.
func TestClosedSumsAreRefused(t *testing.T) {
	forSumPrograms(t, false, func(t *testing.T, st *Steering, s *Sums, taken Verdict) {
		installSum(t, s, SumJob{Workers: 3, Elements: 64, Slots: 4, Tag: sumTag})
		closed := newSums(t, 4)
		if err := closed.Close(); err != nil {
			t.Fatal(err)
		}
		if err := st.SetSums(closed); !errors.Is(err, ErrSumsClosed) {
			t.Errorf("a closed memory: %v", err)
		}
		sumSlot(t, "after that", st, 64, 0, 0, taken)
		if err := errors.Join(st.SetAnswer(SinkHere, false), st.SetAnswer(ToSocket, false)); err != nil {
			t.Fatal(err)
		}
		sumSlot(t, "after an answer", st, 64, 1, 0, taken)
		if err := st.SetSums(nil); err != nil {
			t.Fatal(err)
		}
		if err := st.SetSums(closed); !errors.Is(err, ErrSumsClosed) {
			t.Errorf("a closed memory: %v", err)
		}
		sumPlain(t, "without sums", st, taken)
	})
}

// Several steering programs, one memory: the contributions of a slot come by both, and results go where the last one came.
func TestSumsOfSeveralPorts(t *testing.T) {
	a, s := summing(t, false)
	b := steeringWithSocket(t, true)
	if err := errors.Join(b.SetAddress(nicMAC, nicIP), b.SetPorts(Ports(0xbee0, 0xbeef)), b.SetSums(s)); err != nil {
		t.Fatal(err)
	}
	id := installSum(t, s, SumJob{Workers: 2, Elements: 64, Slots: 1, Tag: sumTag})
	for round, ports := range [][2]*Steering{{a, b}, {b, a}, {a, a}, {b, b}} {
		sumRun(t, ports[0], sumFrame(0, 0, round&1, sumValues(64, int32(round)))).is(t, "first", xdpDrop, Summed, 0)
		sumRun(t, ports[0], sumFrame(0, 0, round&1, sumValues(64, 5))).is(t, "again", xdpDrop, Repeated, 0)
		e := sumRun(t, ports[1], sumFrame(1, 0, round&1, sumValues(64, 10)))
		e.is(t, "last", xdpRedirect, TakenUDP, sumMark(SumCompleted))
		e.all(t, "last", 64, int32(10+round))
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	sumRun(t, b, sumFrame(0, 0, 0, sumValues(64, 1))).is(t, "one port is gone", xdpDrop, Summed, 0)
	if err := a.SetSums(s); !errors.Is(err, ErrClosed) {
		t.Errorf("SetSums of a closed program: %v", err)
	}
	if got := sumStatus(t, s, id); got.Results != 4 || got.Collecting != 1 || got.Workers[0].Received != 9 {
		t.Errorf("%+v", got)
	}
}

// The memory outlives its descriptors as long as a program has it.
func TestSumsClosedBesideTraffic(t *testing.T) {
	st, s := summing(t, false)
	id := installSum(t, s, SumJob{Workers: 3, Elements: 64, Slots: 4, Tag: sumTag})
	sumSlot(t, "before", st, 64, 0, 0, TakenUDP)
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	sumSlot(t, "after", st, 64, 1, 0, TakenUDP)
	e := sumRun(t, st, sumFrame(0, 0, 0, sumValues(64, 1)))
	e.is(t, "what was there", xdpRedirect, TakenUDP, sumMark(SumAnswered))
	e.all(t, "what was there", 64, 6)
	_, install := s.Install(SumJob{Workers: 1, Elements: 64, Slots: 1})
	_, status := s.Status(id)
	mac, ip := sumAddress(0)
	for what, err := range map[string]error{
		"Install": install, "Status": status, "Remove": s.Remove(id), "Reset": s.Reset(id), "SetMember": s.SetMember(id, 0, mac, ip),
	} {
		if !errors.Is(err, ErrSumsClosed) {
			t.Errorf("%s of a closed memory: %v", what, err)
		}
	}
	if err := st.SetSums(nil); err != nil {
		t.Fatal(err)
	}
	sumPlain(t, "without sums", st, TakenUDP)
}
