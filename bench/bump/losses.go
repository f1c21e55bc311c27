package main

import (
	"fmt"
	"strings"
)

// losses is where frames were lost on their way since the NICs started, as far as their counters tell: what is offered over
// the link's rate is lost in the link and does not show here.
func (r *rig) losses() string {
	var b strings.Builder
	for side, n := range r.nics {
		s := n.Snapshot()
		for _, p := range s.Ports {
			lost := p.Kernel.RxDropped + p.Kernel.RxRingFull + p.Kernel.FillRingEmpty
			for _, v := range p.ReplicaDrops {
				lost += v
			}
			for _, v := range p.Drops {
				lost += v
			}
			fmt.Fprintf(&b, " NIC %d %s: received %d, sent %d, lost %d (rx %d full %d fill %d)", side, p.Name, p.Received, p.Transmitted, lost, p.Kernel.RxDropped, p.Kernel.RxRingFull, p.Kernel.FillRingEmpty)
		}
	}
	return b.String()
}
