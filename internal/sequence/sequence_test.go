package sequence

import (
	"testing"

	"pgregory.net/rapid"
)

func TestVerdicts(t *testing.T) {
	for _, tt := range []struct {
		name    string
		numbers []uint32
		want    Counts
		lost    uint64
	}{
		{"in order", []uint32{7, 8, 9}, Counts{First: 7, Next: 10, Unique: 3}, 0},
		{"a gap", []uint32{0, 1, 5}, Counts{Next: 6, Unique: 3}, 3},
		{"late", []uint32{0, 2, 1, 3}, Counts{Next: 4, Unique: 4, Reordered: 1}, 0},
		{"late before the first", []uint32{2, 1, 0}, Counts{Next: 3, Unique: 3, Reordered: 2}, 0},
		{"twice", []uint32{0, 1, 1, 0}, Counts{Next: 2, Unique: 2, Duplicates: 2}, 0},
		{"over the end of 32 bits", []uint32{0xffffffff, 0, 1}, Counts{First: 0xffffffff, Next: 0x100000002, Unique: 3}, 0},
		{"too far back", []uint32{0, Window + 5, 1}, Counts{Next: Window + 6, Unique: 2, Ancient: 1}, Window + 4},
		{"a gap of more than the window", []uint32{0, 3 * Window, 3*Window - 1}, Counts{Next: 3*Window + 1, Unique: 3, Reordered: 1}, 3*Window - 2},
	} {
		var tr Tracker
		for _, n := range tt.numbers {
			tr.Observe(n)
		}
		got := tr.Counts()
		got.First -= 1 << 32
		got.Next -= 1 << 32
		if got != tt.want || got.Lost() != tt.lost {
			t.Errorf("%s: %+v lost %d, want %+v lost %d", tt.name, got, got.Lost(), tt.want, tt.lost)
		}
	}
}

// A tracker tells the same as a map of all numbers, as long as nothing is further back than the window.
func TestAgainstMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		start := rapid.Uint32().Draw(t, "start")
		steps := rapid.SliceOfN(rapid.IntRange(-300, 400), 1, 300).Draw(t, "steps")
		var tr Tracker
		seen := map[int64]bool{}
		at, high, low := int64(0), int64(-1), int64(0)
		var want Counts
		for _, s := range steps {
			at = max(at+int64(s), high-Window+1)
			v := tr.Observe(start + uint32(at))
			switch {
			case len(seen) == 0:
				high, low = at, at
				want.Unique++
			case at > high:
				high = at
				want.Unique++
			case seen[at]:
				want.Duplicates++
				if v != Duplicate {
					t.Fatalf("%d: %v, came before", at, v)
				}
			default:
				low = min(low, at)
				want.Unique++
				want.Reordered++
				if v != Late {
					t.Fatalf("%d: %v, is late", at, v)
				}
			}
			seen[at] = true
		}
		got := tr.Counts()
		if got.Unique != want.Unique || got.Duplicates != want.Duplicates || got.Reordered != want.Reordered ||
			got.Next-got.First != uint64(high-low+1) || got.Lost() != uint64(high-low+1)-want.Unique {
			t.Fatalf("%+v, want %+v from %d to %d", got, want, low, high)
		}
	})
}

func TestMerge(t *testing.T) {
	var a, b Tracker
	for n := range uint32(100) { // every third is lost, the others go to two lanes in turn
		switch n % 3 {
		case 0:
			a.Observe(n)
		case 1:
			b.Observe(n)
		}
	}
	got := a.Counts().Merge(b.Counts())
	if got.Unique != 67 || got.Lost() != 33 || got.Reordered != 0 {
		t.Errorf("%+v lost %d, want 67 that came and 33 lost", got, got.Lost())
	}
	if alone := (Counts{}).Merge(a.Counts()); alone != a.Counts() {
		t.Errorf("merged with nothing: %+v", alone)
	}
}

func TestObserveAllocatesNothing(t *testing.T) {
	var tr Tracker
	n := uint32(0)
	if got := testing.AllocsPerRun(1000, func() { n += 3; tr.Observe(n) }); got != 0 {
		t.Errorf("%v allocations a packet", got)
	}
}

func BenchmarkObserve(b *testing.B) {
	var tr Tracker
	for i := range b.N {
		tr.Observe(uint32(i))
	}
}
