package demo

import (
	"fmt"
	"io"

	"gradnic/dataplane"
)

// TypesReport is what RunTypes measured. Its JSON is documented in docs/json.md.
type TypesReport struct {
	Series
	Rows []TypeRow          `json:"rows"`
	NIC  dataplane.Counters `json:"nic"`
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
	r.heading(p, "in every type")
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
