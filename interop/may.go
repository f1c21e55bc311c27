package interop

import (
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// mayCome is a frame that the card may send, once, and need not: time has passed that no case asks for, as when the kit's
// own host, or the card's, stood still between two frames.
type mayCome struct {
	*built
	since time.Time // before the packet was sent that is sent again
	after time.Duration
}

// timed is a target that knows when frames came. For others that is when Collect returned.
type timed interface {
	// now is the clock that came is of.
	now() time.Time
	// came is when the frames of the last Collect came, or a little later.
	came() []time.Time
}

// now is the time, by the target's clock where it has one.
func (x *caseRun) now() time.Time {
	if t, ok := x.t.(timed); ok {
		return t.now()
	}
	return time.Now()
}

// allow notes frames that may come because the frame that was sent last repeats the one before it. A target without a
// clock has no reason to send them.
func (x *caseRun) allow(frames ...Frame) error {
	for _, f := range frames {
		if !x.limits.Clock {
			return nil
		}
		b, err := x.sc.build(f, true)
		if err != nil {
			return fmt.Errorf("may: %w", err)
		}
		x.may = append(x.may, mayCome{b, x.before, time.Duration(f.After) * time.Millisecond})
	}
	return nil
}

// waiting is an array's frame that may come when a worker repeats a packet of a slot that still waits: to that worker, with
// the packet's numbers, and behind the body the bitmap of the workers that have not sent theirs.
func (x *caseRun) waiting(may *Frame, worker int, fields map[string]any, seen map[int]bool) Frame {
	late := make([]byte, (x.sc.o.workers()+7)/8)
	for r := range x.sc.o.workers() {
		if !seen[r] {
			late[r/8] |= 1 << (r % 8)
		}
	}
	f := *may
	f.To, f.Tail, f.Fields = &worker, hex.EncodeToString(late), maps.Clone(fields)
	maps.Copy(f.Fields, may.Fields)
	for name, v := range f.Fields {
		if v == "worker" {
			f.Fields[name] = worker
		}
	}
	return f
}

// answered waits for the frames that are wanted, and takes out those that may come. The frames that may come are no answer:
// for each of them one more is waited for.
func (x *caseRun) answered(want []*built) error {
	got, err := x.collect(len(want))
	if err != nil {
		return err
	}
	got, allowed, early := x.without(got, x.stamps(len(got)), want)
	for allowed > 0 && len(got) < len(want) {
		more, err := x.collect(len(want) - len(got))
		if err != nil {
			return err
		}
		var late string
		more, allowed, late = x.without(more, x.stamps(len(more)), want)
		got, early = append(got, more...), early+late
	}
	if err := x.compare(want, got); err != nil {
		return fmt.Errorf("%w%s", err, early)
	}
	return nil
}

// stamps are when the n frames of the last Collect came.
func (x *caseRun) stamps(n int) []time.Time {
	if t, ok := x.t.(timed); ok {
		return t.came()
	}
	return slices.Repeat([]time.Time{time.Now()}, n)
}

// without takes out of got, which came at the times in came, what may come and is not wanted. It returns the rest, how many
// were taken out, and in words which of the rest would have been right later.
func (x *caseRun) without(got [][]byte, came []time.Time, want []*built) (rest [][]byte, taken int, early string) {
	var words strings.Builder
	for i, f := range got {
		k := slices.IndexFunc(x.may, func(m mayCome) bool { return m.matches(f) })
		if k < 0 || slices.ContainsFunc(want, func(w *built) bool { return w.matches(f) }) {
			rest = append(rest, f)
			continue
		}
		m := x.may[k]
		if since := came[i].Sub(m.since); since < m.after {
			fmt.Fprintf(&words, "\na frame %s came %v after its packet was sent first, and may come after %v", m.what, since.Round(time.Microsecond), m.after)
			rest = append(rest, f)
			continue
		}
		x.sc.capture(m.built, f)
		x.may = slices.Delete(x.may, k, k+1)
		taken++
	}
	return rest, taken, words.String()
}
