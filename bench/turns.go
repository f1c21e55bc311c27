package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"gradnic/bench/gen"
	"gradnic/bench/peers"
	"gradnic/bench/report"
)

// What keeps receive and return from being faster on a veth, whoever does it.
const (
	dropBound    = "copy into the UMEM by the softirq on the generator's core"
	reflectBound = "one sk_buff a frame in copy-mode transmit"
	kernelBound  = "the generator's core, which runs the device's program too"
)

// contestant is one that takes turns.
type contestant struct {
	name     string
	toKernel bool // its frames go to the kernel's address
	ceiling  func(ifindex int) (*gen.Program, error)
	argv     []string
	c        bool // the C yardstick: argv is its path
	testpmd  bool // DPDK's, as Debian packs it
}

// sender is what does the work. An XDP program runs on the generator's core on a veth, so the two share what that can do.
func (c contestant) sender() sender {
	if c.ceiling != nil || c.name == "in-kernel" {
		return xdpProgram
	}
	return socket
}

// series is one figure of one contestant over the rounds.
type series struct {
	mpps []float64
	lost uint64
	cpu  []float64 // ns of the contestant's process, for each frame that it took
	load []float64
}

// addCPU books what a turn cost the contestant's process.
func (s *series) addCPU(n peers.Counts) {
	s.load = append(s.load, report.LoadAverage())
	if n.Received > 0 && n.CPU > 0 {
		s.cpu = append(s.cpu, float64(n.CPU.Nanoseconds())/float64(n.Received))
	}
}

// costs fills in what a row says of processor time and load, and that it is INVALID when nothing came through in some round: then
// something else was wrong than the contestant's speed.
func (s *series) costs(row report.Row) report.Row {
	none := 0
	for _, v := range s.mpps {
		if v == 0 {
			none++
		}
	}
	if none > 0 {
		row.Note = strings.TrimPrefix(fmt.Sprintf("%s; INVALID: nothing came through in %d of %d rounds", row.Note, none, len(s.mpps)), "; ")
	}
	if len(s.cpu) > 0 {
		row.CPU = report.Median(s.cpu)
	}
	if len(s.load) > 0 {
		row.Load = report.Median(s.load)
	}
	return row
}

// beside tells whether both series are there, of as many rounds.
func (s *series) beside(o *series) bool { return s != nil && o != nil && len(s.mpps) == len(o.mpps) }

// turns lets contestants run one after the other, round by round.
type turns struct {
	rig    *Rig
	sizes  []int
	rounds int
	run    time.Duration
	log    io.Writer
	got    map[string]*series
}

func turnKey(task peers.Task, who string, size int) string {
	return fmt.Sprintf("%s/%s/%d", task, who, size)
}

// all gives each contestant its turn at each size in every round; the order rotates.
func (t *turns) all(ctx context.Context, all []contestant, task peers.Task) error {
	for round := range t.rounds {
		for _, size := range t.sizes {
			for i := range all {
				if err := ctx.Err(); err != nil {
					return err
				}
				c := all[(i+round)%len(all)]
				key := turnKey(task, c.name, size)
				if t.got[key] == nil {
					t.got[key] = &series{}
				}
				mpps, counts, err := t.rig.turn(c, task, size, t.run)
				if err != nil {
					return fmt.Errorf("%s: %w", key, err)
				}
				s := t.got[key]
				s.mpps = append(s.mpps, mpps)
				s.lost += counts.Lost
				s.addCPU(counts)
				fmt.Fprintf(t.log, "round %d/%d  %-22s %6.2f Mpps\n", round+1, t.rounds, key, mpps)
			}
		}
	}
	return nil
}

// plot shows the contestants by frame size.
func (t *turns) plot(all []contestant, task peers.Task) report.Plot {
	title := "Received and dropped, by frame size"
	if task == peers.Reflect {
		title = "Sent back to the generator, by frame size"
	}
	p := report.Plot{Title: title, X: "frame size, bytes without FCS", Y: "Mpps", LogX: true, LogY: true}
	for _, c := range all {
		for _, size := range t.sizes {
			if s := t.got[turnKey(task, c.name, size)]; s != nil {
				p.At(c.name, float64(size), s.mpps)
			}
		}
	}
	return p
}

// begin starts a contestant on the device's end; stop ends it and says what it counted.
func (r *Rig) begin(c contestant, task peers.Task) (stop func() (peers.Counts, error), err error) {
	if c.ceiling != nil {
		var p *gen.Program
		if err := r.dev.Do(func() (err error) { p, err = c.ceiling(r.devIndex); return }); err != nil {
			return nil, err
		}
		return func() (peers.Counts, error) {
			n, err := p.Received()
			return peers.Counts{Received: n}, errors.Join(err, p.Close())
		}, nil
	}
	var p *peers.Process
	switch {
	case c.c:
		p, err = peers.LaunchC(r.dev, c.argv[0], r.target(task))
	case c.testpmd:
		p, err = peers.LaunchTestpmd(r.dev, r.target(task))
	default:
		p, err = peers.Launch(r.dev, c.name, c.argv, r.target(task))
	}
	if err != nil {
		return nil, err
	}
	return p.Stop, nil
}

// turn is one run of one contestant: what it received (drop) or what came back to the generator (reflect), in Mpps, and
// what it counted itself. What is received is the share that it took of the least disturbed slices; what comes back is
// looked at in parts of one run, since rings still hold frames when a slice ends.
func (r *Rig) turn(c contestant, task peers.Task, size int, d time.Duration) (mpps float64, counts peers.Counts, err error) {
	stop, err := r.begin(c, task)
	if err != nil {
		return 0, peers.Counts{}, err
	}
	opts := gen.Options{Frame: r.Frame(size, c.toKernel)}
	if task == peers.Drop {
		run, err := r.driveSlices(c.sender(), opts, d)
		counts, err2 := stop()
		return run.undisturbed(counts.Received), counts, errors.Join(err, err2)
	}
	run, err := r.drive(c.sender(), opts, d)
	counts, err2 := stop()
	return run.back(), counts, errors.Join(err, err2)
}
