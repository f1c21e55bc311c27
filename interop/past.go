package interop

import (
	"fmt"
	"time"
)

// past is what a card has sent in a run, by the bytes of the frames: a frame that came before tells of a card that answers
// twice, or late, or from a memory that is not the slot's.
type past map[string]*sighting

// sighting is of equal frames.
type sighting struct {
	times       int
	last        string // case
	before      string // the case of the last but one
	at, earlier time.Time
}

// saw notes a frame that came in a case.
func (p past) saw(frame []byte, name string, at time.Time) {
	s := p[string(frame)]
	if s == nil {
		s = &sighting{}
		p[string(frame)] = s
	}
	s.times++
	s.before, s.earlier = s.last, s.at
	s.last, s.at = name, at
}

// copyOf says, in a line, when the same frame has come before; nothing when it has not.
func (p past) copyOf(frame []byte) string {
	s := p[string(frame)]
	if s == nil || s.times < 2 {
		return ""
	}
	which := "this case"
	if s.before != s.last {
		which = "case " + s.before
	}
	return fmt.Sprintf("  the same bytes came %v before, in %s: %d times in all\n", s.at.Sub(s.earlier).Round(10*time.Microsecond), which, s.times)
}
