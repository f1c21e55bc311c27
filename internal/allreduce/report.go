package allreduce

import (
	"fmt"
	"io"
	"slices"
	"time"

	"gradnic/internal/ncclstyle"
	"gradnic/worker"
)

// Report is what a run measured at this worker. Its JSON is documented in docs/json.md.
type Report struct {
	OK             bool   `json:"ok"`
	Error          string `json:"error,omitempty"`
	Rank           int    `json:"rank"`
	Workers        int    `json:"workers"`
	Type           string `json:"type"` // float or int32, as NCCL has it
	PacketElements int    `json:"packet_elements"`
	Threads        int    `json:"threads"`
	Outstanding    int    `json:"outstanding"`
	Checked        bool   `json:"checked"`
	Rows           []*Row `json:"rows"`
}

// Row is one array's length, over all iterations.
type Row struct {
	Bytes      int64   `json:"size"`
	Elements   int64   `json:"count"`
	RedOp      string  `json:"redop"`
	Iterations int     `json:"iterations"`
	TimeUs     float64 `json:"time_us"` // mean, as nccl-tests has it
	MinUs      float64 `json:"min_us"`
	MaxUs      float64 `json:"max_us"`
	AlgBW      float64 `json:"algbw_gbps"`
	BusBW      float64 `json:"busbw_gbps"`
	Wrong      int64   `json:"wrong"` // over all iterations and those that warmed up; -1 if not checked
	MaxAbsErr  float64 `json:"max_abs_err"`
	Bound      float64 `json:"bound"` // the largest of any element
	worker.Counts
	// RTT is that of the iteration with the median time.
	RTT worker.Latency `json:"rtt"`

	table ncclstyle.Row
	times []timed
}

type timed struct {
	elapsed time.Duration
	rtt     worker.Latency
}

func newRow(elements int, r *Report) *Row {
	row := &Row{Bytes: 4 * int64(elements), Elements: int64(elements), RedOp: "sum", Wrong: -1}
	if r.Checked {
		row.Wrong = 0
	}
	row.table = ncclstyle.Row{Bytes: row.Bytes, Elements: row.Elements, Type: r.Type, RedOp: row.RedOp, Ranks: r.Workers}
	return row
}

func (r *Row) time(s worker.Stats) {
	r.Iterations++
	r.times = append(r.times, timed{s.Elapsed, s.RTT})
	r.Counts.Add(&s.Counts)
}

func (r *Row) check(c worker.Check) {
	r.Wrong += int64(c.Wrong)
	r.MaxAbsErr = max(r.MaxAbsErr, c.MaxAbsErr)
	r.Bound = max(r.Bound, c.MaxBound)
}

// finish computes what needs all iterations; there is at least one.
func (r *Row) finish() {
	slices.SortFunc(r.times, func(a, b timed) int { return int(a.elapsed - b.elapsed) })
	var sum time.Duration
	for _, t := range r.times {
		sum += t.elapsed
	}
	us := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
	mean := sum / time.Duration(len(r.times))
	r.TimeUs, r.MinUs, r.MaxUs = us(mean), us(r.times[0].elapsed), us(r.times[len(r.times)-1].elapsed)
	r.RTT = r.times[len(r.times)/2].rtt
	r.table.Time, r.table.Wrong = mean, r.Wrong
	r.AlgBW, r.BusBW = r.table.AlgBW(), r.table.BusBW()
}

func (r *Report) wrong() (n int64) {
	for _, row := range r.Rows {
		n += max(row.Wrong, 0)
	}
	return n
}

// Table writes the report for people: nccl-tests' table, and under it what the way cost.
func (r *Report) Table(w io.Writer) error {
	p := &printer{w: w}
	p.printf("# rank %d of %d, %d elements a packet, %d outstanding, %d thread(s)\n", r.Rank, r.Workers, r.PacketElements, r.Outstanding, r.Threads)
	p.do(ncclstyle.WriteHeader(w))
	var t worker.Counts
	for _, row := range r.Rows {
		p.do(row.table.Write(w))
		t.Add(&row.Counts)
	}
	p.printf("# packets %d, resent %d (%d before the timer, %d timeouts); ignored: %d duplicate, %d stale, %d foreign; socket errors %d\n",
		t.Packets, t.Resent, t.Early, t.Timeouts, t.Duplicates, t.Stale, t.Foreign, t.SocketErrors)
	if t.Saturated > 0 {
		p.printf("# %d blocks were SATURATED: their sums are finite and not the sums of the inputs\n", t.Saturated)
	}
	for _, row := range r.Rows {
		p.printf("# %d: round trip p50 %v, p99 %v, max %v", row.Elements,
			row.RTT.P50.Round(time.Microsecond), row.RTT.P99.Round(time.Microsecond), row.RTT.Max.Round(time.Microsecond))
		if r.Checked && r.Type == ncclName(typeFloat32) {
			p.printf("; largest error %.3g, bound %.3g", row.MaxAbsErr, row.Bound)
		}
		p.printf("\n")
	}
	return p.err
}

// printer keeps the first error.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) do(err error) {
	if p.err == nil {
		p.err = err
	}
}

func (p *printer) printf(format string, a ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format, a...)
	}
}
