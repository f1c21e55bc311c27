package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"gradnic/bench/gen"
	"gradnic/bench/peers"
	"gradnic/bench/report"
)

// EngineOptions say how the engine is measured. The zero value is the table of docs/performance.md.
type EngineOptions struct {
	Self    []string      // argv of a contestant's process, to which KIND and the target are appended
	Dir     string        // where the C yardstick is built
	Rounds  int           // turns of each contestant; 0 means 5
	Run     time.Duration // length of a turn; 0 means half a second
	Sizes   []int         // frame sizes in bytes without FCS; nil means 64, 298, 1066, 1514
	Log     io.Writer     // progress; nil: none
	Command string        // what the report says made it
}

// The engine's goals (ratios), by yardstick.
const (
	goalDropAsavie    = 1.05
	goalDropC         = 0.95
	goalReflectAsavie = 1.20
	goalUnicast       = 0.85
	goalMulticast     = 0.90

	enoughMulticast = 3.0 // Mpps in that are as good as goalMulticast of any yardstick
)

// Engine measures receive-and-drop and receive-and-return: the kernel's ceilings, gradnic's rings, gradnic's lane,
// asavie/xdp, C, UDP sockets. Each round gives each contestant one turn at each size; the order rotates.
func Engine(ctx context.Context, o EngineOptions) (*report.Report, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	if err := cpus(); err != nil {
		return nil, err
	}
	if o.Rounds == 0 {
		o.Rounds = 5
	}
	if o.Run == 0 {
		o.Run = time.Second / 2
	}
	if o.Sizes == nil {
		o.Sizes = []int{64, 298, 1066, 1514}
	}
	if o.Log == nil {
		o.Log = io.Discard
	}
	c, err := peers.BuildC(ctx, o.Dir)
	if err != nil {
		return nil, err
	}
	rig, err := NewRig()
	if err != nil {
		return nil, err
	}
	defer rig.Close()

	r := report.New(o.Command)
	r.Title = "The engine beside its yardsticks"
	r.Machine.Driver, r.Machine.Mode = "veth", "native"
	self := func(kind string) []string { return append(o.Self[:len(o.Self):len(o.Self)], kind) }
	t := turns{rig: rig, sizes: o.Sizes, rounds: o.Rounds, run: o.Run, log: o.Log, got: map[string]*series{}}
	err = func() error {
		for _, task := range []peers.Task{peers.Drop, peers.Reflect} {
			all := []contestant{
				{name: "kernel", ceiling: gen.OpenDrop},
				{name: "rings", argv: self("rings")},
				{name: "in-kernel", argv: self("in-kernel")},
				{name: "lane", argv: self("lane")},
				{name: "asavie", argv: self("asavie")},
				{name: "asavie-example", argv: self("asavie-example")},
				{name: "c", argv: []string{c}, c: true},
				{name: "udp", toKernel: true, argv: self("udp")},
			}
			if task == peers.Reflect {
				all[0].ceiling = gen.OpenBounce
			}
			err := t.all(ctx, all, task)
			engineRows(r, task, o.Sizes, t.got)
			r.Plots = append(r.Plots, t.plot(all, task))
			if err != nil {
				return err
			}
		}
		for _, measure := range []func() error{
			func() error { return rig.unicast(ctx, o, self("lane"), r) },
			func() error { return rig.multicast(ctx, o, self("lane"), self("rings"), c, r) },
			func() error { return rig.latency(ctx, o, self("lane"), c, r) },
		} {
			if err := measure(); err != nil {
				return err
			}
		}
		return nil
	}()
	if err != nil {
		r.Interrupted = err.Error()
	}
	return r, err
}

// unicast measures the NIC's main work: contributions of eight workers come in on one netdev, and each finished
// slot is answered with eight unicast replies, as SwitchML's rules ask. Its yardstick is the lane's own
// forward-and-return of frames of the same size, since both send as many frames as they receive.
func (r *Rig) unicast(ctx context.Context, o EngineOptions, argv []string, rep *report.Report) error {
	for _, a := range []struct {
		task peers.Task
		size int
	}{{peers.Aggregate64, 308}, {peers.Aggregate256, 1076}} {
		var moved, answered, returns []float64
		for round := range o.Rounds {
			if err := ctx.Err(); err != nil {
				return err
			}
			back, _, err := r.turn(contestant{name: "lane", argv: argv}, peers.Reflect, a.size, o.Run)
			if err != nil {
				return fmt.Errorf("reflect/lane/%d: %w", a.size, err)
			}
			run, n, err := r.aggregate(argv, a.task, a.size, o.Run)
			if err != nil {
				return fmt.Errorf("aggregate-unicast/%d: %w", a.size, err)
			}
			// The generator overruns the lane, and a slot that misses one contribution is not answered: less goes out than
			// comes in, while what is reflected does both. So both count.
			moved, returns = append(moved, run.Mpps(n.Received+run.Returned)/2), append(returns, back)
			answered = append(answered, float64(run.Returned)/float64(n.Received))
			fmt.Fprintf(o.Log, "round %d/%d  aggregate-unicast/%-4d %6.2f Mpps in, %.2f Mpps of results out, %.3f M slots/s\n",
				round+1, o.Rounds, a.size, run.Mpps(n.Received), run.Mpps(run.Returned), run.Mpps(n.Results))
		}
		rep.Add(report.Row{
			Name: fmt.Sprintf("aggregate-unicast/%d", a.size), Unit: "Mpps each way", Goal: goalUnicast,
			Against: fmt.Sprintf("reflect/lane/%d", a.size), Bound: "one sk_buff a reply in copy-mode transmit", Load: report.LoadAverage(),
			Note: fmt.Sprintf("mean of what came in and what went out; %.0f %% of what came in was answered, the generator overruns the lane", 100*report.Median(answered)),
		}, moved, returns)
	}
	return nil
}

// multicast measures aggregation where software is fast: one frame leaves for eight that came in. Its yardstick is
// receive-and-drop of the same frames, the faster of gradnic's rings and C in the same round.
func (r *Rig) multicast(ctx context.Context, o EngineOptions, lane, rings []string, c string, rep *report.Report) error {
	for _, a := range []struct {
		task peers.Task
		size int
	}{{peers.Multicast64, 308}, {peers.Multicast256, 1076}} {
		var in, drops, taken, busy []float64
		for round := range o.Rounds {
			if err := ctx.Err(); err != nil {
				return err
			}
			ours, _, err := r.turn(contestant{name: "rings", argv: rings}, peers.Drop, a.size, o.Run)
			if err != nil {
				return fmt.Errorf("drop/rings/%d: %w", a.size, err)
			}
			theirs, _, err := r.turn(contestant{name: "c", argv: []string{c}, c: true}, peers.Drop, a.size, o.Run)
			if err != nil {
				return fmt.Errorf("drop/c/%d: %w", a.size, err)
			}
			run, n, err := r.aggregate(lane, a.task, a.size, o.Run)
			if err != nil {
				return fmt.Errorf("aggregate-multicast/%d: %w", a.size, err)
			}
			in, drops = append(in, run.Mpps(n.Received)), append(drops, min(max(ours, theirs), enoughMulticast/goalMulticast))
			taken, busy = append(taken, float64(n.Received)/float64(run.Offered)), append(busy, n.Busy.Seconds()/run.Elapsed.Seconds())
			fmt.Fprintf(o.Log, "round %d/%d  aggregate-multicast/%-4d %6.2f Mpps in, drop %.2f rings, %.2f C; %.3f M slots/s\n",
				round+1, o.Rounds, a.size, run.Mpps(n.Received), ours, theirs, run.Mpps(n.Results))
		}
		bound := "the lane: parse, sum, and one sk_buff for eight frames"
		if report.Median(taken) > 0.99 {
			// The lane reads every line of a frame; the softirq has to take them back for the next frame in that memory.
			bound = "the generator's core, whose softirq fills memory that the lane has read: what it offers is taken"
		}
		rep.Add(report.Row{
			Name: fmt.Sprintf("aggregate-multicast/%d", a.size), Unit: "Mpps in", Goal: goalMulticast,
			Against: fmt.Sprintf("the faster of drop/rings and drop/c at %d, %.2f Mpps at most", a.size, enoughMulticast/goalMulticast), Bound: bound, Load: report.LoadAverage(),
			Note: fmt.Sprintf("%.1f %% of the offered frames taken; the lane had work %.0f %% of the time", 100*report.Median(taken), 100*report.Median(busy)),
		}, in, drops)
	}
	return nil
}

// aggregate is one turn of the NIC with the bench's job, the generator playing its workers. Slots that were finished
// must be an eighth of what contributed, or the figure is of something else.
func (r *Rig) aggregate(argv []string, task peers.Task, size int, d time.Duration) (Run, peers.Counts, error) {
	p, err := peers.Launch(r.dev, "lane", argv, r.target(task))
	if err != nil {
		return Run{}, peers.Counts{}, err
	}
	run, err := r.drive(socket, gen.Options{Frame: r.Frame(size, false), Workers: peers.AggregateWorkers, Slots: peers.AggregateSlots}, d)
	n, err2 := p.Stop()
	if err := errors.Join(err, err2); err != nil {
		return run, n, err
	}
	if n.Results == 0 || n.Results > n.Received/peers.AggregateWorkers {
		return run, n, fmt.Errorf("%d slots finished of %d contributions of %d workers", n.Results, n.Received, peers.AggregateWorkers)
	}
	return run, n, nil
}

// engineRows turns the series of one task into rows: gradnic's against each yardstick, then the yardsticks.
func engineRows(r *report.Report, task peers.Task, sizes []int, got map[string]*series) {
	at := func(who string, size int) *series { return got[fmt.Sprintf("%s/%s/%d", task, who, size)] }
	type pair struct {
		who, against string
		goal         float64
	}
	pairs := []pair{
		{"rings", "asavie-example", goalDropAsavie}, {"rings", "c", goalDropC}, {"rings", "asavie", goalDropAsavie}, {"rings", "kernel", 0}, {"rings", "udp", 0},
		{"lane", "asavie-example", 0}, {"lane", "asavie", 0}, {"lane", "c", 0},
		{"in-kernel", "asavie-example", 0}, {"in-kernel", "asavie", 0}, {"in-kernel", "kernel", 0},
	}
	if task == peers.Reflect {
		pairs[0].goal, pairs[1].goal, pairs[2].goal = goalReflectAsavie, 0, goalReflectAsavie
	}
	for _, p := range pairs {
		for _, size := range sizes {
			if !at(p.who, size).beside(at(p.against, size)) {
				continue // interrupted
			}
			r.Add(at(p.who, size).costs(report.Row{
				Name: fmt.Sprintf("%s/%s/%d", task, p.who, size), Unit: "Mpps", Goal: p.goal, Bound: bounds(p.who, task),
				Against: fmt.Sprintf("%s/%s/%d", task, p.against, size),
			}), at(p.who, size).mpps, at(p.against, size).mpps)
		}
	}
	for _, who := range []string{"kernel", "asavie-example", "asavie", "c", "udp"} {
		for _, size := range sizes {
			if s := at(who, size); s != nil {
				r.Add(s.costs(report.Row{Name: fmt.Sprintf("%s/%s/%d", task, who, size), Unit: "Mpps"}), s.mpps, nil)
			}
		}
	}
}
