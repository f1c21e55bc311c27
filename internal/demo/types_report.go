package demo

import (
	"fmt"
	"io"
	"strings"

	"gradnic/dataplane"
)

// TypesReport is what RunTypes measured. Its JSON is documented in docs/json.md.
type TypesReport struct {
	OK        bool               `json:"ok"`
	Error     string             `json:"error,omitempty"`
	Workers   int                `json:"workers"`
	Elements  int                `json:"elements"`
	Transport string             `json:"transport"` // xdp-native, xdp-generic or mem
	Loss      float64            `json:"loss"`
	Rows      []TypeRow          `json:"rows"`
	NIC       dataplane.Counters `json:"nic"`
}

// TypeRow is one type in one order.
type TypeRow struct {
	Type           string `json:"type"`
	Order          string `json:"order"`
	Runs           int    `json:"runs"`
	PacketElements int    `json:"packet_elements"`
	// Exact says that nothing but the exact sum is right; otherwise each element has a bound.
	Exact bool `json:"exact"`
	// Wrong counts elements out of bound, over all runs and workers; Differing those that differ in any bit between
	// workers, and in order ranked between runs or from the sum by rank.
	Wrong     int     `json:"wrong"`
	Differing int     `json:"differing"`
	MaxErr    float64 `json:"max_err"` // in the type's units: integers are scaled
	Bound     float64 `json:"bound"`   // of the element with the largest one
	TimeUs    float64 `json:"time_us"` // median
	Resent    uint64  `json:"resent"`
}

// Table writes the report.
func (r *TypesReport) Table(w io.Writer) error {
	p := &printer{w: w}
	how := "memory inside the process, no AF_XDP (that needs root)"
	if mode, ok := strings.CutPrefix(r.Transport, "xdp-"); ok {
		how = fmt.Sprintf("AF_XDP %s mode, %d veth pairs between network namespaces", mode, r.Workers)
	}
	p.f("# gradnic demo: the gradients of %d workers in every type, summed in the network\n#\n", r.Workers)
	p.f("#   transport  %s\n", how)
	p.f("#   protocol   native over UDP, frames of 1500 bytes\n")
	p.f("#   gradients  %d elements a worker\n", r.Elements)
	if r.Loss > 0 {
		p.f("#   loss       %.3g %% of the frames, in each direction of each port\n", 100*r.Loss)
	}
	p.f("#\n# %-9s %-8s %5s %12s %12s %9s %10s %10s %8s\n", "type", "order", "runs", "max error", "bound", "wrong", "differing", "time (us)", "resent")
	for _, row := range r.Rows {
		bound := fmt.Sprintf("%.3g", row.Bound)
		if row.Exact {
			bound = "exact"
		}
		p.f("  %-9s %-8s %5d %12.3g %12s %9d %10d %10.0f %8d\n", row.Type, row.Order, row.Runs, row.MaxErr, bound, row.Wrong, row.Differing, row.TimeUs, row.Resent)
	}
	p.f("#\n# Order ranked: every run the same bits, and those of the sum by rank.\n#\n")
	p.counters(&r.NIC)
	return p.err
}
