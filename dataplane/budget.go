package dataplane

import (
	"errors"
	"fmt"

	"gradnic/multicast"
	"gradnic/wire/inet"
	"gradnic/xdp"
)

// Budget bounds the frames that a port takes of some senders. It is kept by the steering program, before a frame costs
// a lane anything: what is above it never comes here, and is counted there (xdp.OverBudget, PortSnapshot.Budgets).
// Ports that are not netdevs have none.
type Budget struct {
	// Name says whose it is.
	Name string
	// Rate is in frames a second on each port, up to xdp.MaxRate; 0 counts and bounds nothing.
	Rate uint64
	// Senders are who is charged.
	Senders []Sender
}

// Sender is a station behind a port. A MAC address that comes in by another port is a stranger's.
type Sender struct {
	MAC  inet.MAC
	Port int // index; -1: it is not known yet, any port
}

// Budgets are all budgets of a NIC.
type Budgets struct {
	// Strays is charged with frames of all that are nobody's sender; its Senders say nothing.
	Strays Budget
	// Named have different names. A sender of several is charged to the first.
	Named []Budget
}

// BudgetSnapshot is what one port has charged to a budget since it was set.
type BudgetSnapshot struct {
	Name    string `json:"name"`
	Rate    uint64 `json:"rate"`    // frames a second, 0: no bound
	Burst   int    `json:"burst"`   // frames at once
	Taken   uint64 `json:"taken"`   // frames
	Dropped uint64 `json:"dropped"` // frames over the budget
}

// SetBudgets sets the budgets of all ports instead of those before; nil bounds nothing. A burst is half of what a
// receive ring holds, so that a budget that was saved up does not overflow it. Budgets and senders that stay are charged
// without a gap. A port that could not be told keeps some of the old ones; the others have the new ones.
func (n *NIC) SetBudgets(b *Budgets) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.state == stopped {
		return fmt.Errorf("budgets: %w", ErrStopped)
	}
	old := n.budgets
	n.budgets = b
	var errs []error
	for _, p := range n.ports {
		errs = append(errs, n.giveBudgets(p))
	}
	if err := errors.Join(errs...); err != nil {
		n.budgets = old // what a port that is made again gets is what could be
		return err
	}
	return nil
}

// giveBudgets sets the budgets of a port that is open. n.mu is held.
func (n *NIC) giveBudgets(p *port) error {
	if p.open == nil || p.open.budgets == nil {
		return nil
	}
	if err := p.open.budgets(n.budgetsOf(p)); err != nil {
		return fmt.Errorf("budgets of port %s: %w", p.name, err)
	}
	return nil
}

// budgetsOf are the budgets as a port has them.
func (n *NIC) budgetsOf(p *port) *xdp.Budgets {
	if n.budgets == nil {
		return nil
	}
	depth := p.open.depth
	if depth == 0 {
		depth = n.cfg.FramesPerQueue
	}
	burst := max(1, depth/4) // half of a queue's frames receive
	own := func(b *Budget) xdp.Budget { return xdp.Budget{Name: b.Name, Rate: b.Rate, Burst: burst} }
	out := &xdp.Budgets{Stray: own(&n.budgets.Strays)}
	for i := range n.budgets.Named {
		b := &n.budgets.Named[i]
		x := own(b)
		x.Sources = make([][6]byte, 0, len(b.Senders))
		for _, s := range b.Senders {
			if s.Port == p.index || s.Port == multicast.Unknown {
				x.Sources = append(x.Sources, s.MAC)
			}
		}
		out.Named = append(out.Named, x)
	}
	return out
}

// spent is what a port has charged, over all the sockets that it had. n.mu is held.
func (p *port) spent() []BudgetSnapshot {
	if p.open == nil || p.open.spent == nil {
		return nil
	}
	all, err := p.open.spent()
	if err != nil {
		return nil
	}
	out := make([]BudgetSnapshot, len(all))
	for i, s := range all {
		past := p.pastSpent[s.Name]
		out[i] = BudgetSnapshot{Name: s.Name, Rate: s.Rate, Burst: s.Burst, Taken: s.Taken + past[0], Dropped: s.Dropped + past[1]}
	}
	return out
}

// rememberSpent keeps what was charged before the steering program is closed.
func (p *port) rememberSpent() {
	past := map[string][2]uint64{}
	for _, s := range p.spent() {
		past[s.Name] = [2]uint64{s.Taken, s.Dropped}
	}
	p.pastSpent = past
}
