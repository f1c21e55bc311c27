package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gradnic/bench/gen"
	"gradnic/bench/peers"
	"gradnic/bench/report"
)

// Who adds up: the lane, or the steering program where frames arrive.
var summers = []string{"lane", "in-kernel"}

// mostTaken is the share from which on the generator's core is the bound, and not who receives.
const mostTaken = 0.98

// summing is the figures of one of them, a round each.
type summing struct {
	in, out, moved, taken, answered, busy []float64

	mean []float64 // of what came in over the whole run, where in is of its least disturbed slices
}

func (s *summing) add(run Run, n peers.Counts) {
	in := run.Mpps(n.Received)
	s.mean = append(s.mean, in)
	// A lane that is overrun is no faster because more is offered.
	if float64(n.Received) > mostTaken*float64(run.Offered) && run.Undisturbed > 0 {
		in = run.undisturbed(n.Received)
	}
	s.in, s.out = append(s.in, in), append(s.out, run.back())
	// What came in is not looked at in parts: it is taken to be as much more than what came back as over the whole turn.
	moved := run.back()
	if run.Returned > 0 {
		moved *= float64(n.Received+run.Returned) / 2 / float64(run.Returned)
	}
	s.moved = append(s.moved, moved)
	s.taken = append(s.taken, float64(n.Received)/float64(run.Offered))
	s.answered = append(s.answered, float64(run.Returned)/float64(n.Received))
	s.busy = append(s.busy, n.Busy.Seconds()/run.Elapsed.Seconds())
}

// unicast measures the NIC's main work: contributions of eight workers come in on one netdev, and each finished
// slot is answered with eight unicast replies, as SwitchML's rules ask. Its yardstick is the lane's own
// forward-and-return of frames of the same size, since both send as many frames as they receive.
func (r *Rig) unicast(ctx context.Context, o EngineOptions, self func(string) []string, rep *report.Report) error {
	for _, a := range []struct {
		task peers.Task
		size int
	}{{peers.Aggregate64, 308}, {peers.Aggregate256, 1076}} {
		var returns []float64
		got := map[string]*summing{}
		for round := range o.Rounds {
			if err := ctx.Err(); err != nil {
				return err
			}
			back, _, err := r.turn(contestant{name: "lane", argv: self("lane")}, peers.Reflect, a.size, o.Run)
			if err != nil {
				return fmt.Errorf("reflect/lane/%d: %w", a.size, err)
			}
			returns = append(returns, back)
			if err := r.sums(ctx, o, self, "unicast", a.task, a.size, round, got); err != nil {
				return err
			}
		}
		row := report.Row{Against: fmt.Sprintf("reflect/lane/%d", a.size), Goal: goalUnicast, Bound: "one sk_buff a reply in copy-mode transmit", Load: report.LoadAverage()}
		// The generator overruns the lane, and a slot that misses one contribution is not answered: less goes out than
		// comes in, while what is reflected does both. So both count. In the kernel hardly any is missed, and replies count alone.
		lane, kernel := row, row
		lane.Name, lane.Unit = fmt.Sprintf("aggregate-unicast/lane/%d", a.size), "Mpps each way"
		lane.Note = fmt.Sprintf("mean of what came in and what went out; %.0f %% of what came in was answered, the generator overruns the lane", 100*report.Median(got["lane"].answered))
		rep.Add(lane, got["lane"].moved, returns)
		kernel.Name, kernel.Unit = fmt.Sprintf("aggregate-unicast/in-kernel/%d", a.size), "Mpps of replies"
		kernel.Note = fmt.Sprintf("%.2f Mpps came in; the lane only replies", report.Median(got["in-kernel"].in))
		rep.Add(kernel, got["in-kernel"].out, returns)
	}
	return nil
}

// multicast measures aggregation where software is fast: one frame leaves for eight that came in. Its yardstick is
// receive-and-drop of the same frames, the faster of gradnic's rings and C in the same round.
func (r *Rig) multicast(ctx context.Context, o EngineOptions, self func(string) []string, c string, rep *report.Report) error {
	for _, a := range []struct {
		task peers.Task
		size int
	}{{peers.Multicast64, 308}, {peers.Multicast256, 1076}} {
		var drops []float64
		got := map[string]*summing{}
		for round := range o.Rounds {
			if err := ctx.Err(); err != nil {
				return err
			}
			fastest := 0.0
			for _, y := range []contestant{{name: "rings", argv: self("rings")}, {name: "c", argv: []string{c}, c: true}} {
				mpps, _, err := r.turn(y, peers.Drop, a.size, o.Run)
				if err != nil {
					return fmt.Errorf("drop/%s/%d: %w", y.name, a.size, err)
				}
				fastest = max(fastest, mpps)
			}
			drops = append(drops, min(fastest, enoughMulticast/goalMulticast))
			if err := r.sums(ctx, o, self, "multicast", a.task, a.size, round, got); err != nil {
				return err
			}
		}
		for _, who := range summers {
			g := got[who]
			row := report.Row{
				Name: fmt.Sprintf("aggregate-multicast/%s/%d", who, a.size), Unit: "Mpps in",
				Against: fmt.Sprintf("the faster of drop/rings and drop/c at %d, %.2f Mpps at most", a.size, enoughMulticast/goalMulticast), Load: report.LoadAverage(),
				Note: fmt.Sprintf("%.2f Mpps over whole turns; %.1f %% of the offered frames taken; the lane had work %.0f %% of the time", report.Median(g.mean), 100*report.Median(g.taken), 100*report.Median(g.busy)),
			}
			switch {
			case who == "in-kernel":
				// The goal is the NIC's, in the way that is its fastest.
				row.Goal, row.Bound = goalMulticast, "the generator's core, whose softirq runs the steering program that adds up"
			case report.Median(g.taken) > mostTaken:
				// The lane reads every line of a frame; the softirq has to take them back for the next frame in that memory.
				row.Bound = "the generator's core, whose softirq fills memory that the lane has read: what it offers is taken"
			default:
				row.Bound = "the lane: parse, sum, and one sk_buff for eight frames"
			}
			rep.Add(row, g.in, drops)
		}
	}
	return nil
}

// inSlices is whether the generator's core bounds a task, so that it is measured in slices.
func inSlices(task peers.Task) bool { return task == peers.Multicast64 || task == peers.Multicast256 }

// sums gives each of the summers its turn, in rotating order.
func (r *Rig) sums(ctx context.Context, o EngineOptions, self func(string) []string, what string, task peers.Task, size, round int, got map[string]*summing) error {
	for k := range summers {
		who := summers[(k+round)%len(summers)]
		var run Run
		var n peers.Counts
		err := r.inQuiet(ctx, func() (err error) {
			run, n, err = r.aggregate(self(who), task, size, o.Run)
			return
		})
		if err != nil {
			return fmt.Errorf("aggregate-%s/%s/%d: %w", what, who, size, err)
		}
		if got[who] == nil {
			got[who] = &summing{}
		}
		got[who].add(run, n)
		fmt.Fprintf(o.Log, "round %d/%d  aggregate-%s/%s/%-4d %6.2f Mpps in, %.2f Mpps out, %.3f M slots/s\n",
			round+1, o.Rounds, what, who, size, run.Mpps(n.Received), run.Mpps(run.Returned), run.Mpps(n.Results))
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
	drive := r.drive
	if inSlices(task) {
		drive = r.driveSlices
	}
	run, err := drive(socket, gen.Options{Frame: r.Frame(size, false), Workers: peers.AggregateWorkers, Slots: peers.AggregateSlots}, d)
	n, err2 := p.Stop()
	if err := errors.Join(err, err2); err != nil {
		return run, n, err
	}
	if n.Results == 0 || n.Results > n.Received/peers.AggregateWorkers {
		return run, n, fmt.Errorf("%d slots finished of %d contributions of %d workers", n.Results, n.Received, peers.AggregateWorkers)
	}
	return run, n, nil
}
