package collective

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"gradnic/bench/report"
)

// Options say what is measured. The zero value is the table of docs/performance.md.
type Options struct {
	Dir     string    // for the yardstick's program
	Rounds  int       // of each size; 0 means 5
	Log     io.Writer // progress; nil: none
	Command string    // what the report says made it
	Cases   []Case    // nil: the table's
}

// Case is one kind of link and number of workers, with the message sizes that are summed over it.
type Case struct {
	Link    Link
	Workers int
	Sizes   []int // bytes of float32
	Gloo    bool  // measure gloo over the same links as well
	// Goal is the share of the allowance that the largest size should reach; 0: none.
	Goal float64
}

const (
	kib, mib = 1 << 10, 1 << 20
	share    = 0.90
	overGloo = 1.6
)

var (
	slow = Link{Rate: 200e6, MTU: 1500}
	fast = Link{Rate: 1e9, MTU: 9000}

	table = []Case{
		{Link: slow, Workers: 2, Sizes: []int{16 * mib}, Goal: share},
		{Link: slow, Workers: 4, Sizes: []int{16 * mib}, Goal: share},
		{Link: slow, Workers: 8, Sizes: []int{64 * kib, mib, 16 * mib}, Gloo: true, Goal: share},
		{Link: fast, Workers: 2, Sizes: []int{16 * mib}, Goal: share},
		{Link: fast, Workers: 4, Sizes: []int{64 * kib, mib, 16 * mib, 64 * mib}, Goal: share},
		{Link: fast, Workers: 8, Sizes: []int{16 * mib}},
	}
)

// Run measures all cases. Where torch is missing the rows of gloo are, and the report says so. After an error the report has
// the cases that were complete.
func Run(ctx context.Context, o Options) (*report.Report, error) {
	if o.Rounds < 0 {
		return nil, fmt.Errorf("%d rounds: at least one is needed", o.Rounds)
	}
	if o.Rounds == 0 {
		o.Rounds = 5
	}
	if o.Log == nil {
		o.Log = io.Discard
	}
	if o.Cases == nil {
		o.Cases = table
	}
	r := report.New(o.Command)
	r.Title = "All-reduces over limited links"
	r.Machine.Driver, r.Machine.Mode = "veth behind tbf", "native"
	for _, c := range o.Cases {
		if err := o.measure(ctx, r, c); err != nil {
			err = fmt.Errorf("%d workers at %v: %w", c.Workers, c.Link, err)
			r.Interrupted = err.Error()
			return r, err
		}
	}
	return r, nil
}

// figure is the rounds of one size.
type figure struct {
	seconds, cpu []float64
}

// longRow is how many seconds a row must take at the link's rate for what the link lets through at once, a thousandth of a second's
// worth, not to count.
const longRow = 0.1

// tooFast is the note of a row in which more came across in some round than the link allows: then the link is not what it is
// said to be, or the clock. "" if none did.
func tooFast(rates, allowed []float64) string {
	for i := range rates {
		if rates[i] > Most*allowed[i] {
			return fmt.Sprintf("INVALID: round %d got %.2f of what the link allows", i+1, rates[i]/allowed[i])
		}
	}
	return ""
}

// busy is the share of all processors from which they, and not the link, are said to bound a figure.
const busy = 0.8

// bound says what keeps the rate down: the processors when NIC and workers took nearly all of them, else the link.
func (f figure) bound() string {
	var elapsed, cpu float64
	for i := range f.seconds {
		elapsed, cpu = elapsed+f.seconds[i], cpu+f.cpu[i]
	}
	if share := cpu / elapsed / float64(runtime.NumCPU()); share >= busy {
		return fmt.Sprintf("the processors: NIC and workers take %.0f %% of all", min(share, 1)*100)
	}
	return "the link's rate; start and end of the pipeline"
}

// patience bounds one case: what takes longer is stuck.
const patience = 5 * time.Minute

func (o Options) measure(ctx context.Context, r *report.Report, c Case) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	s, err := newStar(c.Workers, c.Link)
	if err != nil {
		return err
	}
	defer s.Close()
	note, err := s.checkLink(o.Log)
	if err != nil {
		return err
	}
	ours, err := o.native(ctx, s, c)
	if err != nil {
		return err
	}
	sharePlot(r, c, ours)
	for i, size := range c.Sizes {
		name := fmt.Sprintf("allreduce/%d-workers/%v/%s", c.Workers, c.Link, bytesString(size))
		allowed := make([]float64, len(ours[i].seconds))
		rates := make([]float64, len(ours[i].seconds))
		for k, sec := range ours[i].seconds {
			allowed[k], rates[k] = c.Link.Allowance()/1e6, float64(size)/sec/1e6
		}
		row := report.Row{Name: name, Unit: "MB/s", Against: "what the link allows", Bound: ours[i].bound(), Note: note, Load: report.LoadAverage()}
		if note == "" && float64(size)/c.Link.Allowance() >= longRow {
			row.Note = tooFast(rates, allowed)
		}
		if i == len(c.Sizes)-1 || size == 16*mib {
			row.Goal = c.Goal
		}
		r.Add(row, rates, allowed)
		r.Add(report.Row{Name: "cpu/" + name[len("allreduce/"):], Unit: "s of NIC and workers"}, ours[i].cpu, nil)
	}
	if !c.Gloo {
		return nil
	}
	if !haveTorch(ctx, s) {
		r.Notes = append(r.Notes, ErrNoTorch.Error())
		return nil
	}
	if err := s.bridge(); err != nil {
		return err
	}
	for i, size := range c.Sizes {
		begin := cpuSeconds(unix.RUSAGE_CHILDREN)
		times, err := s.gloo(ctx, o.Dir, size/4, o.Rounds)
		if err != nil {
			return err
		}
		name := fmt.Sprintf("%d-workers/%v/%s", c.Workers, c.Link, bytesString(size))
		theirs := make([]float64, len(times))
		for k, t := range times {
			theirs[k] = t.Seconds()
			fmt.Fprintf(o.Log, "gloo %s: %v\n", name, t.Round(time.Millisecond))
		}
		row := report.Row{Name: "time-of-gloo/" + name, Unit: "s", Against: "allreduce/" + name, Bound: "a ring sends 2(N-1)/N times the bytes", Note: note, Load: report.LoadAverage()}
		if size == 16*mib {
			row.Goal = overGloo
		}
		r.Add(row, theirs, ours[i].seconds)
		r.Add(report.Row{Name: "cpu-of-gloo/" + name, Unit: "s of all ranks a round, with their start"},
			[]float64{(cpuSeconds(unix.RUSAGE_CHILDREN) - begin) / float64(o.Rounds)}, nil)
	}
	return nil
}

// sharePlot adds a case to the plot of what share of the allowance is reached, by size.
func sharePlot(r *report.Report, c Case, ours []figure) {
	if len(r.Plots) == 0 {
		r.Plots = []report.Plot{{Title: "Share of what the link allows, by size", X: "KiB of one worker's array", Y: "1 is all", LogX: true}}
	}
	for i, size := range c.Sizes {
		var shares []float64
		for _, sec := range ours[i].seconds {
			shares = append(shares, float64(size)/sec/c.Link.Allowance())
		}
		r.Plots[0].At(fmt.Sprintf("%d workers, %v", c.Workers, c.Link), float64(size)/kib, shares)
	}
}

// native runs the rounds of every size through the NIC, sizes taking turns.
func (o Options) native(ctx context.Context, s *star, c Case) (_ []figure, err error) {
	k, err := s.startNIC(ctx, "")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, k.Close()) }()
	figures := make([]figure, len(c.Sizes))
	if _, _, err := k.allReduce(ctx, 256*kib/4); err != nil { // the window opens
		return nil, err
	}
	for range o.Rounds {
		for i, size := range c.Sizes {
			t, cpu, err := k.allReduce(ctx, size/4)
			if err != nil {
				return nil, err
			}
			figures[i].seconds = append(figures[i].seconds, t.Seconds())
			figures[i].cpu = append(figures[i].cpu, cpu)
			fmt.Fprintf(o.Log, "native %d workers, %v, %s: %v, %.3f of the allowance\n", c.Workers, c.Link, bytesString(size),
				t.Round(time.Millisecond), float64(size)/t.Seconds()/c.Link.Allowance())
		}
	}
	return figures, nil
}

// cpuSeconds is the processor time used so far, by the process or by its children that have ended.
func cpuSeconds(who int) float64 {
	var u unix.Rusage
	if unix.Getrusage(who, &u) != nil {
		return 0
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

func bytesString(n int) string {
	if n%mib == 0 {
		return fmt.Sprintf("%dMiB", n/mib)
	}
	return fmt.Sprintf("%dKiB", n/kib)
}
