package xdp

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"pgregory.net/rapid"
)

const xdpDrop = 1

// slow is a rate so low that no token comes while a test runs: a bucket has just its burst.
const slow = 1

func mac(b byte) [6]byte { return [6]byte{2, 0, 0, 0, 0, b} }

// from is a UDP frame to the NIC that this MAC has sent.
func from(b byte) []byte { return set(6, 2, 0, 0, 0, 0, b)(udp()) }

func budgeted(t testing.TB, multi bool, b *Budgets) *Steering {
	t.Helper()
	st := steeringWithSocket(t, multi)
	if err := errors.Join(st.SetAddress(nicMAC, nicIP), st.SetPorts(Ports(0xbee0, 0xbeef)), st.SetBudgets(b)); err != nil {
		t.Fatal(err)
	}
	return st
}

// spent is what was charged to a name.
func spent(t testing.TB, st *Steering, name string) Spent {
	t.Helper()
	all, err := st.Spent()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("no budget %q: %v", name, all)
	return Spent{}
}

// take judges n copies of a frame and returns how many were taken; the others must be over the budget.
func take(t *testing.T, st *Steering, frame []byte, n int) (taken int) {
	t.Helper()
	for range n {
		action, v := judge(t, st, frame)
		switch {
		case v.Taken() && action == xdpRedirect:
			taken++
		case v != OverBudget || action != xdpDrop:
			t.Fatalf("%v, action %d", v, action)
		}
	}
	return taken
}

// Each sender gets its bucket's burst and no more, whatever the others do; all other frames cost nobody anything.
func TestBudgetsChargeTheSender(t *testing.T) {
	for _, multi := range []bool{false, true} {
		t.Run(fmt.Sprintf("frags=%t", multi), func(t *testing.T) {
			st := budgeted(t, multi, &Budgets{
				Stray: Budget{Rate: slow, Burst: 3},
				Named: []Budget{
					{Name: "a", Rate: slow, Burst: 20, Sources: [][6]byte{mac(1), mac(2)}},
					{Name: "b", Rate: slow, Burst: 5, Sources: [][6]byte{mac(3), mac(1)}}, // 1 is a's: it was there first
					{Name: "free", Sources: [][6]byte{mac(4)}},
				},
			})
			// Frames of b that are not ours are the kernel's, and free.
			for _, f := range [][]byte{ipv6Frame(), set(33, 2)(from(3)), set(36, 0, 80)(from(3)), tag(0x81000001)(from(3))} {
				for range 10 {
					if action, v := judge(t, st, f); action != xdpPass || v.Taken() {
						t.Fatalf("%v, action %d", v, action)
					}
				}
			}
			if n := take(t, st, from(3), 50); n != 5 {
				t.Errorf("b: %d of 50 frames taken, its burst is 5", n)
			}
			if n := take(t, st, from(1), 10) + take(t, st, from(2), 40); n != 20 {
				t.Errorf("a, two senders: %d of 50 frames taken, its burst is 20", n)
			}
			if n := take(t, st, from(4), 500); n != 500 {
				t.Errorf("no bound: %d of 500 frames taken", n)
			}
			// Strays: any address that nobody named, and any kind of frame.
			n := take(t, st, arpFrame(), 1) + take(t, st, echoFrame(), 1)
			for i := range 20 {
				n += take(t, st, from(byte(100+i)), 1)
			}
			if n != 3 {
				t.Errorf("strays: %d frames taken, their burst is 3", n)
			}
			for name, want := range map[string]Spent{
				"": {Taken: 3, Dropped: 19}, "a": {Taken: 20, Dropped: 30}, "b": {Taken: 5, Dropped: 45}, "free": {Taken: 500},
			} {
				if got := spent(t, st, name); got.Taken != want.Taken || got.Dropped != want.Dropped {
					t.Errorf("%q: %d taken, %d dropped; want %d, %d", name, got.Taken, got.Dropped, want.Taken, want.Dropped)
				}
			}
			c, err := st.Counters()
			if err != nil {
				t.Fatal(err)
			}
			if c[OverBudget] != 94 || c.Taken() != 528 || c.Passed() != 40 {
				t.Errorf("verdicts: %d over budget, %d taken, %d passed; want 94, 528, 40", c[OverBudget], c.Taken(), c.Passed())
			}
			// A frame that no socket wants costs nothing.
			if err := st.Unbind(0); err != nil {
				t.Fatal(err)
			}
			if action, v := judge(t, st, from(3)); action != xdpPass || v != Unbound {
				t.Errorf("no socket: %v, action %d", v, action)
			}
		})
	}
}

// Tokens and counts stay with a name, addresses move, and without budgets all is as before.
func TestBudgetsChange(t *testing.T) {
	one := func(sources ...[6]byte) *Budgets {
		return &Budgets{Named: []Budget{{Name: "a", Rate: slow, Burst: 4, Sources: sources}}}
	}
	st := budgeted(t, false, one(mac(1)))
	if n := take(t, st, from(1), 3); n != 3 {
		t.Fatalf("%d of 3 taken", n)
	}
	set := func(b *Budgets) {
		t.Helper()
		if err := st.SetBudgets(b); err != nil {
			t.Fatal(err)
		}
	}
	set(one(mac(1), mac(2)))
	if n := take(t, st, from(2), 9); n != 1 {
		t.Errorf("the same budget with one more sender: %d taken, one token was left", n)
	}
	set(one(mac(2)))
	if n := take(t, st, from(1), 9); n != 9 {
		t.Errorf("an address taken away is a stray, which nothing bounds: %d of 9", n)
	}
	if got := spent(t, st, "a"); got.Taken != 4 || got.Dropped != 8 {
		t.Errorf("counts over two changes: %+v", got)
	}
	wider := one(mac(2))
	wider.Named[0].Burst = 6
	set(wider)
	if n := take(t, st, from(2), 9); n != 6 {
		t.Errorf("another burst: %d of 9 taken, want 6", n)
	}
	set(nil)
	if n := take(t, st, from(2), 99); n != 99 {
		t.Errorf("no budgets: %d of 99 taken", n)
	}
	if all, err := st.Spent(); err != nil || len(all) != 0 {
		t.Errorf("no budgets: %v, %v", all, err)
	}
	set(one(mac(2)))
	if got := spent(t, st, "a"); got.Taken != 0 || got.Dropped != 0 {
		t.Errorf("set anew: counts %+v", got)
	}
	if n := take(t, st, from(2), 9); n != 4 {
		t.Errorf("set anew: %d of 9 taken, want 4", n)
	}
	// As many as there can be, then as many others.
	for _, prefix := range []string{"x", "y"} {
		full := &Budgets{}
		for i := range MaxBudgets {
			full.Named = append(full.Named, Budget{Name: fmt.Sprint(prefix, i), Rate: slow, Burst: 1, Sources: [][6]byte{{2, 1, 0, 0, byte(i >> 8), byte(i)}}})
		}
		set(full)
		last := MaxBudgets - 1
		f := from(0)
		copy(f[6:], []byte{2, 1, 0, 0, byte(last >> 8), byte(last & 255)})
		if n := take(t, st, f, 3); n != 1 {
			t.Errorf("%s: the last of %d budgets: %d of 3 taken, want 1", prefix, MaxBudgets, n)
		}
	}
	// All but the first go for others, and the first takes an address of one that goes before anybody else can.
	moved := [6]byte{2, 1, 0, 0, 0, 5}
	turn := &Budgets{Named: []Budget{{Name: "y0", Rate: slow, Burst: 2, Sources: [][6]byte{moved}}}}
	for i := range MaxBudgets - 1 {
		turn.Named = append(turn.Named, Budget{Name: fmt.Sprint("z", i), Rate: slow, Burst: 1, Sources: [][6]byte{{2, 1, 0, 0, byte(i >> 8), byte(i)}}})
	}
	set(turn)
	f := from(0)
	copy(f[6:], moved[:])
	if n := take(t, st, f, 5); n != 2 {
		t.Errorf("an address that moved: %d of 5 taken, want 2", n)
	}
	gone := MaxBudgets - 1
	copy(f[6:], []byte{2, 1, 0, 0, byte(gone >> 8), byte(gone & 255)})
	if n := take(t, st, f, 5); n != 5 {
		t.Errorf("an address that nobody has any more: %d of 5 taken", n)
	}
}

func TestBudgetsThatCannotBe(t *testing.T) {
	st := budgeted(t, false, nil)
	for name, b := range map[string]Budgets{
		"no name":        {Named: []Budget{{Rate: 1, Burst: 1}}},
		"a name twice":   {Named: []Budget{{Name: "a"}, {Name: "a"}}},
		"no burst":       {Named: []Budget{{Name: "a", Rate: 1}}},
		"too fast":       {Named: []Budget{{Name: "a", Rate: MaxRate + 1, Burst: 1}}},
		"strays' burst":  {Stray: Budget{Rate: 1, Burst: 1<<20 + 1}},
		"too many":       {Named: make([]Budget, MaxBudgets+1)},
		"many addresses": {Named: []Budget{{Name: "a", Sources: make([][6]byte, MaxSources+1)}}},
	} {
		if err := st.SetBudgets(&b); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if n := take(t, st, from(1), 9); n != 9 {
		t.Errorf("after refusals %d of 9 taken", n)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	if err := st.SetBudgets(nil); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

// Whatever budgets follow each other: who is charged is what the last ones say.
func TestBudgetsFollowTheLastOnes(t *testing.T) {
	st := budgeted(t, false, nil)
	rapid.Check(t, func(r *rapid.T) {
		var b Budgets
		owner := map[byte]string{}
		for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}), 0, 5, rapid.ID).Draw(r, "names") {
			n := Budget{Name: name, Rate: slow, Burst: rapid.IntRange(1, 3).Draw(r, "burst")}
			for _, s := range rapid.SliceOfN(rapid.ByteRange(1, 6), 0, 4).Draw(r, "sources") {
				n.Sources = append(n.Sources, mac(s))
				if _, ok := owner[s]; !ok {
					owner[s] = name
				}
			}
			b.Named = append(b.Named, n)
		}
		if err := st.SetBudgets(&b); err != nil {
			r.Fatal(err)
		}
		for s := byte(1); s <= 6; s++ {
			before := spent(t, st, owner[s])
			if _, err := st.program.Run(&ebpf.RunOptions{Data: from(s)}); err != nil {
				r.Fatal(err)
			}
			after := spent(t, st, owner[s])
			if after.Taken+after.Dropped != before.Taken+before.Dropped+1 {
				r.Errorf("a frame of %d was not charged to %q", s, owner[s])
			}
		}
	})
}

// A flood gets its rate and its burst, to the frame, also when several CPUs empty one bucket.
func TestBudgetRate(t *testing.T) {
	const rate, burst, share = 20_000, 50, 1_000_000
	st := budgeted(t, false, &Budgets{Named: []Budget{{Name: "a", Rate: rate, Burst: burst, Sources: [][6]byte{mac(1)}}}})
	cpus := max(2, runtime.NumCPU())
	errs, took := make([]error, cpus), make([]time.Duration, cpus)
	var wg sync.WaitGroup
	start := time.Now()
	for i := range cpus {
		wg.Go(func() {
			_, took[i], errs[i] = st.program.Benchmark(from(1), share, nil)
			took[i] *= share // it is the mean
		})
	}
	wg.Wait()
	most := time.Since(start)
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	got := spent(t, st, "a")
	if got.Taken+got.Dropped != uint64(cpus)*share {
		t.Fatalf("%d frames charged, %d sent", got.Taken+got.Dropped, cpus*share)
	}
	// As long as one CPU sends, tokens are used as they come; the mean is in whole nanoseconds.
	least := slices.Max(took) * 8 / 10
	lo, hi := uint64(least.Seconds()*rate), uint64(most.Seconds()*rate)+burst+uint64(cpus)
	if got.Taken < lo || got.Taken > hi {
		t.Errorf("%d frames taken, want %d (%v) to %d (%v)", got.Taken, lo, least, hi, most)
	}
}
