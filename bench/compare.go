package bench

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"gradnic/bench/gen"
	"gradnic/bench/peers"
	"gradnic/bench/report"
)

// CompareOptions say what is put beside what. The zero value of each field is documented with it.
type CompareOptions struct {
	Self    []string // argv of a contestant's process, to which KIND and the target are appended
	Dir     string   // where the C yardstick is built
	Devices []string // nil means all: lane, rings, asavie, c, packet, udp, testpmd, kernel
	Against string   // whose figures the others' are ratios of; "" means asavie
	Sizes   []int    // frame sizes in bytes without FCS; nil means 64, 298, 1066, 1514
	Rounds  int      // turns of each; 0 means 5
	Run     time.Duration
	Log     io.Writer
	Command string
}

// Compare puts receive-and-drop and receive-and-return of all contestants side by side, in turns: medians, spread, the
// load average, the processor time of each one's process a frame, and what bounds it.
func Compare(ctx context.Context, o CompareOptions) (*report.Report, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	if err := cpus(); err != nil {
		return nil, err
	}
	if o.Devices == nil {
		o.Devices = []string{"in-kernel", "lane", "rings", "asavie", "c", "packet", "udp", "testpmd", "kernel"}
	}
	if o.Against == "" {
		o.Against = "asavie"
	}
	if o.Sizes == nil {
		o.Sizes = []int{64, 298, 1066, 1514}
	}
	if o.Rounds == 0 {
		o.Rounds = 5
	}
	if o.Run == 0 {
		o.Run = time.Second / 2
	}
	if o.Log == nil {
		o.Log = io.Discard
	}
	r := report.New(o.Command)
	r.Title = "Side by side"
	r.Machine.Driver, r.Machine.Mode = "veth", "native"
	r.Notes = append(r.Notes, "CPU a frame is the processor time of the contestant's process; the softirq that brings frames runs on the generator's core and is not in it. "+
		"Contestants that spin use a whole core however little comes.")
	all, err := contestants(ctx, o.Devices, o.Self, o.Dir, r)
	if err != nil {
		return nil, err
	}
	rig, err := NewRig()
	if err != nil {
		return nil, err
	}
	defer rig.Close()
	t := turns{rig: rig, sizes: o.Sizes, rounds: o.Rounds, run: o.Run, log: o.Log, got: map[string]*series{}}
	for _, task := range []peers.Task{peers.Drop, peers.Reflect} {
		all := slices.Clone(all)
		for i := range all {
			if all[i].ceiling != nil && task == peers.Drop {
				all[i].ceiling = gen.OpenDrop
			}
		}
		err = t.all(ctx, all, task)
		t.rows(r, all, task, o.Against)
		r.Plots = append(r.Plots, t.plot(all, task))
		if err != nil {
			r.Interrupted = err.Error()
			break
		}
	}
	return r, err
}

// bounds says what keeps a contestant from being faster.
func bounds(name string, task peers.Task) string {
	switch {
	case name == "kernel" || name == "in-kernel":
		return kernelBound
	case name == "packet" && task == peers.Drop:
		return "an sk_buff and a copy into the ring for each frame, by the softirq"
	case name == "packet":
		return "an sk_buff each way, and a system call for each frame sent"
	case name == "udp":
		return "the kernel's UDP stack, both ways; 64 datagrams a system call"
	case task == peers.Drop:
		return dropBound
	}
	return reflectBound
}

// rows are the contestants' figures over one task.
func (t *turns) rows(r *report.Report, all []contestant, task peers.Task, against string) {
	for _, c := range all {
		for _, size := range t.sizes {
			s, y := t.got[turnKey(task, c.name, size)], t.got[turnKey(task, against, size)]
			if s == nil {
				continue
			}
			row := report.Row{Name: turnKey(task, c.name, size), Unit: "Mpps", Bound: bounds(c.name, task)}
			if s.lost > 0 {
				row.Note = fmt.Sprintf("%d taken and not sent back", s.lost)
			}
			row = s.costs(row)
			var yardstick []float64
			if c.name != against && s.beside(y) {
				row.Against, yardstick = turnKey(task, against, size), y.mpps
			}
			r.Add(row, s.mpps, yardstick)
		}
	}
}
