package demo

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"gradnic/dataplane"
	"gradnic/internal/ncclstyle"
)

// Report is what a run measured. Its JSON is documented in docs/json.md.
type Report struct {
	OK             bool               `json:"ok"`
	Error          string             `json:"error,omitempty"`
	Workers        int                `json:"workers"`
	Elements       int                `json:"elements"`
	PacketElements int                `json:"packet_elements"`
	Iterations     int                `json:"iterations"` // those that are done
	Transport      string             `json:"transport"`  // xdp-native, xdp-generic or mem
	Wrong          int                `json:"wrong"`
	MaxAbsErr      float64            `json:"max_abs_err"`
	Bound          float64            `json:"bound"`
	TimeUs         float64            `json:"time_us"`
	AlgBW          float64            `json:"algbw_gbps"`
	BusBW          float64            `json:"busbw_gbps"`
	Loss           float64            `json:"loss"`
	Resent         uint64             `json:"resent"`
	NIC            dataplane.Counters `json:"nic"`

	rows []row
}

// row is one all-reduce.
type row struct {
	elapsed time.Duration
	wrong   int
	resent  uint64
	warmup  bool
}

// line is an all-reduce of this run as a row of the table.
func (r *Report) line(elapsed time.Duration, wrong int) ncclstyle.Row {
	return ncclstyle.Row{
		Bytes: 4 * int64(r.Elements), Elements: int64(r.Elements), Type: "float", RedOp: "sum",
		Ranks: r.Workers, Time: elapsed, Wrong: int64(wrong),
	}
}

// summarise computes the figures of the whole run from its rows. The first all-reduce is not timed, but it is checked.
func (r *Report) summarise() {
	var times []time.Duration
	for _, row := range r.rows {
		r.Wrong += row.wrong
		r.Resent += row.resent
		if !row.warmup {
			times = append(times, row.elapsed)
		}
	}
	r.Iterations = len(times)
	if len(times) == 0 {
		return
	}
	slices.Sort(times)
	median := times[len(times)/2]
	if len(times)%2 == 0 {
		median = (median + times[len(times)/2-1]) / 2
	}
	r.TimeUs = float64(median.Nanoseconds()) / 1000
	line := r.line(median, r.Wrong)
	r.AlgBW, r.BusBW = line.AlgBW(), line.BusBW()
}

// Checked says whether any all-reduce came to its end.
func (r *Report) Checked() bool { return len(r.rows) > 0 }

// Describe says in words how frames got to the NIC.
func (r *Report) Describe() string {
	if mode, ok := strings.CutPrefix(r.Transport, "xdp-"); ok {
		return fmt.Sprintf("AF_XDP %s mode, %d veth pairs between network namespaces", mode, r.Workers)
	}
	return "memory inside the process, no AF_XDP (that needs root)"
}

// maxRows is how many all-reduces the table shows one by one.
const maxRows = 20

// Table writes the report as nccl-tests prints its own, and the NIC's counters below.
func (r *Report) Table(w io.Writer) error {
	p := &printer{w: w}
	p.f("# gradnic demo: the gradients of %d workers, summed in the network\n", r.Workers)
	p.f("#\n")
	p.f("#   transport  %s\n", r.Describe())
	p.f("#   protocol   SwitchML over UDP, %d elements a packet\n", r.PacketElements)
	p.f("#   gradients  %d float32 a worker, of a small language model\n", r.Elements)
	if r.Loss > 0 {
		p.f("#   loss       %.3g %% of the frames, in each direction of each port\n", 100*r.Loss)
	}
	p.f("#\n")
	p.do(ncclstyle.WriteHeader)
	shown := 0
	for _, row := range r.rows {
		if row.warmup {
			continue
		}
		if shown++; shown > maxRows {
			continue
		}
		p.do(r.line(row.elapsed, row.wrong).Write)
	}
	if shown > maxRows {
		p.f(" %12s  (%d more)\n", "...", shown-maxRows)
	}
	verdict := "OK"
	if r.Wrong > 0 {
		verdict = "FAILED"
	}
	p.f("#\n")
	p.f("# Out of bounds values : %d %s\n", r.Wrong, verdict)
	p.f("# Largest error        : %.3g (bound %.3g) against the float64 sum, every element of every worker\n", r.MaxAbsErr, r.Bound)
	p.f("# Median bus bandwidth : %.3f GB/s\n", r.BusBW)
	p.f("# Packets sent again   : %d\n", r.Resent)
	p.f("#\n")
	p.counters(&r.NIC)
	return p.err
}

type printer struct {
	w   io.Writer
	err error
}

func (p *printer) f(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format, args...)
	}
}

func (p *printer) do(write func(io.Writer) error) {
	if p.err == nil {
		p.err = write(p.w)
	}
}

func (p *printer) counters(c *dataplane.Counters) {
	p.f("# The NIC's frames\n")
	p.f("#   received     %10d  = contributed %d + duplicates %d + answered %d + dropped %d", c.Received,
		c.Contributed, c.Duplicates, c.Answered, c.Dropped())
	if c.Passed > 0 || c.InFlight > 0 {
		p.f(" + passed %d + in flight %d", c.Passed, c.InFlight)
	}
	if c.Injected > 0 {
		p.f(" - injected %d", c.Injected)
	}
	p.f("\n")
	p.reasons("dropped", c.Drops)
	p.f("#   results      %10d  slots completed; %d results sent again to one worker\n", c.Results, c.Resent)
	p.f("#   transmitted  %10d  frames in %d transmit calls; %.1f frames a receive batch\n", c.Transmitted, c.Kicks,
		float64(c.Received)/float64(max(c.Batches, 1)))
	p.reasons("not sent", c.ReplicaDrops)
	if c.Wrapped > 0 {
		p.f("#   wrapped      %10d  elements overflowed\n", c.Wrapped)
	}
}

func (p *printer) reasons(what string, m map[string]uint64) {
	for _, reason := range slices.Sorted(maps.Keys(m)) {
		if m[reason] > 0 {
			p.f("#   %-12s %10d  %s\n", what, m[reason], reason)
		}
	}
}
