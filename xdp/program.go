package xdp

import (
	"errors"
	"fmt"
	"maps"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"gradnic/xdp/bpf"
)

// flagSums of the configuration, as in bpf/steer.c.
const flagSums = 64

// ability is what a steering program can do beside steering. Each is a program of its own, since the abilities make it
// long; it uses the maps of the one that it takes the place of.
type ability uint8

const (
	steers  ability = iota
	answers         // frames, by itself: SetAnswer
	sums            // what workers contribute: SetSums
)

// programs has each ability's program for one buffer and for several.
var programs = [...][2]string{
	steers:  {bpf.SteerProgSteer, bpf.SteerProgSteerFrags},
	answers: {bpf.SteerProgSteerAnswer, bpf.SteerProgSteerAnswerFrags},
	sums:    {bpf.SteerProgSteerSum, bpf.SteerProgSteerSumFrags},
}

func (a ability) program(multi bool) string {
	if multi {
		return programs[a][1]
	}
	return programs[a][0]
}

// only leaves one program and the maps that it may need in the description.
func (a ability) only(spec *ebpf.CollectionSpec, multi bool) {
	name := a.program(multi)
	spec.Programs = map[string]*ebpf.ProgramSpec{name: spec.Programs[name]}
	if a != sums {
		for m := range new(Sums).maps() {
			delete(spec.Maps, m)
		}
	}
}

// learn puts a program that has an ability in the place of the one that is there. st.mu is held.
func (st *Steering) learn(a ability) error {
	if st.ability == a && (a != sums || st.memory == st.sums) {
		return nil
	}
	p, err := st.load(a)
	if err != nil {
		return err
	}
	if st.link != nil {
		if err := st.link.Update(p); err != nil {
			return errors.Join(fmt.Errorf("steering: put program %s in place: %w", a.program(st.multi), err), p.Close())
		}
		st.programID = idOf(p)
	}
	old := st.learned
	st.ability, st.learned, st.program = a, p, p
	st.memory = nil
	if a == sums {
		st.memory = st.sums
	}
	if old == nil {
		return nil
	}
	if err := old.Close(); err != nil { // the kernel keeps it as long as a frame is in it
		return fmt.Errorf("steering: close the program that was there: %w", err)
	}
	return nil
}

func (st *Steering) load(a ability) (*ebpf.Program, error) {
	spec, err := bpf.LoadSteer()
	if err != nil {
		return nil, fmt.Errorf("read steering program: %w", err)
	}
	a.only(spec, st.multi)
	use := maps.Clone(st.coll.Maps)
	if a == sums {
		st.sums.mu.Lock()
		defer st.sums.mu.Unlock()
		if st.sums.closed {
			return nil, ErrSumsClosed
		}
		for name, m := range st.sums.maps() {
			use[name] = *m
			spec.Maps[name].MaxEntries = (*m).MaxEntries()
		}
	}
	coll, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: use})
	if err != nil {
		return nil, fmt.Errorf("load steering program %s: %w", a.program(st.multi), lacking(err, unix.CAP_BPF, unix.CAP_NET_ADMIN))
	}
	defer coll.Close()
	return coll.DetachProgram(a.program(st.multi)), nil
}

// SetSums makes the program add up what workers of s's jobs contribute, from now on; nil ends that: their frames go to
// sockets as they are. Packet budgets apply. The first time, and for another s, it loads a larger program, with the rights
// that Attach takes, and puts it in the place of the one that is there, at once for frames. A SetAnswer of another answer than
// ToSocket goes before: then nothing is summed up. s must stay open for as long as it is set; its memory is freed
// when it is closed and no program has it any more, neither by a later SetSums nor after Close. An error leaves everything
// as it was.
func (st *Steering) SetSums(s *Sums) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.closed {
		return ErrClosed
	}
	if s != nil {
		s.mu.Lock()
		closed := s.closed
		s.mu.Unlock()
		if closed {
			return fmt.Errorf("steering: %w", ErrSumsClosed)
		}
	}
	before := st.sums
	st.sums = s
	err := st.configure(func(c *bpf.SteerAddress) {
		c.Flags &^= flagSums
		if s != nil {
			c.Flags |= flagSums
		}
	})
	if err != nil {
		st.sums = before
	}
	return err
}
