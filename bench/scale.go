package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"gradnic/aggregation"
	"gradnic/bench/gen"
	"gradnic/bench/report"
	"gradnic/dataplane"
	"gradnic/wire/inet"
	"gradnic/xdp"
)

// ScaleOptions say how the growth of cost is measured.
type ScaleOptions struct {
	Rounds  int           // of each point; 0 means 3
	Run     time.Duration // of each; 0 means 200 ms
	Log     io.Writer
	Command string
	short   bool // few points, for tests
}

// scalePoint is one setting of the NIC and its load: SwitchML contributions of frames of a size.
type scalePoint struct {
	workers   int
	slots     int // of each job, in two sets
	jobs      int
	elements  int
	multicast bool // one frame a result; else one for each worker
}

var scaleBase = scalePoint{workers: 8, slots: 256, jobs: 1, elements: 64, multicast: true}

// sweep changes one thing of the base.
type sweep struct {
	name, x string
	points  []int
	set     func(p *scalePoint, v int)
}

func sweeps(short bool) []sweep {
	all := []sweep{
		{"workers", "workers of a job, one frame a result", []int{1, 2, 4, 8, 16, 32}, func(p *scalePoint, v int) { p.workers = v }},
		{"group", "workers of a job, a frame for each", []int{1, 2, 4, 8, 16, 32}, func(p *scalePoint, v int) { p.workers, p.multicast = v, false }},
		// A job has 8192 slots at most, so beyond that there are several.
		{"slots", "slots in use", []int{64, 256, 1024, 4096, 8192, 16384, 65536}, func(p *scalePoint, v int) { p.slots, p.jobs = min(v, 8192), max(1, v/8192) }},
		{"jobs", "jobs, of 64 slots each", []int{1, 10, 100, 1000}, func(p *scalePoint, v int) { p.jobs, p.slots, p.workers = v, 64, 2 }},
		{"elements", "elements of a frame", []int{64, 256}, func(p *scalePoint, v int) { p.elements = v }},
	}
	if short {
		for i := range all {
			all[i].points = []int{all[i].points[0], all[i].points[len(all[i].points)-1]}
		}
	}
	return all
}

// Scale measures how the cost of a contribution grows with workers, members of a group, slots, jobs and frame sizes: by a
// lane on one core, which is given more than it can take by a generator on the other; and by package aggregation alone,
// where only the cache is in the way.
func Scale(ctx context.Context, o ScaleOptions) (*report.Report, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	if err := cpus(); err != nil {
		return nil, err
	}
	if o.Rounds == 0 {
		o.Rounds = 3
	}
	if o.Run == 0 {
		o.Run = 200 * time.Millisecond
	}
	if o.Log == nil {
		o.Log = io.Discard
	}
	rig, err := NewRig()
	if err != nil {
		return nil, err
	}
	defer rig.Close()
	r := report.New(o.Command)
	r.Title = "How cost grows"
	r.Notes = append(r.Notes, "Jobs are SwitchML's, which has 32 workers at most; 64 are measured for the sum alone.")
	r.Machine.Driver, r.Machine.Mode = "veth", "native"
	for _, s := range sweeps(o.short) {
		if err = rig.sweep(ctx, o, s, r); err != nil {
			r.Interrupted = err.Error()
			return r, err
		}
	}
	if err = poolScale(ctx, o, r); err != nil {
		r.Interrupted = err.Error()
	}
	return r, err
}

// sweep measures all points of one sweep, in turns.
func (r *Rig) sweep(ctx context.Context, o ScaleOptions, s sweep, rep *report.Report) error {
	mpps, cost := make([][]float64, len(s.points)), make([][]float64, len(s.points))
	for round := range o.Rounds {
		for i, v := range s.points {
			if err := ctx.Err(); err != nil {
				return err
			}
			p := scaleBase
			s.set(&p, v)
			in, ns, err := r.scale(p, o.Run)
			if err != nil {
				return fmt.Errorf("scale/%s/%d: %w", s.name, v, err)
			}
			mpps[i], cost[i] = append(mpps[i], in), append(cost[i], ns)
			fmt.Fprintf(o.Log, "round %d/%d  scale/%s/%-6d %6.2f Mpps in, %5.0f ns a contribution\n", round+1, o.Rounds, s.name, v, in, ns)
		}
	}
	plot := report.Plot{Title: "A lane's time for a contribution, by " + s.x, X: s.x, Y: "ns", LogX: true}
	for i, v := range s.points {
		rep.Add(report.Row{Name: fmt.Sprintf("scale/%s/%d", s.name, v), Unit: "ns a contribution",
			Bound: fmt.Sprintf("%.2f Mpps in", report.Median(mpps[i])), Load: report.LoadAverage()}, cost[i], nil)
		plot.At(s.name, float64(v), cost[i])
	}
	rep.Plots = append(rep.Plots, plot)
	return nil
}

// scale runs one NIC with one lane under full load, and returns what it took in and its busy time for each contribution.
func (r *Rig) scale(p scalePoint, d time.Duration) (mpps, ns float64, err error) {
	n, err := dataplane.New(dataplane.Config{MAC: inet.MAC(NICMAC), IP: inet.Addr(NICIP), CPUs: []int{r.devCPU}, Wait: dataplane.Busy},
		dataplane.XDPPort{Interface: devIface, Namespace: r.dev.Do, Mode: xdp.Native})
	if err != nil {
		return 0, 0, err
	}
	if err := n.Start(context.Background()); err != nil {
		return 0, 0, err
	}
	stop := func() error {
		end, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		return n.Stop(end)
	}
	for j := range p.jobs {
		job := dataplane.JobSpec{Name: fmt.Sprint("job", j), Workers: p.workers, Elements: p.elements, Slots: p.slots}
		for w := range p.workers {
			job.Members = append(job.Members, dataplane.WorkerSpec{
				Rank: w, MAC: inet.MAC{2, 0, byte(j >> 8), byte(j), byte(w + 1), 0}, IP: inet.Addr{10, byte(50 + j>>8), byte(j), byte(w + 1)}, Port: 0,
			})
		}
		if p.multicast {
			job.Multicast = &dataplane.MulticastSpec{MAC: inet.MAC{1, 0, 0x5e, 1, 1, 1}, IP: inet.Addr{239, 1, 1, 1}, Ports: []int{0}}
		}
		if err := n.InstallJob(job); err != nil {
			return 0, 0, errors.Join(err, stop())
		}
	}
	before := n.Snapshot()
	run, err := r.drive(socket, gen.Options{Frame: r.Frame(52+4*p.elements, false), Workers: p.workers, Slots: p.slots, Jobs: p.jobs}, d)
	// A lane tells what it did when it comes to it; on a busy machine that may be after the generator's end.
	after := n.Snapshot()
	for end := time.Now().Add(5 * time.Second); err == nil && after.Total.Received == before.Total.Received && time.Now().Before(end); after = n.Snapshot() {
		time.Sleep(time.Millisecond)
	}
	if err := errors.Join(err, stop()); err != nil {
		return 0, 0, err
	}
	s := n.Snapshot()
	if err := s.Check(); err != nil {
		return 0, 0, err
	}
	took := after.Total.Received - before.Total.Received
	if s.Total.Results == 0 || took == 0 {
		return 0, 0, fmt.Errorf("%d contributions finished %d slots, dropped %v", took, s.Total.Results, s.Total.Drops)
	}
	busy := after.Lanes[0].Time.Busy - before.Lanes[0].Time.Busy
	return run.Mpps(took), float64(busy.Nanoseconds()) / float64(took), nil
}

// poolScale measures package aggregation without frames: what a contribution of 64 int32 costs by workers and by slots,
// where the slots' memory grows from the first-level cache past the last.
func poolScale(ctx context.Context, o ScaleOptions, rep *report.Report) error {
	workers, slots := []int{1, 2, 4, 8, 16, 32, 64}, []int{64, 256, 1024, 4096, 16384, 65536}
	if o.short {
		workers, slots = []int{1, 64}, []int{64, 4096}
	}
	for _, s := range []struct {
		name   string
		points []int
		spec   func(v int) (workers, slots int)
		x      string
	}{
		{"workers", workers, func(v int) (int, int) { return v, 256 }, "workers"},
		{"slots", slots, func(v int) (int, int) { return 8, v }, "slots, of 512 bytes in two sets"},
	} {
		cost := make([][]float64, len(s.points))
		for range o.Rounds {
			for i, v := range s.points {
				if err := ctx.Err(); err != nil {
					return err
				}
				w, n := s.spec(v)
				ns, err := poolCost(w, n, o.Run/4)
				if err != nil {
					return fmt.Errorf("pool/%s/%d: %w", s.name, v, err)
				}
				cost[i] = append(cost[i], ns)
			}
		}
		plot := report.Plot{Title: "The sum alone, by " + s.x, X: s.x, Y: "ns a contribution of 64 int32", LogX: true}
		for i, v := range s.points {
			bound := "the loop over elements, and the result of each slot"
			if s.name == "slots" {
				bound = "the cache that the slots fit into"
			}
			rep.Add(report.Row{Name: fmt.Sprintf("pool/%s/%d", s.name, v), Unit: "ns a contribution", Bound: bound}, cost[i], nil)
			plot.At("package aggregation", float64(v), cost[i])
		}
		rep.Plots = append(rep.Plots, plot)
	}
	return nil
}

// poolCost is ns for each contribution to a pool, slots in turn, all workers of a slot after each other.
func poolCost(workers, slots int, d time.Duration) (float64, error) {
	const elements = 64
	p, err := aggregation.NewPool(aggregation.Spec{Rule: aggregation.Rounds, Workers: workers, Elements: elements, Slots: slots})
	if err != nil {
		return 0, err
	}
	values, out := make([]byte, 4*elements), make([]byte, 4*elements)
	c := aggregation.Contribution{Values: values}
	round := func() error {
		for slot := range slots {
			c.Slot = slot
			for w := range workers {
				c.Worker = w
				if got := p.Contribute(&c, 0, out); got != aggregation.Added && got != aggregation.Completed {
					return fmt.Errorf("a contribution to slot %d was %v", slot, got)
				}
			}
		}
		c.Round++
		return nil
	}
	for range 2 { // both sets are touched before the clock starts
		if err := round(); err != nil {
			return 0, err
		}
	}
	begin, n := time.Now(), 0
	for time.Since(begin) < d || n == 0 {
		if err := round(); err != nil {
			return 0, err
		}
		n += slots * workers
	}
	return float64(time.Since(begin).Nanoseconds()) / float64(n), nil
}
