package bench

import (
	"context"
	"fmt"
	"io"
	"time"

	"gradnic/bench/gen"
	"gradnic/bench/peers"
	"gradnic/bench/report"
)

// EngineOptions say how the engine is measured. The zero value is the table of docs/performance.md.
type EngineOptions struct {
	Self   []string      // argv of a contestant's process, to which KIND and the target are appended
	Dir    string        // where the C yardstick is built
	Rounds int           // turns of each contestant; 0 means 5
	Run    time.Duration // length of a turn; 0 means half a second
	Sizes  []int         // frame sizes in bytes without FCS; nil means 64, 298, 1066, 1514
	// Patience is how long the run may wait in all for CPUs that a neighbour on the same core does not disturb, and repeat turns
	// that he has (package calm), where aggregation and latency are measured; 0 means none: turns count as they come.
	Patience time.Duration
	Log      io.Writer // progress; nil: none
	Command  string    // what the report says made it
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
	if o.Patience > 0 {
		if err := rig.beQuiet(o.Patience); err != nil {
			return nil, err
		}
	}

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
			func() error { return rig.unicast(ctx, o, self, r) },
			func() error { return rig.multicast(ctx, o, self, c, r) },
			func() error { return rig.latency(ctx, o, self("lane"), c, r) },
		} {
			if err := measure(); err != nil {
				return err
			}
		}
		return nil
	}()
	if q := rig.quiet; q != nil {
		r.Notes = append(r.Notes, q.note())
	}
	if err != nil {
		r.Interrupted = err.Error()
	}
	return r, err
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
