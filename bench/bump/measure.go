package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"gradnic/bench/collective"
	"gradnic/bench/report"
	"gradnic/service/bump"
	"gradnic/wire/inet"
)

// linkCase is a rate of the link, in bit/s of Ethernet frames, and how many times the payload of the bare link the bump
// should carry; 0: no goal.
type linkCase struct {
	rate uint64
	goal float64
}

type options struct {
	out    string
	rounds int
	each   time.Duration
	cases  []linkCase
	log    io.Writer // nil: standard error
	// pings are how many datagrams the delay is measured on; 0 means 4000.
	pings int
}

// most is how far above its rate a link may let a raw sender come.
const most = 1.02

func measure(ctx context.Context, o options) (*report.Report, error) {
	if o.log == nil {
		o.log = os.Stderr
	}
	if o.pings == 0 {
		o.pings = 4000
	}
	r := report.New("make bench-bump")
	r.Machine.Driver, r.Machine.Mode = "veth behind tbf", "native"
	l, err := newLoad()
	if err != nil {
		return nil, err
	}
	for i, c := range o.cases {
		if err := o.link(ctx, r, l, c, i == 0); err != nil {
			err = fmt.Errorf("link of %s: %w", name(c.rate), err)
			r.Interrupted = err.Error()
			return r, err
		}
	}
	return r, nil
}

func name(rate uint64) string {
	if rate%1e9 == 0 {
		return fmt.Sprintf("%dGbit", rate/1e9)
	}
	return fmt.Sprintf("%dMbit", rate/1e6)
}

// full is the share of the link's rate that the bare link's datagrams have to take up where the bump is held against a goal: what
// falls short of it was short of processors, and would make the bump look better than it is.
const full = 0.9

// used is the share of the link's rate that full datagrams of this payload a second take up.
func used(payload float64, rate uint64) float64 {
	const datagram = prefix + 4*elements
	return payload * 8 / float64(rate) * (mtu + inet.EthernetLen) / datagram
}

// way is the bare link or the bump: a socket of host 0 and one of host 1.
type way struct {
	name string
	s    *sender
	r    *receiver
	end  func() error

	payload []float64 // bytes a second, by round
	busy    []float64 // of the machine's processor time, by round
	wire    []float64 // bytes of data frames that carried the payload, a second, by round
}

// link measures one rate.
func (o options) link(ctx context.Context, rep *report.Report, l *load, c linkCase, delays bool) (err error) {
	r, err := newRig(ctx, c.rate)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	raw, err := collective.TryLink(r.nicNS[0], "w", r.nicNS[1], "w", c.rate, o.each/2)
	if err != nil {
		return fmt.Errorf("try the link: %w", err)
	}
	note := ""
	if raw > most {
		note = fmt.Sprintf("INVALID: a raw sender got %.2f of the rate across", raw)
	}
	fmt.Fprintf(o.log, "%s: a raw AF_XDP sender gets %.3f of the rate across\n", name(c.rate), raw)
	if err := r.start(ctx); err != nil {
		return err
	}
	var ways [2]*way
	for i, w := range []struct {
		name string
		port int
		want [][]byte
		most int
	}{{"bare", barePort, l.payloads, window(c.rate, 1514)}, {"bump", bumpPort, l.restored, window(c.rate, 434)}} {
		from, to, err := r.dial(w.port)
		if err != nil {
			return err
		}
		got, err := newReceiver(to, w.want)
		if err != nil {
			return errors.Join(err, from.Close(), to.Close())
		}
		s, err := newSender(from, got, l, w.most)
		if err != nil {
			return errors.Join(err, from.Close(), to.Close(), <-got.done)
		}
		ways[i] = &way{name: w.name, s: s, r: got}
		ways[i].end = func() error { return errors.Join(from.Close(), to.Close(), <-ways[i].r.done) }
		defer func() { err = errors.Join(err, ways[i].end()) }()
	}
	if err := r.meet(ways[1].s, ctx); err != nil {
		return err
	}
	// Those before the far end was found came raw: they must have come, which may be late on a busy machine.
	for end := time.Now().Add(2 * time.Second); ways[1].r.datagrams.Load() < ways[1].s.sent && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(100 * time.Millisecond)
	ways[1].r.wrong.Store(0)
	for range o.rounds {
		for _, w := range ways {
			if err := o.turn(ctx, r, w); err != nil {
				return err
			}
		}
	}
	for _, w := range ways {
		if n := w.r.wrong.Load(); n > 0 {
			return fmt.Errorf("%s: %d of %d datagrams are not what they should be", w.name, n, w.r.datagrams.Load())
		}
	}
	fmt.Fprintf(o.log, "%s:%s\n", name(c.rate), r.losses())
	bare, bumped := ways[0], ways[1]
	carried := report.Median(bumped.wire) * 8 / float64(c.rate)
	busy := report.Median(bumped.busy)
	bound := fmt.Sprintf("the link (%.0f %% of its rate in use)", 100*carried)
	if carried < 0.93 {
		bound = fmt.Sprintf("the processors (%.0f %% busy; %.0f %% of the link's rate in use)", 100*busy, 100*carried)
	}
	share := used(report.Median(bare.payload), c.rate)
	if c.goal > 0 && share < full {
		note = strings.TrimPrefix(fmt.Sprintf("%s; INVALID: the bare link had %.2f of its rate in use", note, share), "; ")
	}
	rep.Add(report.Row{Name: "payload/bare/" + name(c.rate), Unit: "MB/s", Note: note,
		Bound: fmt.Sprintf("%.0f %% of the link's rate in use, %.0f %% busy", 100*share, 100*report.Median(bare.busy))}, mega(bare.payload), nil)
	rep.Add(report.Row{Name: "payload/bump-bfp16/" + name(c.rate), Unit: "MB/s", Against: "payload/bare/" + name(c.rate), Goal: c.goal, Bound: bound, Note: note},
		mega(bumped.payload), mega(bare.payload))
	if delays {
		return o.delays(ctx, rep, r, l, name(c.rate))
	}
	return nil
}

func mega(v []float64) []float64 {
	m := make([]float64, len(v))
	for i := range v {
		m[i] = v[i] / 1e6
	}
	return m
}

type taken struct{ payload, busy, wire float64 }

// carry sends for a while and returns what arrived in that time, a second.
func (o options) carry(ctx context.Context, r *rig, w *way, d time.Duration) (t taken, err error) {
	sent0, bytes0 := r.counters().Sent.Bytes, w.r.bytes.Load()
	cpu0, start := cpuSeconds(), time.Now()
	if err := w.s.send(ctx, d); err != nil {
		return t, err
	}
	elapsed := time.Since(start).Seconds()
	t.payload = float64(w.r.bytes.Load()-bytes0) / elapsed
	t.wire = float64(r.counters().Sent.Bytes-sent0) / elapsed
	t.busy = (cpuSeconds() - cpu0) / elapsed
	time.Sleep(30 * time.Millisecond) // what is under way arrives
	return t, nil
}

// turn is one round of one way.
func (o options) turn(ctx context.Context, r *rig, w *way) error {
	// The queues fill first: what arrives in the measured time is what the link carries.
	if err := w.s.send(ctx, o.each/5); err != nil {
		return err
	}
	t, err := o.carry(ctx, r, w, o.each)
	if err != nil {
		return err
	}
	w.payload, w.busy, w.wire = append(w.payload, t.payload), append(w.busy, t.busy), append(w.wire, t.wire)
	c := r.counters()
	fmt.Fprintf(o.log, "%s: %.1f MB/s of payload, %.2f of the machine busy, ratio so far %.3f\n", w.name, t.payload/1e6, t.busy, c.Ratio())
	if w.name == "bump" && c.Raw[bump.RawNoPeer] > 0 && c.Lost > 0 {
		return errors.New("the far end was lost: part of the datagrams went raw")
	}
	return nil
}

// cpuSeconds is the processor time that the whole machine has spent, over its processors.
func cpuSeconds() float64 {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	var v [8]float64
	if _, err := fmt.Sscanf(string(b), "cpu %f %f %f %f %f %f %f %f", &v[0], &v[1], &v[2], &v[3], &v[4], &v[5], &v[6], &v[7]); err != nil {
		return 0
	}
	cpus := 0
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) == nil {
		cpus = set.Count()
	}
	const hertz = 100 // USER_HZ
	return (v[0] + v[1] + v[2] + v[5] + v[6]) / hertz / float64(max(cpus, 1))
}
