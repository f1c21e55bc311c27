package bench

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

// A turn counts when it was calm before and after; else it is taken again, as often and as long as there is patience.
func TestInQuiet(t *testing.T) {
	for _, c := range []struct {
		name     string
		waits    []bool // what each wait finds
		looks    []bool // what each look after a turn finds
		patience time.Duration
		turns    int // that are taken
		want     quiet
	}{
		{"calm", []bool{true}, []bool{true}, time.Minute, 1, quiet{turns: 1}},
		{"disturbed once", []bool{true, true}, []bool{false, true}, time.Minute, 2, quiet{turns: 1, repeated: 1}},
		{"disturbed before", []bool{false, true}, []bool{true, true}, time.Minute, 2, quiet{turns: 1, repeated: 1}},
		{"never calm", slices.Repeat([]bool{true}, quietTries), make([]bool, quietTries), time.Minute, quietTries, quiet{turns: 1, repeated: quietTries - 1, disturbed: 1}},
		{"no patience", []bool{false}, []bool{false}, 0, 1, quiet{turns: 1, disturbed: 1}},
		{"no patience, calm", []bool{true}, []bool{true}, 0, 1, quiet{turns: 1}},
	} {
		waits, looks, turns := 0, 0, 0
		r := &Rig{quiet: &quiet{
			patience: c.patience,
			wait: func(_ context.Context, d time.Duration) (bool, error) {
				if d > quietWait || d > c.patience {
					t.Errorf("%s: waits for %v", c.name, d)
				}
				waits++
				return c.waits[waits-1], nil
			},
			look: func() (bool, error) { looks++; return c.looks[looks-1], nil },
			best: func() time.Duration { return time.Millisecond },
		}}
		if err := r.inQuiet(t.Context(), func() error { turns++; return nil }); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		q := r.quiet
		if turns != c.turns || q.turns != c.want.turns || q.repeated != c.want.repeated || q.disturbed != c.want.disturbed {
			t.Errorf("%s: %d turns, %+v; want %d, %+v", c.name, turns, q, c.turns, c.want)
		}
		if note := q.note(); !strings.Contains(note, "1ms") || strings.Contains(note, "0 of 1") != (q.disturbed == 0) {
			t.Errorf("%s: %s", c.name, note)
		}
	}
	broken := errors.New("broken")
	r := &Rig{quiet: &quiet{wait: func(context.Context, time.Duration) (bool, error) { return true, nil }}}
	if err := r.inQuiet(t.Context(), func() error { return broken }); !errors.Is(err, broken) {
		t.Error(err)
	}
	if err := new(Rig).inQuiet(t.Context(), func() error { return broken }); !errors.Is(err, broken) {
		t.Error("without a watch:", err)
	}
}
