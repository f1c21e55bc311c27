package host

import (
	"testing"

	"pgregory.net/rapid"
)

// TestArena: what is out never overlaps and is aligned, and when all is back the arena is one piece again.
func TestArena(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := uint64(rapid.IntRange(64, 4096).Draw(t, "size")) &^ 63
		a := newArena(size)
		out := map[uint64]uint64{}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if len(out) > 0 && rapid.Bool().Draw(t, "give") {
				keys := make([]uint64, 0, len(out))
				for at := range size {
					if _, ok := out[at]; ok {
						keys = append(keys, at)
					}
				}
				at := rapid.SampledFrom(keys).Draw(t, "at")
				if !a.give(at) || a.give(at) {
					t.Fatalf("%d given back: once, and not twice", at)
				}
				delete(out, at)
				continue
			}
			bytes := uint64(rapid.IntRange(0, 600).Draw(t, "bytes"))
			free := uint64(0)
			for _, s := range a.free {
				free = max(free, s.bytes)
			}
			at, err := a.take(bytes)
			if need := max(64, (bytes+63)&^63); (err == nil) != (need <= free) {
				t.Fatalf("%d bytes, %d free in a piece: %v", bytes, free, err)
			}
			if err != nil {
				continue
			}
			if at%64 != 0 || at+bytes > size {
				t.Fatalf("%d bytes at %d", bytes, at)
			}
			for o, b := range out {
				if at < o+max(b, 1) && o < at+max(bytes, 1) {
					t.Fatalf("%d bytes at %d, and %d at %d", bytes, at, b, o)
				}
			}
			out[at] = bytes
		}
		for at := range out {
			a.give(at)
		}
		if len(a.free) != 1 || a.free[0] != (span{0, size}) {
			t.Fatalf("in the end: %v", a.free)
		}
	})
}
