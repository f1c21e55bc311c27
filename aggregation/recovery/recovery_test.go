package recovery

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func counter() func() uint32 {
	n := uint32(0)
	return func() uint32 { n++; return n }
}

func start(t *testing.T, c *Coordinator, n int) {
	t.Helper()
	for r := range n {
		change, reply := c.Report(Report{Rank: r, Nonce: uint32(100 + r)})
		if r < n-1 && (change&^Began != 0 || reply != Wait) || r == n-1 && (change&Formed == 0 || reply != Go) {
			t.Fatalf("rank %d: change %d, reply %d", r, change, reply)
		}
	}
	if c.State() != Ready || c.Formation().Life != c.Epoch() || len(c.Formation().Wanted()) != 0 {
		t.Fatalf("not started: %+v", c)
	}
}

func TestStartAndRepeatedReports(t *testing.T) {
	c := New(3, 8, counter())
	c.Report(Report{Rank: 1, Nonce: 101})
	if got := c.Missing(); !slices.Equal(got, []int{0, 2}) {
		t.Errorf("missing %v", got)
	}
	c.Report(Report{Rank: 1, Nonce: 101}) // again: counts once
	if c.State() != Forming {
		t.Fatal("formed of one worker")
	}
	c.Report(Report{Rank: 1, Nonce: 777}) // a new process takes its place
	c.Report(Report{Rank: 0, Nonce: 100})
	if change, reply := c.Report(Report{Rank: 2, Nonce: 102}); change != Formed || reply != Go {
		t.Fatalf("%d %d", change, reply)
	}
	if change, reply := c.Report(Report{Rank: 1, Nonce: 777}); change != 0 || reply != Go {
		t.Errorf("a repeated report: %d %d", change, reply)
	}
	epoch := c.Epoch()
	if change, reply := c.Report(Report{Rank: 1, Nonce: 5}); change != Began || reply != Wait || c.Epoch() == epoch {
		t.Errorf("a worker that started anew: %d %d", change, reply)
	}
}

func TestWorkerThatStartedAnew(t *testing.T) {
	c := New(2, 8, counter())
	start(t, c, 2)
	life := c.Formation().Life
	c.Report(Report{Rank: 0, Nonce: 1}) // new process
	change, reply := c.Report(Report{Rank: 1, Epoch: c.Epoch(), Life: life, Nonce: 101, Low: 5})
	if change != Broke || reply != NotTogether || !slices.Equal(c.Blamed(), []int{0}) {
		t.Fatalf("%d %d blamed %v", change, reply, c.Blamed())
	}
	// The other starts anew as well.
	if change, reply = c.Report(Report{Rank: 1, Nonce: 2}); change != Formed || reply != Go || c.Formation().Life != c.Epoch() {
		t.Fatalf("%d %d", change, reply)
	}
	// The old process of rank 1 is told that it is over.
	if _, reply = c.Report(Report{Rank: 1, Life: life, Nonce: 101, Epoch: c.Epoch(), Low: 5}); reply != Over {
		t.Errorf("a replaced process: %d", reply)
	}
}

// A worker that never heard that the first life began, and others that did.
func TestLostFirstGo(t *testing.T) {
	c := New(2, 8, counter())
	start(t, c, 2)
	life := c.Formation().Life
	c = New(2, 8, func() uint32 { return 99 })
	c.Report(Report{Rank: 0, Nonce: 100, Life: life, Epoch: 99})
	if change, _ := c.Report(Report{Rank: 1, Nonce: 101, Epoch: 99}); change != Formed || c.Formation().Life != 99 {
		t.Fatalf("%d, life %d", change, c.Formation().Life)
	}
}

// The memory was lost before anybody had a result, so a new life began, and a worker did not hear of that.
func TestLostGoOfANewLife(t *testing.T) {
	c := New(2, 8, counter())
	start(t, c, 2)
	life := c.Formation().Life
	c = New(2, 8, func() uint32 { return 99 })
	for r := range 2 {
		c.Report(Report{Rank: r, Nonce: uint32(100 + r), Life: life, Epoch: 99})
	}
	if c.State() != Ready {
		t.Fatalf("state %d", c.State())
	}
	if change, reply := c.Report(Report{Rank: 1, Nonce: 101, Life: life, Epoch: 99}); change != 0 || reply != Go {
		t.Errorf("%d %d", change, reply)
	}
}

func TestReportOfAnotherEpochIsNotNoted(t *testing.T) {
	c := New(1, 8, func() uint32 { return 99 })
	if change, reply := c.Report(Report{Life: 7, Epoch: 98}); change != 0 || reply != Wait || len(c.Missing()) != 1 {
		t.Fatalf("%d %d", change, reply)
	}
	if change, _ := c.Report(Report{Life: 7, Epoch: 99}); change != Formed {
		t.Fatal("not formed")
	}
}

func TestAbortAndStartAgain(t *testing.T) {
	c := New(2, 8, counter())
	start(t, c, 2)
	life := c.Formation().Life
	if c.Leave(1, 5) != 0 {
		t.Error("a stranger left")
	}
	if c.Leave(1, 101) != Ended || c.Reply() != Over || !slices.Equal(c.Blamed(), []int{1}) || c.Abort([]int{0}) != 0 {
		t.Fatalf("%+v", c)
	}
	if _, reply := c.Report(Report{Rank: 0, Nonce: 100, Life: life, Epoch: c.Epoch()}); reply != Over {
		t.Errorf("reply %d", reply)
	}
	if change, reply := c.Report(Report{Rank: 1, Nonce: 200}); change != Began || reply != Wait {
		t.Errorf("%d %d", change, reply)
	}
	if _, reply := c.Report(Report{Rank: 0, Nonce: 100, Life: life, Epoch: c.Epoch()}); reply != Over {
		t.Errorf("a worker of the aborted life: %d", reply)
	}
	if c.Leave(1, 200) != 0 || len(c.Missing()) != 2 {
		t.Errorf("a worker that only started ended the job: %+v", c)
	}
	start(t, c, 2)
}

// Workers as the window rule lets them be: each chunk below the first one's end was completed, in any order within
// the window. What some have and some lack is wanted, nothing else, and its holders have it.
func TestWanted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(t, "workers")
		slots := rapid.IntRange(1, 20).Draw(t, "slots")
		base := rapid.Uint64Range(0, 1000).Draw(t, "lowest mark")
		const life = 5
		c := New(n, slots, func() uint32 { return 77 })
		have := make([]map[uint64]bool, n)
		valued := make([]map[uint64]bool, n)
		lowest := rapid.IntRange(0, n-1).Draw(t, "the one with the lowest mark")
		var change Change
		total := 0
		for r := range n {
			have[r] = map[uint64]bool{}
			for g := base; g < base+uint64(slots); g++ {
				have[r][g] = rapid.Bool().Draw(t, "has") && !(r == lowest && g == base)
			}
			low := base
			for have[r][low] {
				low++
			}
			rep := Report{Rank: r, Epoch: 77, Life: life, Nonce: uint32(r + 1), Low: low, Have: make([]byte, (slots+7)/8)}
			total += int(low)
			for g := low; g < base+uint64(slots); g++ {
				if have[r][g] {
					total++
					rep.Have[(g-low)/8] |= 1 << ((g - low) % 8)
				}
			}
			valued[r] = have[r]
			if rapid.Bool().Draw(t, "has results without values") {
				valued[r] = map[uint64]bool{}
				for g := range have[r] {
					valued[r][g] = have[r][g] && rapid.Bool().Draw(t, "with values")
				}
				end := low
				for g := low; g < base+uint64(slots); g++ {
					if have[r][g] {
						end = g + 1
					}
				}
				rep.NoValues, rep.Back, rep.Ahead = true, low-min(low, end-min(end, uint64(slots))), end-low
				rep.Have = make([]byte, (slots+7)/8)
				for g := low - rep.Back; g < end; g++ {
					if i := g - (low - rep.Back); g < base || valued[r][g] {
						rep.Have[i/8] |= 1 << (i % 8)
					}
				}
			}
			change, _ = c.Report(rep)
		}
		if change != Formed {
			t.Fatalf("change %d", change)
		}
		f := c.Formation()
		if want := uint32(life); f.Life != want && total > 0 {
			t.Fatalf("life %d", f.Life)
		}
		if f.Low() != base {
			t.Fatalf("low %d, not %d", f.Low(), base)
		}
		wants := map[Want]bool{}
		for _, w := range f.Wanted() {
			wants[w] = true
		}
		for g := base; g < base+uint64(slots); g++ {
			holders := 0
			for r := range n {
				if valued[r][g] {
					holders++
				}
			}
			w := Want{uint32(g % uint64(slots)), uint32(g / uint64(slots))}
			if wants[w] != (holders > 0 && holders < n) {
				t.Fatalf("chunk %d, %d holders: wanted %v", g, holders, wants[w])
			}
			if !wants[w] {
				continue
			}
			seen := map[int]bool{}
			for a := range n {
				h, ok := f.Holder(w, a)
				if !ok || !valued[h][g] || f.Lacks(h, w) {
					t.Fatalf("chunk %d: holder %d", g, h)
				}
				seen[h] = true
			}
			if len(seen) != holders {
				t.Fatalf("chunk %d: %d of %d holders asked", g, len(seen), holders)
			}
		}
	})
}

func TestTooFarApart(t *testing.T) {
	c := New(2, 4, func() uint32 { return 9 })
	c.Report(Report{Rank: 0, Epoch: 9, Life: 3, Nonce: 1, Low: 10})
	if change, _ := c.Report(Report{Rank: 1, Epoch: 9, Life: 3, Nonce: 2, Low: 15}); change != Broke || !slices.Equal(c.Blamed(), []int{0}) {
		t.Fatalf("%d %v", change, c.Blamed())
	}
	c = New(2, 4, func() uint32 { return 9 })
	c.Report(Report{Rank: 0, Epoch: 9, Life: 3, Nonce: 1, Low: 10})
	if change, _ := c.Report(Report{Rank: 1, Epoch: 9, Life: 3, Nonce: 2, Low: 14}); change != Formed || len(c.Formation().Wanted()) != 4 {
		t.Fatalf("%d", change)
	}
}

// Whatever comes, the coordinator neither panics nor forms without all.
func TestAnySequence(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 4).Draw(t, "workers")
		c := New(n, 8, counter())
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			rank := rapid.IntRange(-1, n).Draw(t, "rank")
			nonce := rapid.Uint32Range(1, 3).Draw(t, "nonce")
			switch rapid.IntRange(0, 6).Draw(t, "what") {
			case 0:
				c.Leave(rank, nonce)
			case 1:
				if c.State() == Ready {
					c.Abort([]int{0})
				}
			default:
				epoch := c.Epoch()
				change, reply := c.Report(Report{
					Rank: rank, Nonce: nonce, Epoch: rapid.Uint32Range(0, c.Epoch()).Draw(t, "epoch"),
					Life: rapid.Uint32Range(0, c.Epoch()).Draw(t, "life"), Low: rapid.Uint64Range(0, 12).Draw(t, "low"),
					Have: rapid.SliceOfN(rapid.Byte(), 0, 3).Draw(t, "have"),
				})
				if (change&Began != 0) != (epoch != c.Epoch()) {
					t.Fatal("an epoch began in silence")
				}
				if (reply == Go) && c.State() != Ready {
					t.Fatalf("go in state %d", c.State())
				}
			}
			if (c.State() == Ready) != (c.Formation() != nil) || c.State() == Ready && len(c.Missing()) != 0 {
				t.Fatalf("state %d with %v missing", c.State(), c.Missing())
			}
			if s := c.State(); (s == OutOfStep || s == Aborted) && len(c.Blamed()) == 0 {
				t.Fatal("nobody is blamed")
			}
		}
	})
}
