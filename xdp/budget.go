package xdp

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"

	"gradnic/xdp/bpf"
)

// Limits of packet budgets, as in bpf/steer.c.
const (
	// MaxBudgets is how many named budgets a netdev can have.
	MaxBudgets = 1023
	// MaxSources is how many MAC addresses the budgets of a netdev can name together.
	MaxSources = 65536
	// MaxRate is the highest rate that can be bounded, in frames a second: a bucket counts whole nanoseconds.
	MaxRate = 100_000_000
)

// Budget bounds the frames that are taken of some senders of one netdev.
type Budget struct {
	// Name says whose it is. A budget keeps its tokens and counts as long as one of its name is set.
	Name string
	// Rate is in frames a second, up to MaxRate; 0 counts and bounds nothing.
	Rate uint64
	// Burst is how many frames may come at once after a pause, at least 1. A burst above the receive ring can be lost
	// there. It says nothing when Rate is 0.
	Burst int
	// Sources are the MAC addresses that are charged to it. An address that several budgets name is charged to the
	// first of them.
	Sources [][6]byte
}

// Budgets are all budgets of a netdev.
type Budgets struct {
	// Stray is charged with the frames of all addresses that no budget names. Its Sources say nothing.
	Stray Budget
	// Named have different names that are not empty.
	Named []Budget
}

// Spent is what was charged to a budget since it has been set: frames that were taken, and frames that were dropped
// since they came faster. The dropped ones are OverBudget among the verdicts.
type Spent struct {
	Budget         // without Sources
	Taken, Dropped uint64
}

// budgets is what the maps hold.
type budgets struct {
	sources, buckets, spents *ebpf.Map

	on    bool
	names map[string]uint32 // bucket of each named budget
	held  map[uint32]Budget // by bucket, without Sources
	of    map[address]*source
	turn  uint64 // number of this call of set
}

// address is a MAC address as a number, which maps find faster than an array.
type address uint64

func addressOf(mac [6]byte) (a address) {
	for _, b := range mac {
		a = a<<8 | address(b)
	}
	return a
}

func (a address) mac() (mac [6]byte) {
	for i := range mac {
		mac[i] = byte(a >> (8 * (5 - i)))
	}
	return mac
}

// source is an address in the map of sources.
type source struct {
	bucket uint32
	turn   uint64 // the last call of set that wanted it
}

func newBudgets(coll *ebpf.Collection) budgets {
	return budgets{
		sources: coll.Maps[bpf.SteerMapSources], buckets: coll.Maps[bpf.SteerMapBuckets], spents: coll.Maps[bpf.SteerMapSpents],
		names: map[string]uint32{}, held: map[uint32]Budget{}, of: map[address]*source{},
	}
}

func (b *Budget) check() error {
	if b.Rate == 0 {
		return nil
	}
	if b.Rate > MaxRate {
		return fmt.Errorf("rate %d: legal are up to %d frames a second", b.Rate, MaxRate)
	}
	if b.Burst < 1 || b.Burst > 1<<20 {
		return fmt.Errorf("burst %d: legal are 1 to %d frames", b.Burst, 1<<20)
	}
	return nil
}

func (b *Budgets) check() error {
	if len(b.Named) > MaxBudgets {
		return fmt.Errorf("%d budgets: legal are up to %d", len(b.Named), MaxBudgets)
	}
	if err := b.Stray.check(); err != nil {
		return fmt.Errorf("of strays: %w", err)
	}
	names, sources := map[string]bool{}, 0
	for i := range b.Named {
		n := &b.Named[i]
		if n.Name == "" || names[n.Name] {
			return fmt.Errorf("budget %d of name %q: each has a name of its own", i, n.Name)
		}
		names[n.Name] = true
		if err := n.check(); err != nil {
			return fmt.Errorf("of %s: %w", n.Name, err)
		}
		if sources += len(n.Sources); sources > MaxSources {
			return fmt.Errorf("the budgets up to %s have %d addresses: legal are %d together", n.Name, sources, MaxSources)
		}
	}
	return nil
}

// SetBudgets sets the budgets of the netdev, instead of those set before; nil bounds nothing, and costs nothing.
// Budgets and addresses that stay are charged without a gap. After an error some budgets are the old and some the
// new ones; setting them again mends that.
func (st *Steering) SetBudgets(b *Budgets) error {
	if b != nil {
		if err := b.check(); err != nil {
			return fmt.Errorf("steering: budgets: %w", err)
		}
	}
	st.mu.Lock()
	if st.closed {
		st.mu.Unlock()
		return ErrClosed
	}
	err := st.budgets.set(b)
	st.mu.Unlock()
	if err != nil {
		return fmt.Errorf("steering: %w", err)
	}
	return st.change(func(c *bpf.SteerAddress) {
		c.Flags &^= flagHasBudgets
		if b != nil {
			c.Flags |= flagHasBudgets
		}
	})
}

// Spent reads what was charged: first to strays, then by name. Nothing when no budgets are set.
func (st *Steering) Spent() ([]Spent, error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.closed {
		return st.lastSpent, nil
	}
	return st.budgets.read()
}

func (s *budgets) set(b *Budgets) error {
	if b == nil {
		b = &Budgets{}
		s.on = false
	} else {
		s.on = true
	}
	// A job that comes or goes changes few of many addresses: those that stay cost a look each.
	s.turn++
	changed := map[address]uint32{} // bucket of those that are new or another's
	stay := 0
	gone := map[string]uint32{}
	for name, i := range s.names {
		gone[name] = i
	}
	for i := range b.Named {
		delete(gone, b.Named[i].Name)
	}
	if err := s.bucket(0, b.Stray); err != nil {
		return err
	}
	for i := range b.Named {
		n := &b.Named[i]
		index, known := s.names[n.Name]
		if !known {
			index = s.vacant()
			if index == 0 { // the old ones have all: give up theirs first
				if err := s.release(gone); err != nil {
					return err
				}
				gone, index, stay = nil, s.vacant(), -1 // some that were counted may be gone
			}
			if err := s.forget(index); err != nil {
				return err
			}
		}
		if err := s.bucket(index, *n); err != nil {
			return err
		}
		s.names[n.Name] = index
		for _, mac := range n.Sources {
			a := addressOf(mac)
			have := s.of[a]
			if have != nil && have.turn == s.turn {
				continue // an earlier budget's
			}
			if have != nil {
				have.turn = s.turn
				if stay >= 0 {
					stay++
				}
				if have.bucket == index {
					continue
				}
			}
			if _, taken := changed[a]; !taken {
				changed[a] = index
			}
		}
	}
	if err := s.attribute(changed, stay); err != nil {
		return err
	}
	return s.release(gone)
}

// attribute enters the addresses that have changed, and takes out those that this turn did not want. Those that go, go
// first: there may be as many as the table holds. stay is how many of the table were wanted, -1: to be looked at.
func (s *budgets) attribute(changed map[address]uint32, stay int) error {
	if stay != len(s.of) {
		for a, have := range s.of {
			if have.turn == s.turn {
				continue
			}
			if err := s.discharge(a); err != nil {
				return err
			}
		}
	}
	for a, index := range changed {
		if err := s.sources.Put(bpf.SteerSource{Mac: a.mac()}, index); err != nil {
			return fmt.Errorf("budget of %x: %w", a.mac(), err)
		}
		s.of[a] = &source{index, s.turn}
	}
	return nil
}

// discharge makes an address a stray.
func (s *budgets) discharge(a address) error {
	if err := s.sources.Delete(bpf.SteerSource{Mac: a.mac()}); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("budget of %x: %w", a.mac(), err)
	}
	delete(s.of, a)
	return nil
}

// release gives up the buckets of names; their addresses become strays if they are still there.
func (s *budgets) release(names map[string]uint32) error {
	for name, index := range names {
		for a, have := range s.of {
			if have.bucket != index {
				continue
			}
			if err := s.discharge(a); err != nil {
				return err
			}
		}
		delete(s.names, name)
		delete(s.held, index)
	}
	return nil
}

// vacant is a bucket that no name has; 0: there is none.
func (s *budgets) vacant() uint32 {
	for i := uint32(1); i <= MaxBudgets; i++ {
		if _, used := s.held[i]; !used {
			return i
		}
	}
	return 0
}

// forget sets a bucket's counts to 0.
func (s *budgets) forget(index uint32) error {
	n, err := ebpf.PossibleCPU()
	if err != nil {
		return fmt.Errorf("possible CPUs: %w", err)
	}
	if err := s.spents.Put(index, make([]bpf.SteerSpent, n)); err != nil {
		return fmt.Errorf("counts of budget %d: %w", index, err)
	}
	return nil
}

// bucket sets a bucket's rate and burst, and fills it, unless it has just these.
func (s *budgets) bucket(index uint32, b Budget) error {
	b.Sources = nil
	if was, known := s.held[index]; known && was.Rate == b.Rate && was.Burst == b.Burst {
		return nil
	}
	var v bpf.SteerBucket
	if b.Rate != 0 {
		v.Cost = (1_000_000_000 + b.Rate/2) / b.Rate
		v.Depth = v.Cost * uint64(b.Burst)
	}
	if err := s.buckets.Put(index, v); err != nil {
		return fmt.Errorf("budget of %q: %w", b.Name, err)
	}
	s.held[index] = b
	return nil
}

func (s *budgets) read() ([]Spent, error) {
	if !s.on {
		return nil, nil
	}
	indexes := []uint32{0}
	for _, i := range s.names {
		indexes = append(indexes, i)
	}
	slices.SortFunc(indexes[1:], func(a, b uint32) int {
		if s.held[a].Name < s.held[b].Name {
			return -1
		}
		return 1
	})
	out := make([]Spent, len(indexes))
	var perCPU []bpf.SteerSpent
	for k, i := range indexes {
		if err := s.spents.Lookup(i, &perCPU); err != nil {
			return nil, fmt.Errorf("steering: counts of budget %q: %w", s.held[i].Name, err)
		}
		out[k].Budget = s.held[i]
		for _, c := range perCPU {
			out[k].Taken += c.Taken
			out[k].Dropped += c.Dropped
		}
	}
	return out, nil
}
