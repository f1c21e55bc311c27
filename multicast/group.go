package multicast

import (
	"cmp"
	"fmt"
	"slices"

	"gradnic/wire/inet"
)

// Unknown is the port of a member that has not been heard of yet.
const Unknown = -1

// MaxMembers is the largest size of a group.
const MaxMembers = 1024

// Member is one worker of a job, as a destination.
type Member struct {
	Rank    int       // 0..size-1
	Port    int       // index of the NIC's port, or Unknown until the member's first frame
	MAC     inet.MAC  // a station's address
	IP      inet.Addr // a host's address
	UDPPort uint16    // 0: the port of the packet that completed the result, as SwitchML does
}

// Copy is one replica's destination.
type Copy struct {
	Rank    int
	Port    int
	MAC     inet.MAC
	IP      inet.Addr
	UDPPort uint16 // 0: as in Member
}

// Group is the members of a job by rank. It is immutable.
type Group struct {
	size    int
	members []Member // by rank; Rank -1 where there is none
	copies  []Copy   // of members with a known port, by port, then rank
	present int
}

// NewGroup makes a group for ranks 0..size-1. Members may be missing; they are
// added by With.
func NewGroup(size int, members ...Member) (*Group, error) {
	if size < 1 || size > MaxMembers {
		return nil, fmt.Errorf("multicast group: size %d, want 1..%d", size, MaxMembers)
	}
	g := &Group{size: size, members: make([]Member, size)}
	for i := range g.members {
		g.members[i].Rank = -1
	}
	for _, m := range members {
		if err := g.check(m); err != nil {
			return nil, err
		}
		if g.members[m.Rank].Rank >= 0 {
			return nil, fmt.Errorf("multicast group: rank %d is given twice", m.Rank)
		}
		g.members[m.Rank] = m
	}
	g.plan()
	return g, nil
}

// With is the group with m in place of whoever had its rank.
func (g *Group) With(m Member) (*Group, error) {
	if err := g.check(m); err != nil {
		return nil, err
	}
	n := &Group{size: g.size, members: slices.Clone(g.members)}
	n.members[m.Rank] = m
	n.plan()
	return n, nil
}

func (g *Group) check(m Member) error {
	switch {
	case m.Rank < 0 || m.Rank >= g.size:
		return fmt.Errorf("multicast group: rank %d, want 0..%d", m.Rank, g.size-1)
	case m.Port < Unknown:
		return fmt.Errorf("multicast group: rank %d has port %d, want an index or %d for unknown", m.Rank, m.Port, Unknown)
	case m.MAC.IsZero() || m.MAC.IsMulticast():
		return fmt.Errorf("multicast group: rank %d has MAC address %v, want a station's", m.Rank, m.MAC)
	case !m.IP.IsUnicast():
		return fmt.Errorf("multicast group: rank %d has IP address %v, want a host's", m.Rank, m.IP)
	}
	return nil
}

// plan fills the copies.
func (g *Group) plan() {
	g.copies = g.copies[:0]
	g.present = 0
	for _, m := range g.members {
		if m.Rank < 0 {
			continue
		}
		g.present++
		if m.Port != Unknown {
			g.copies = append(g.copies, Copy(m))
		}
	}
	slices.SortFunc(g.copies, func(a, b Copy) int {
		return cmp.Or(cmp.Compare(a.Port, b.Port), cmp.Compare(a.Rank, b.Rank))
	})
}

// Size is the number of ranks.
func (g *Group) Size() int { return g.size }

// Present is the number of ranks that have a member.
func (g *Group) Present() int { return g.present }

// Unreachable is the number of ranks that a result cannot be sent to yet: no
// member, or its port unknown. Copies does not contain them, so a caller that
// replicates counts them as not sent.
func (g *Group) Unreachable() int { return g.size - len(g.copies) }

// Member is the member of a rank; ok is false when there is none.
func (g *Group) Member(rank int) (m Member, ok bool) {
	if rank < 0 || rank >= g.size || g.members[rank].Rank < 0 {
		return Member{}, false
	}
	return g.members[rank], true
}

// Copies is where a result goes: one entry a reachable member, lowest port
// first, then lowest rank. It belongs to the group and must not be changed.
func (g *Group) Copies() []Copy { return g.copies }
