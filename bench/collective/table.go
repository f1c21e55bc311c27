package collective

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"gradnic/bench/report"
	"gradnic/internal/ncclstyle"
)

// TableOptions say what is compared, as nccl-tests' options do. The zero value of each field is documented with it.
type TableOptions struct {
	Dir        string   // for the yardsticks' programs
	Workers    int      // 0 means 4
	Link       Link     // zero: a plain veth of MTU 1500, as fast as the CPU
	From, To   int      // bytes, the first and the last size; 0 means 64 KiB and 16 MiB
	Factor     int      // from one size to the next; 0 means 4
	Rounds     int      // that are measured of each size and way; 0 means 10
	WarmUp     int      // rounds before them; 0 means 2
	Transports []string // nil means Transports(), with Loss those that can lose
	Loss       float64  // probability that the NIC loses a frame, at each port and in each direction; below 1; native and switchml only
	Log        io.Writer
	Command    string
}

// Table is what was measured.
type Table struct {
	Schema      int            `json:"schema"` // 1
	Machine     report.Machine `json:"machine"`
	Command     string         `json:"command"`
	Interrupted string         `json:"interrupted,omitempty"`
	Notes       []string       `json:"notes,omitempty"`
	Workers     int            `json:"workers"`
	LinkRate    uint64         `json:"link_bits_per_second"` // 0: not limited
	MTU         int            `json:"mtu"`
	Loss        float64        `json:"loss"` // probability that a frame is lost, in each direction of each link
	Rows        []TableRow     `json:"rows"`
}

// TableRow is one transport at one size.
type TableRow struct {
	Transport string `json:"transport"`
	Bytes     int    `json:"size"`
	Elements  int    `json:"count"`
	Type      string `json:"type"`
	Op        string `json:"redop"`
	Out       *Way   `json:"out_of_place"` // null: the transport has none
	In        *Way   `json:"in_place"`
}

// Way is the rounds of one size, out of place or in place.
type Way struct {
	Time    time.Duration `json:"time_ns"` // median of the slowest rank
	P50     time.Duration `json:"p50_ns"`
	P99     time.Duration `json:"p99_ns,omitempty"` // from 100 rounds on
	AlgBW   float64       `json:"algbw_gb_per_s"`
	BusBW   float64       `json:"busbw_gb_per_s"`
	Wrong   int64         `json:"wrong"`
	Rounds  int           `json:"rounds"`
	Seconds []float64     `json:"seconds"`
}

// roundsP99 is how many rounds a 99th percentile needs.
const roundsP99 = 100

func newWay(bytes, ranks int, seconds []float64, wrong int64) *Way {
	sorted := slices.Sorted(slices.Values(seconds))
	at := func(q float64) time.Duration {
		i := int(math.Ceil(q*float64(len(sorted)))) - 1
		return time.Duration(sorted[max(i, 0)] * 1e9)
	}
	w := &Way{Time: time.Duration(report.Median(seconds) * 1e9), P50: at(0.5), Wrong: wrong, Rounds: len(seconds), Seconds: seconds}
	if len(seconds) >= roundsP99 {
		w.P99 = at(0.99)
	}
	r := ncclstyle.Row{Bytes: int64(bytes), Ranks: ranks, Time: w.Time}
	w.AlgBW, w.BusBW = r.AlgBW(), r.BusBW()
	return w
}

func (o *TableOptions) setDefaults() error {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	def(&o.Workers, 4)
	def(&o.From, 64*kib)
	def(&o.To, 16*mib)
	def(&o.Factor, 4)
	def(&o.Rounds, 10)
	def(&o.WarmUp, 2)
	def(&o.Link.MTU, 1500)
	if o.Transports == nil {
		o.Transports = Transports()
		if o.Loss != 0 {
			o.Transports = slices.DeleteFunc(o.Transports, func(name string) bool { return !overNIC(name) })
		}
	}
	if o.Log == nil {
		o.Log = io.Discard
	}
	switch {
	case o.Workers < 1 || o.Workers > 32:
		return fmt.Errorf("all-reduce: %d workers: legal are 1 to 32", o.Workers)
	case o.From < 4 || o.From%4 != 0 || o.To < o.From || o.To > 1<<30:
		return fmt.Errorf("all-reduce: sizes from %d to %d bytes: legal are multiples of 4 up to 1 GiB", o.From, o.To)
	case o.Factor < 2:
		return fmt.Errorf("all-reduce: factor %d: legal are 2 and more", o.Factor)
	case o.Rounds < 1 || o.WarmUp < 0:
		return fmt.Errorf("all-reduce: %d rounds after %d", o.Rounds, o.WarmUp)
	case !(o.Loss >= 0 && o.Loss < 1):
		return fmt.Errorf("all-reduce: a share of %v is lost: legal are 0 to below 1", o.Loss)
	}
	for _, t := range o.Transports {
		if err := checkTransport(t); err != nil {
			return err
		}
		if o.Loss != 0 && !overNIC(t) {
			return fmt.Errorf("all-reduce: transport %s goes past the NIC, which is what loses frames", t)
		}
	}
	return nil
}

// sizes are those of the table, in float32.
func (o *TableOptions) sizes() (elements []int) {
	for b := o.From; b <= o.To; b *= o.Factor {
		elements = append(elements, b/4)
	}
	return elements
}

// Compare measures all-reduces of all sizes by each transport, one after the other, each over links of its own. When ctx
// ends, the table has what was complete, and the error is ctx's.
func Compare(ctx context.Context, o TableOptions) (*Table, error) {
	if err := o.setDefaults(); err != nil {
		return nil, err
	}
	t := &Table{Schema: 1, Machine: report.ThisMachine(), Command: o.Command, Workers: o.Workers, LinkRate: o.Link.Rate, MTU: o.Link.MTU, Loss: o.Loss}
	t.Machine.Driver, t.Machine.Mode = "veth", "native"
	for _, name := range o.Transports {
		if err := o.transport(ctx, t, name); err != nil {
			err = fmt.Errorf("%s: %w", name, err)
			t.Interrupted = err.Error()
			return t, err
		}
	}
	return t, nil
}

func (o *TableOptions) transport(ctx context.Context, t *Table, name string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	s, err := newStar(o.Workers, o.Link)
	if err != nil {
		return err
	}
	defer s.Close()
	s.loss = o.Loss
	add := func(elements int, out, in *Way) {
		row := TableRow{Transport: name, Bytes: 4 * elements, Elements: elements, Type: "float", Op: "sum", Out: out, In: in}
		t.Rows = append(t.Rows, row)
		fmt.Fprintf(o.Log, "%-12s", name)
		_ = row.write(o.Log, o.Workers) // progress
	}
	switch name {
	case "gloo":
		if !haveTorch(ctx, s) {
			t.Notes = append(t.Notes, ErrNoTorch.Error())
			return nil
		}
		if err := s.bridge(); err != nil {
			return err
		}
		got, err := s.glooSizes(ctx, o.Dir, o.sizes(), o.WarmUp+o.Rounds)
		if err != nil {
			return err
		}
		for i, n := range o.sizes() {
			add(n, nil, newWay(4*n, o.Workers, got[i].seconds[o.WarmUp:], got[i].wrong))
		}
		return nil
	case "mpi":
		if !haveMPI(ctx) {
			t.Notes = append(t.Notes, ErrNoMPI.Error())
			return nil
		}
		if err := s.bridge(); err != nil {
			return err
		}
		out, in, err := s.mpi(ctx, o.Dir, o.sizes(), o.WarmUp+o.Rounds)
		if err != nil {
			return err
		}
		for i, n := range o.sizes() {
			add(n, newWay(4*n, o.Workers, out[i].seconds[o.WarmUp:], out[i].wrong), newWay(4*n, o.Workers, in[i].seconds[o.WarmUp:], in[i].wrong))
		}
		return nil
	}
	r, err := start(ctx, name, s)
	if err != nil {
		return err
	}
	err = o.reducer(ctx, r, add)
	return errors.Join(err, r.close())
}

// reducer measures all sizes of one transport.
func (o *TableOptions) reducer(ctx context.Context, r reducer, add func(elements int, out, in *Way)) error {
	for _, n := range o.sizes() {
		var ways [2]*Way
		for k := range ways {
			var (
				seconds []float64
				wrong   int64
			)
			for round := range o.WarmUp + o.Rounds {
				d, w, err := r.reduce(ctx, n, k == 1)
				if err != nil {
					return fmt.Errorf("%s: %w", bytesString(4*n), err)
				}
				wrong += w
				if round >= o.WarmUp {
					seconds = append(seconds, d.Seconds())
				}
			}
			ways[k] = newWay(4*n, o.Workers, seconds, wrong)
		}
		add(n, ways[0], ways[1])
	}
	return nil
}

// Write writes a table for each transport, as nccl-tests prints it, with the percentiles behind.
func (t *Table) Write(w io.Writer) error {
	link := "not limited"
	if t.LinkRate > 0 {
		link = Link{Rate: t.LinkRate}.String()
	}
	loss := ""
	if t.Loss > 0 {
		loss = fmt.Sprintf(", %.4g %% of frames lost each way", 100*t.Loss)
	}
	if _, err := fmt.Fprintf(w, "# %d ranks, links %s, MTU %d%s; %v\n", t.Workers, link, t.MTU, loss, t.Machine); err != nil {
		return err
	}
	for _, n := range t.Notes {
		if _, err := fmt.Fprintf(w, "# %s\n", n); err != nil {
			return err
		}
	}
	last := ""
	for _, r := range t.Rows {
		if r.Transport != last {
			last = r.Transport
			if _, err := fmt.Fprintf(w, "#\n# %s\n", r.Transport); err != nil {
				return err
			}
			if err := ncclstyle.WriteBothHeader(w); err != nil {
				return err
			}
		}
		if err := r.write(w, t.Workers); err != nil {
			return err
		}
	}
	if t.Interrupted != "" {
		_, err := fmt.Fprintf(w, "# interrupted: %s\n", t.Interrupted)
		return err
	}
	return nil
}

func (r *TableRow) write(w io.Writer, ranks int) error {
	both := ncclstyle.Both{Bytes: int64(r.Bytes), Elements: int64(r.Elements), Type: r.Type, RedOp: r.Op, Ranks: ranks}
	for i, way := range []*Way{r.Out, r.In} {
		if way != nil {
			both.Ways[i] = &ncclstyle.Way{Time: way.Time, Wrong: way.Wrong, P50: way.P50, P99: way.P99}
		}
	}
	return both.Write(w)
}

// WriteFile writes the table as report.WriteJSON does.
func (t *Table) WriteFile(path string) error { return report.WriteJSON(path, t) }

// Report is the table as rows and plots of the bench's reports.
func (t *Table) Report() *report.Report {
	r := &report.Report{
		Schema: report.Schema, Title: fmt.Sprintf("All-reduce of %d ranks, links %v", t.Workers, Link{Rate: t.LinkRate}), Machine: t.Machine,
		Command: t.Command, Interrupted: t.Interrupted, Notes: t.Notes,
	}
	p := report.Plot{Title: "Bus bandwidth by size (in place)", X: "KiB of one rank's array", Y: "GB/s", LogX: true, LogY: true}
	q := report.Plot{Title: "Time by size (in place)", X: "KiB of one rank's array", Y: "us", LogX: true, LogY: true}
	for _, row := range t.Rows {
		way := row.In
		if way == nil {
			continue
		}
		var bus, us []float64
		for _, s := range way.Seconds {
			x := ncclstyle.Row{Bytes: int64(row.Bytes), Ranks: t.Workers, Time: time.Duration(s * 1e9)}
			bus, us = append(bus, x.BusBW()), append(us, s*1e6)
		}
		p.At(row.Transport, float64(row.Bytes)/kib, bus)
		q.At(row.Transport, float64(row.Bytes)/kib, us)
		note := ""
		if way.Wrong > 0 {
			note = fmt.Sprintf("INVALID: %d wrong elements", way.Wrong)
		}
		r.Add(report.Row{Name: fmt.Sprintf("busbw/%s/%s", row.Transport, bytesString(row.Bytes)), Unit: "GB/s", Note: note}, bus, nil)
	}
	r.Plots = []report.Plot{p, q}
	return r
}
