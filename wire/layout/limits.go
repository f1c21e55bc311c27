package layout

import (
	"fmt"

	"gradnic/wire/native"
)

// Limits are the largest values that a job's messages have.
type Limits struct {
	Workers  int // ranks 0 to Workers-1
	Slots    int // 0 to Slots-1
	Payload  int // bytes
	Elements int
	Job      uint16      // native: its number
	Type     native.Type // native
}

// Carries returns an error when a message of a job does not fit into the layout's fields.
func (l *Layout) Carries(m Limits) error {
	for _, x := range []struct {
		of   Meaning
		most uint64
	}{
		{Slot, uint64(m.Slots) - 1}, {Length, uint64(m.Payload)}, {Count, uint64(m.Elements)}, {Job, uint64(m.Job)},
		{Worker, uint64(m.Workers)}, // a result has the number of contributions there
	} {
		f := l.by[x.of]
		if f == nil || f.Reply != nil && x.of != Slot && x.of != Worker {
			continue
		}
		if f.OneHot {
			if m.Workers > f.Width {
				return fmt.Errorf("layout %s: field %s has bits for %d workers, the job has %d", l.Name, f.Name, f.Width, m.Workers)
			}
			continue
		}
		if x.most > f.mask {
			return fmt.Errorf("layout %s: field %s has %d bits, the job needs %s %d", l.Name, f.Name, f.Width, x.of, x.most)
		}
	}
	if l.Rules != Native {
		return nil
	}
	if l.by[Job] == nil && uint64(m.Job) != l.job {
		return fmt.Errorf("layout %s: no field means job, and its frames are job %d's: the job has number %d", l.Name, l.job, m.Job)
	}
	switch f := l.by[Type]; {
	case f == nil && uint64(m.Type) != l.typ:
		return fmt.Errorf("layout %s: its payload is %v, the job's %v", l.Name, native.Type(l.typ), m.Type)
	case f != nil && (int(m.Type) >= len(f.back) || f.back[m.Type] < 0):
		return fmt.Errorf("layout %s: field %s has no value for %v", l.Name, f.Name, m.Type)
	}
	return nil
}
