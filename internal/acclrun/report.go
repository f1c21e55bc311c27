package acclrun

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"gradnic/internal/ncclstyle"
	wire "gradnic/wire/accl"
	"gradnic/worker/accl"
)

// Report is what a rank measured. Its JSON is documented in docs/json.md.
type Report struct {
	OK         bool              `json:"ok"`
	Error      string            `json:"error,omitempty"`
	Rank       int               `json:"rank"`
	Ranks      int               `json:"ranks"`
	Transport  string            `json:"transport"`
	Collective string            `json:"collective"`
	Type       string            `json:"type"` // as NCCL calls it
	RedOp      string            `json:"redop"`
	Half       bool              `json:"half"`
	Checked    bool              `json:"checked"`
	Rows       []*Row            `json:"rows"`
	Sent       uint64            `json:"sent"`     // datagrams
	Received   uint64            `json:"received"` // datagrams
	Messages   uint64            `json:"messages"` // received
	Flagged    uint64            `json:"flagged"`
	Faults     map[string]uint64 `json:"faults"` // datagrams dropped, by reason
}

// Row is one count, over all iterations.
type Row struct {
	Bytes      int64   `json:"size"` // of this rank's largest array
	Elements   int64   `json:"count"`
	Iterations int     `json:"iterations"`
	TimeUs     float64 `json:"time_us"` // mean
	MinUs      float64 `json:"min_us"`
	MaxUs      float64 `json:"max_us"`
	AlgBW      float64 `json:"algbw_gbps"`
	BusBW      float64 `json:"busbw_gbps"`
	Wrong      int64   `json:"wrong"` // over all iterations and those that warmed up; -1 if not checked

	table ncclstyle.Row
	times []time.Duration
}

var ncclNames = map[accl.Type]string{accl.Float32: "float", accl.Float16: "half", accl.Float64: "double"}

func newReport(o *Options) *Report {
	r := &Report{
		Rank: o.Rank.Rank, Ranks: len(o.Rank.Ranks), Transport: o.Transport, Collective: o.Call.Collective.String(),
		Type: o.Call.Type.String(), RedOp: "none", Half: o.Call.Half, Checked: o.Check, Rows: []*Row{}, Faults: map[string]uint64{},
	}
	if n, ok := ncclNames[o.Call.Type]; ok {
		r.Type = n
	}
	switch o.Call.Collective {
	case accl.Reduce, accl.ReduceScatter, accl.AllReduce:
		r.RedOp = o.Call.Op.String()
	}
	return r
}

// busFactor is what a call's algorithm bandwidth is multiplied by for the bandwidth of its busiest link (nccl-tests,
// doc/PERFORMANCE.md).
func busFactor(collective string, ranks int) float64 {
	n := float64(ranks)
	switch collective {
	case accl.AllReduce.String():
		return 2 * (n - 1) / n
	case accl.Send.String(), accl.Bcast.String(), accl.Reduce.String():
		return 1
	}
	return (n - 1) / n
}

func (r *Report) newRow(count, size int, bytes int) *Row {
	row := &Row{Bytes: int64(bytes), Elements: int64(count), Wrong: -1}
	if r.Checked {
		row.Wrong = 0
	}
	row.table = ncclstyle.Row{Bytes: row.Bytes, Elements: row.Elements, Type: r.Type, RedOp: r.RedOp, Ranks: r.Ranks, BusFactor: busFactor(r.Collective, r.Ranks)}
	return row
}

func (r *Row) time(d time.Duration) {
	r.Iterations++
	r.times = append(r.times, d)
}

func (r *Row) finish() {
	slices.Sort(r.times)
	var sum time.Duration
	for _, d := range r.times {
		sum += d
	}
	us := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
	mean := sum / time.Duration(len(r.times))
	r.TimeUs, r.MinUs, r.MaxUs = us(mean), us(r.times[0]), us(r.times[len(r.times)-1])
	r.table.Time, r.table.Wrong = mean, r.Wrong
	r.AlgBW, r.BusBW = r.table.AlgBW(), r.table.BusBW()
}

func (r *Report) wrong() (n int64) {
	for _, row := range r.Rows {
		n += max(row.Wrong, 0)
	}
	return n
}

func (r *Report) count(s accl.Stats) {
	r.Sent, r.Received, r.Messages, r.Flagged = s.Sent, s.Received, s.Messages, s.Flagged
	for f, n := range s.Faults {
		if n > 0 {
			r.Faults[wire.Fault(f).String()] = n
		}
	}
}

// Table writes the report for people: nccl-tests' table, and under it what was on the wire.
func (r *Report) Table(w io.Writer) error {
	if _, err := fmt.Fprintf(w, "# %s, rank %d of %d over %s\n", r.Collective, r.Rank, r.Ranks, r.Transport); err != nil {
		return err
	}
	if err := ncclstyle.WriteHeader(w); err != nil {
		return err
	}
	for _, row := range r.Rows {
		if err := row.table.Write(w); err != nil {
			return err
		}
	}
	var faults []string
	for f, n := range r.Faults {
		faults = append(faults, fmt.Sprintf("%s %d", f, n))
	}
	slices.Sort(faults)
	dropped := "none dropped"
	if len(faults) > 0 {
		dropped = "dropped: " + strings.Join(faults, ", ")
	}
	_, err := fmt.Fprintf(w, "# datagrams sent %d, received %d in %d messages; %s; elements flagged %d\n", r.Sent, r.Received, r.Messages, dropped, r.Flagged)
	return err
}
