package report

import (
	"fmt"
	"slices"
	"strings"
)

// Invalid tells whether the row's figure is not to be trusted: its note, or a part of it, begins with INVALID. A figure that is
// bound by a tester whose trials were INVALID is one: the device is at least as fast.
func (r *Row) Invalid() bool { return isInvalid(r.Note) }

func isInvalid(note string) bool {
	return strings.HasPrefix(note, "INVALID") || strings.Contains(note, "; INVALID")
}

// Missed tells whether the row has a goal that its ratio does not reach. A ratio equal to the goal reaches it. Of an INVALID row
// nothing is known.
func (r *Row) Missed() bool {
	switch {
	case r.Goal == 0 || r.Invalid():
		return false
	case r.lower():
		return r.Ratio > r.Goal
	}
	return !(r.Ratio >= r.Goal) // so that NaN misses, too
}

// lower tells whether the goal is the most that the ratio may be, as for times.
func (r *Row) lower() bool { return strings.HasPrefix(r.Bound, "at most the goal") }

// Verdict is what a report comes to.
type Verdict struct {
	Rows    int      // in all
	Goals   int      // rows with a goal
	Missed  []string // rows whose goal is not reached, with the yardstick where several have the name
	Invalid []string // rows whose figure is not to be trusted
}

// Verdict counts the goals that were missed and the rows that are INVALID.
func (r *Report) Verdict() Verdict {
	v := Verdict{Rows: len(r.Rows)}
	names := map[string]int{}
	for i := range r.Rows {
		names[r.Rows[i].Name]++
	}
	for i := range r.Rows {
		row := &r.Rows[i]
		name := row.Name
		if names[name] > 1 && row.Against != "" {
			name += " against " + row.Against
		}
		if row.Goal != 0 {
			v.Goals++
		}
		if row.Missed() {
			v.Missed = append(v.Missed, name)
		}
		if row.Invalid() {
			v.Invalid = append(v.Invalid, name)
		}
	}
	return v
}

// MissedLine says how many goals were missed and which; "" when none was, also when there are none.
func (v Verdict) MissedLine() string {
	if len(v.Missed) == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d goals missed: %s", len(v.Missed), v.Goals, some(v.Missed))
}

// InvalidLine says how many rows are INVALID and which; "" when none is.
func (v Verdict) InvalidLine() string {
	if len(v.Invalid) == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d rows are INVALID: %s", len(v.Invalid), v.Rows, some(v.Invalid))
}

// most is how many names a line has.
const most = 6

func some(names []string) string {
	if n := len(names) - most; n > 1 {
		names = append(slices.Clone(names[:most]), fmt.Sprintf("and %d more", n))
	}
	return strings.Join(names, ", ")
}
