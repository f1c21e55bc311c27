package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"gradnic/bench/flow"
	"gradnic/bench/gen"
	"gradnic/bench/ndr"
	"gradnic/bench/peers"
	"gradnic/bench/report"
	"gradnic/bench/sink"

	"github.com/vishvananda/netlink"
)

// NDROptions say for which devices and sizes the no-drop and partial-drop rates are sought. The zero value is the table
// of docs/performance.md.
type NDROptions struct {
	Self    []string // argv of a contestant's process, to which KIND and the target are appended
	Dir     string   // where the C yardstick is built
	Devices []string // see contestants; nil means lane, rings and asavie/xdp in both ways
	Sizes   []int    // frame sizes in bytes without FCS; nil means 64, 298, 1066, 1514
	Rounds  int      // searches of each device and size; 0 means 3
	Search  ndr.Options
	Log     io.Writer // progress; nil: none
	Command string    // what the report says made it
}

// goalNDR is what the partial-drop rate of reflect at goalNDRSize should be, over asavie/xdp's.
const (
	goalNDR      = 1.2
	goalNDRSize  = 1066
	goalNDRLoss  = 0.005
	integrityPPS = 20_000
	// integrityFrames are at least sent to look at.
	integrityFrames = 500
)

// NDR searches for the highest rates at which devices that send every frame back lose none, or half a percent. The
// devices take turns: each round searches every device at every size. Each search is preceded by one without a device
// (an XDP program that sends back), and by a run whose returning frames are looked at one by one.
func NDR(ctx context.Context, o NDROptions) (*report.Report, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	if err := cpus(); err != nil {
		return nil, err
	}
	if o.Devices == nil {
		o.Devices = []string{"in-kernel", "lane", "rings", "asavie-example", "asavie"}
	}
	if o.Sizes == nil {
		o.Sizes = []int{64, 298, 1066, 1514}
	}
	if o.Rounds == 0 {
		o.Rounds = 3
	}
	if o.Log == nil {
		o.Log = io.Discard
	}
	if o.Search.Min == 0 {
		o.Search.Min = 20e3
	}
	if o.Search.Goals == nil {
		o.Search.Goals = []float64{0, goalNDRLoss}
	}
	r := report.New(o.Command)
	r.Title = "No-drop and partial-drop rates"
	r.Machine.Driver, r.Machine.Mode = "veth", "native"
	all, err := contestants(ctx, o.Devices, o.Self, o.Dir, r)
	if err != nil {
		return nil, err
	}
	rig, err := NewRig()
	if err != nil {
		return nil, err
	}
	defer rig.Close()
	s := ndrRun{o: o, rig: rig, got: map[string]*ndrSeries{}}
	err = s.rounds(ctx, all)
	s.rows(r, all)
	if err != nil {
		r.Interrupted = err.Error()
	}
	return r, err
}

// ndrSeries is the results of one device, size and goal over the rounds.
type ndrSeries struct {
	lower []float64
	load  []float64
	note  string
}

// add books a round. A note that says INVALID stays, whatever later rounds say.
func (s *ndrSeries) add(pps float64, note string) {
	s.lower, s.load = append(s.lower, pps/1e6), append(s.load, report.LoadAverage())
	if note != "" && !strings.Contains("; "+s.note, "; INVALID") {
		s.note = note
	}
}

type ndrRun struct {
	o     NDROptions
	rig   *Rig
	got   map[string]*ndrSeries
	trace []report.Plot
}

func ndrKey(device string, size int, goal float64) string {
	return fmt.Sprintf("ndr/reflect/%s/%d/%g%%", device, size, goal*100)
}

func (s *ndrRun) rounds(ctx context.Context, all []contestant) error {
	for round := range s.o.Rounds {
		for _, size := range s.o.Sizes {
			null, err := s.device(ctx, contestant{name: "tester alone", ceiling: gen.OpenBounce}, s.o.Search, size, round, nil)
			if err != nil {
				return err
			}
			// What the tester alone does not reach need not be tried with a device.
			seek := s.o.Search
			for _, res := range null.Results {
				seek.Max = max(seek.Max, seek.Min*2, res.Lower*1.2)
			}
			for i := range all {
				c := all[(i+round)%len(all)]
				note, err := s.rig.integrity(ctx, c, size)
				if err != nil {
					return fmt.Errorf("%s at %d bytes: %w", c.name, size, err)
				}
				out, err := s.device(ctx, c, seek, size, round, null.Results)
				if err != nil {
					return err
				}
				for _, res := range out.Results {
					s.series(ndrKey(c.name, size, res.Goal)).add(res.Lower, strings.Trim(note+"; "+res.Verdict, "; "))
				}
			}
			for _, res := range null.Results {
				verdict := "" // that its generator comes to its end is what is sought
				if res.Invalid() {
					verdict = res.Verdict
				}
				s.series(ndrKey("tester alone", size, res.Goal)).add(res.Lower, verdict)
			}
		}
	}
	return nil
}

func (s *ndrRun) series(key string) *ndrSeries {
	if s.got[key] == nil {
		s.got[key] = &ndrSeries{}
	}
	return s.got[key]
}

// searches is how often a search is made at most, when something else on the machine disturbs it.
const searches = 3

// device is the search of one device, made again when it is INVALID.
func (s *ndrRun) device(ctx context.Context, c contestant, o ndr.Options, size, round int, null []ndr.Result) (out *ndr.Outcome, err error) {
	for range searches {
		if out, err = s.search(ctx, c, o, size, round); err != nil {
			return out, err
		}
		for k := range out.Results {
			if c.sender() == socket {
				out.Results[k].AgainstTester(null)
			}
		}
		if !slices.ContainsFunc(out.Results, func(r ndr.Result) bool { return r.Invalid() }) {
			break
		}
	}
	return out, nil
}

// search is one whole search of one device at one size.
func (s *ndrRun) search(ctx context.Context, c contestant, o ndr.Options, size, round int) (*ndr.Outcome, error) {
	stop, err := s.rig.begin(c, peers.Reflect)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.name, err)
	}
	o.WarmUp = 100 * time.Millisecond
	o.Each = func(t ndr.Trial) {
		fmt.Fprintf(s.o.Log, "round %d/%d  %-12s %4d B  %7.3f Mpps for %-6v lost %.3f %% %s\n", round+1, s.o.Rounds, c.name, size,
			t.Rate/1e6, t.For, 100*t.Loss(), t.Invalid)
	}
	out, err := ndr.Search(ctx, o, func(ctx context.Context, pps float64, d time.Duration) (ndr.Trial, error) {
		return s.rig.trial(ctx, c, size, pps, d)
	})
	_, err2 := stop()
	if out != nil && round == 0 {
		p := tracePlot(fmt.Sprintf("The search: %s, %d bytes", c.name, size), out, o.Goals)
		// A search that was made again takes the first one's place.
		s.trace = append(slices.DeleteFunc(s.trace, func(old report.Plot) bool { return old.Title == p.Title }), p)
	}
	if err = errors.Join(err, err2); err != nil {
		return out, fmt.Errorf("%s at %d bytes: %w", c.name, size, err)
	}
	return out, nil
}

// trial sends at a rate to the device at work, which is c, and counts what comes back.
func (r *Rig) trial(ctx context.Context, c contestant, size int, pps float64, d time.Duration) (t ndr.Trial, err error) {
	t = ndr.Trial{Rate: pps, For: d}
	r.runs++
	port, frame := uint16(10_000+r.runs%50_000), r.Frame(size, c.toKernel)
	binary.BigEndian.PutUint16(frame[34:], port)
	err = r.gen.Do(func() (err error) {
		restore, err := gen.Pin(r.genCPU)
		if err != nil {
			return err
		}
		defer restore()
		g, err := gen.Open(gen.Options{IfIndex: r.genIndex, Frame: frame, Rate: pps, Only: port, SKBs: c.sender() == socket})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, g.Close()) }()
		// The program of either end may have taken the link down and up again.
		if err := r.carrier(ctx); err != nil {
			return err
		}
		sent, err := g.RunPaced(ctx, d)
		if err != nil {
			return err
		}
		t.Asked, t.Sent, t.Elapsed, t.Invalid = sent.Asked, sent.Frames, sent.Elapsed, sent.Invalid()
		// What is still in rings and softirq comes home before the counters are read.
		time.Sleep(20 * time.Millisecond)
		t.Received, err = g.Returned()
		return err
	})
	return t, err
}

// carrier waits until both ends have a link.
func (r *Rig) carrier(ctx context.Context) error {
	ends := []struct {
		nl   *netlink.Handle
		name string
	}{{r.gen.Netlink(), genIface}, {r.dev.Netlink(), devIface}}
	for end := time.Now().Add(2 * time.Second); ; time.Sleep(time.Millisecond) {
		up := 0
		for _, e := range ends {
			l, err := e.nl.LinkByName(e.name)
			if err != nil {
				return fmt.Errorf("state of %s: %w", e.name, err)
			}
			if l.Attrs().OperState == netlink.OperUp {
				up++
			}
		}
		if up == len(ends) {
			return nil
		}
		if time.Now().After(end) || ctx.Err() != nil {
			return errors.Join(errors.New("the link does not come up"), ctx.Err())
		}
	}
}

// integrity sends slowly through a device that sends back, and looks at every frame that comes. The note is "" when
// they are as they were sent.
func (r *Rig) integrity(ctx context.Context, c contestant, size int) (note string, err error) {
	stop, err := r.begin(c, peers.Reflect)
	if err != nil {
		return "", err
	}
	defer func() {
		_, err2 := stop()
		err = errors.Join(err, err2)
	}()
	frame := r.Frame(size, c.toKernel)
	if c.toKernel { // a socket answers to the port that the frame came from
		binary.BigEndian.PutUint16(frame[34:], udpPort)
	}
	at := flow.UDP.StampAt()
	var sum *sink.Summary
	var sent uint64
	err = r.gen.Do(func() (err error) {
		s, err := sink.StartXDP(ctx, r.genIndex, sink.Options{Flow: flow.SwitchML, Longest: size, StampAt: at})
		if err != nil {
			return err
		}
		g, err := gen.Open(gen.Options{IfIndex: r.genIndex, Frame: frame, StampAt: at, Rate: integrityPPS, NoReceiver: true})
		if err == nil {
			if err = r.carrier(ctx); err == nil {
				// As often as it takes to send enough, where the machine does not let the generator run.
				for try := 0; err == nil && sent < integrityFrames && try < 50; try++ {
					var res *gen.Result
					if res, err = g.RunPaced(ctx, 100*time.Millisecond); res != nil {
						sent += res.Frames
					}
				}
			}
			err = errors.Join(err, g.Close())
		}
		var err2 error
		sum, err2 = s.Stop()
		return errors.Join(err, err2)
	})
	if err != nil {
		return "", fmt.Errorf("look at the frames that come back: %w", err)
	}
	switch {
	case sum.Damaged > 0:
		return fmt.Sprintf("INVALID: the device damages frames: %d of %d", sum.Damaged, sum.Frames), nil
	case sum.Frames == 0:
		return "INVALID: no frame comes back", nil
	case sent < integrityFrames:
		return fmt.Sprintf("INVALID: the generator sent %d frames, too few to tell whether they come back as they were", sent), nil
	}
	return "", nil
}

// tracePlot shows the trials of a search in their order.
func tracePlot(title string, out *ndr.Outcome, goals []float64) report.Plot {
	p := report.Plot{Title: title, X: "trial", Y: "Mpps", LogY: true}
	most := goalNDRLoss // what a trial may lose and yet tell something of the search's goals
	if n := len(goals); n > 0 && goals[n-1] > 0 {
		most = goals[n-1]
	}
	// The same colours in every plot, also when a line is empty.
	lines := make([]report.Line, 4)
	for i, name := range []string{"no loss", fmt.Sprintf("up to %g %% lost", 100*most), "more lost", "INVALID"} {
		lines[i] = report.Line{Name: name, Marks: true, Points: []report.Point{}}
	}
	for i, t := range out.Trials {
		k := 2
		switch {
		case t.Invalid != "":
			k = 3
		case t.Loss() == 0:
			k = 0
		case t.Loss() <= most:
			k = 1
		}
		lines[k].Points = append(lines[k].Points, report.Point{X: float64(i + 1), Y: t.Rate / 1e6, Text: fmt.Sprintf("%v, %.3f %% lost", t.For, 100*t.Loss())})
	}
	p.Lines = lines
	return p
}

// rows turns the results into rows and plots.
func (s *ndrRun) rows(r *report.Report, all []contestant) {
	names := []string{"tester alone"}
	for _, c := range all {
		names = append(names, c.name)
	}
	for _, goal := range s.o.Search.Goals {
		p := report.Plot{Title: fmt.Sprintf("Rate with at most %g %% lost, by frame size", 100*goal), X: "frame size, bytes without FCS", Y: "Mpps", LogX: true, LogY: true}
		for _, size := range s.o.Sizes {
			for _, name := range names {
				got := s.got[ndrKey(name, size, goal)]
				if got == nil {
					continue
				}
				p.At(name, float64(size), got.lower)
				row := report.Row{Name: ndrKey(name, size, goal), Unit: "Mpps", Note: got.note, Bound: bounds(name, peers.Reflect), Load: report.Median(got.load)}
				if name == "tester alone" || name == "kernel" {
					row.Bound = "the generator's core, which also runs the device's program and takes the frames back"
				}
				if !s.against(r, row, size, goal, name, got) {
					r.Add(row, got.lower, nil)
				}
			}
		}
		r.Plots = append(r.Plots, p)
	}
	r.Plots = append(r.Plots, s.trace...)
}

// against adds rows of gradnic's own against each yardstick that took part, and tells whether there was one.
func (s *ndrRun) against(r *report.Report, row report.Row, size int, goal float64, name string, got *ndrSeries) (added bool) {
	if name != "lane" && name != "rings" && name != "in-kernel" {
		return false
	}
	for _, who := range []string{"asavie-example", "asavie"} {
		y := s.got[ndrKey(who, size, goal)]
		if y == nil || len(y.lower) != len(got.lower) {
			continue
		}
		row.Against, row.Goal = ndrKey(who, size, goal), 0
		if size == goalNDRSize && goal == goalNDRLoss {
			row.Goal = goalNDR
		}
		r.Add(row, got.lower, y.lower)
		added = true
	}
	return added
}
