package sink

import (
	"context"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"gradnic/bench/flow"
	"gradnic/bench/gen"
	"gradnic/internal/netlab"
	"gradnic/internal/netlab/netlabtest"
	"gradnic/wire/inet"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

func toSink(k flow.Kind, sizes ...int) flow.Options {
	return flow.Options{Kind: k, To: inet.MAC{6, 0, 0, 0, 0, 0xfe}, ToIP: inet.Addr{10, 50, 0, 254}, Sizes: sizes}
}

// An account finds what was done to the frames on their way.
func TestAccount(t *testing.T) {
	frames := func(n int, change func(i int, f []byte) [][]byte) [][]byte {
		s, err := flow.New(toSink(flow.UDP, 100))
		if err != nil {
			t.Fatal(err)
		}
		var out [][]byte
		for i := range n {
			f := make([]byte, 100)
			s.Next(f, 1_000_000)
			out = append(out, change(i, f)...)
		}
		return out
	}
	for _, tt := range []struct {
		name   string
		frames [][]byte
		want   Summary
	}{
		{"all right", frames(50, func(_ int, f []byte) [][]byte { return [][]byte{f} }), Summary{Counts: Counts{Frames: 50, Bytes: 5000}, Unique: 50, Streams: 1}},
		{"every fifth lost", frames(51, func(i int, f []byte) [][]byte {
			if i%5 == 1 {
				return nil
			}
			return [][]byte{f}
		}), Summary{Counts: Counts{Frames: 41, Bytes: 4100}, Unique: 41, Lost: 10, Streams: 1}},
		{"every tenth twice", frames(50, func(i int, f []byte) [][]byte {
			if i%10 == 0 {
				return [][]byte{f, f}
			}
			return [][]byte{f}
		}), Summary{Counts: Counts{Frames: 55, Bytes: 5500}, Unique: 50, Duplicates: 5, Streams: 1}},
		{"one byte of every tenth changed", frames(50, func(i int, f []byte) [][]byte {
			if i%10 == 1 {
				f[80]++
			}
			return [][]byte{f}
		}), Summary{Counts: Counts{Frames: 50, Bytes: 5000, Damaged: 5}, Unique: 45, Lost: 5, Streams: 1}},
		{"something else in between", append(frames(3, func(_ int, f []byte) [][]byte { return [][]byte{f} }), make([]byte, 60)),
			Summary{Counts: Counts{Frames: 3, Bytes: 300, Other: 1}, Unique: 3, Streams: 1}},
	} {
		a := NewAccount(flow.UDP, false)
		for _, f := range tt.frames {
			a.Observe(f, 2_000_000)
		}
		got, err := Sum([]*Account{a})
		if err != nil {
			t.Fatal(err)
		}
		if g := *got; g.Counts != tt.want.Counts || g.Unique != tt.want.Unique || g.Lost != tt.want.Lost || g.Duplicates != tt.want.Duplicates ||
			g.Reordered != tt.want.Reordered || g.Streams != tt.want.Streams || g.Latency != nil {
			t.Errorf("%s: %+v, want %+v", tt.name, g, tt.want)
		}
	}
}

// Percentiles appear with the number of samples that they need, and not before.
func TestLatencyNeedsSamples(t *testing.T) {
	for _, tt := range []struct {
		n         int
		p99, p999 bool
	}{{999, false, false}, {1000, true, false}, {9999, true, false}, {10000, true, true}} {
		a := NewAccount(flow.UDP, true)
		s, err := flow.New(toSink(flow.UDP, 64))
		if err != nil {
			t.Fatal(err)
		}
		var f [64]byte
		for i := range tt.n {
			s.Next(f[:], 5000)
			a.Observe(f[:], 5000+uint64(i+1)*100)
		}
		got, err := Sum([]*Account{a, NewAccount(flow.UDP, true)})
		if err != nil {
			t.Fatal(err)
		}
		l := got.Latency
		if l.Samples != int64(tt.n) || (l.P99 != nil) != tt.p99 || (l.P999 != nil) != tt.p999 {
			t.Errorf("%d samples: %+v", tt.n, l)
		}
		if want := float64(tt.n) / 20; math.Abs(l.P50-want) > want/100 {
			t.Errorf("%d samples: p50 %v us, want %v", tt.n, l.P50, want)
		}
		if text := l.String(); strings.Contains(text, "p99.9 not from under 10000 samples") == tt.p999 || !strings.HasSuffix(text, fmt.Sprint(tt.n, " samples")) {
			t.Errorf("%d samples: %q", tt.n, text)
		}
	}
}

// link is a veth pair of so many queues: the generator's namespace and the sink's.
func link(t *testing.T, queues, mtu int) (from, to *netlab.NS, fromIndex, toIndex int, mac inet.MAC) {
	t.Helper()
	lab := netlabtest.New(t, "gnsink")
	from, to = netlabtest.Namespace(t, lab, "from"), netlabtest.Namespace(t, lab, "to")
	netlabtest.Veth(t, lab, netlab.End{NS: from, Name: "a0", Addr: "10.50.0.1/24", Queues: queues, MTU: mtu},
		netlab.End{NS: to, Name: "b0", Addr: "10.50.0.253/24", Queues: queues, MTU: mtu})
	fromIndex, _, err := from.Interface("a0")
	if err != nil {
		t.Fatal(err)
	}
	toIndex, hw, err := to.Interface("b0")
	if err != nil {
		t.Fatal(err)
	}
	return from, to, fromIndex, toIndex, inet.MAC(hw)
}

func startXDP(t *testing.T, ns *netlab.NS, index int, o Options) *Sink {
	t.Helper()
	var s *Sink
	if err := ns.Do(func() (err error) { s, err = StartXDP(context.Background(), index, o); return }); err != nil {
		t.Fatal(err)
	}
	return s
}

// The rates of 1, 2, 3 and 8 queues add up to what was asked, to the frame, and all of it arrives.
func TestQueuesAddUp(t *testing.T) {
	from, to, fromIndex, toIndex, _ := link(t, 8, 1500)
	for _, queues := range []int{1, 2, 3, 8} {
		// Where the machine did not let the generator send all, or the sink take all before its rings were full, it is tried
		// again; the sums hold all the same.
		taken := false
		for try := range 10 {
			sent, lost := addUp(t, from, fromIndex, to, toIndex, queues)
			taken = taken || !lost
			if !lost && (sent || try >= 3) {
				break
			}
		}
		if !taken {
			t.Errorf("%d queues: frames were lost in each try", queues)
		}
	}
}

// addUp sends through queues, and tells whether all was sent that was asked for, and whether some of it was lost.
func addUp(t *testing.T, from *netlab.NS, fromIndex int, to *netlab.NS, toIndex, queues int) (all, lost bool) {
	t.Helper()
	s := startXDP(t, to, toIndex, Options{Flow: flow.UDP, Queues: 8, Latency: true})
	var r *gen.Result
	const pps, d = 20_001, 500 * time.Millisecond
	err := from.Do(func() (err error) {
		r, err = gen.RunXDP(t.Context(), fromIndex, gen.QueueOptions{Flow: toSink(flow.UDP, 64, 1514), Queues: queues, Rate: pps, For: d})
		return
	})
	got, err2 := s.Stop()
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	var sum uint64
	for _, q := range r.Queues {
		sum += q.Frames
	}
	t.Logf("%d queues: %.0f frames/s of %d asked, %d of %d frames arrived, %v", queues, r.PPS(), pps, got.Unique, r.Frames, got.Latency)
	if r.Invalid() != "" {
		t.Logf("%d queues: %s", queues, r.Invalid())
	} else if math.Abs(r.PPS()/pps-1) > 0.01 {
		t.Errorf("%d queues: %.0f frames/s, want %d within 1 %%", queues, r.PPS(), pps)
	}
	if sum != r.Frames || r.Asked != 10_001 || r.Frames > r.Asked || len(r.Queues) != queues {
		t.Errorf("%d queues: %d frames, the queues' sum %d, asked %d", queues, r.Frames, sum, r.Asked)
	}
	if got.Unique > r.Numbers || got.Unique < r.Numbers/2 || got.Damaged+got.Duplicates != 0 || got.Streams != queues {
		t.Errorf("%d queues: %+v of %+v", queues, got, r.Counts)
	}
	if got.Latency == nil || got.Latency.Samples != int64(got.Unique) || (got.Latency.P999 == nil) != (got.Unique < 10_000) {
		t.Errorf("%d queues: latency %+v", queues, got.Latency)
	}
	return r.Invalid() == "" && r.Frames == r.Asked, got.Unique != r.Numbers
}

// Frames larger than a chunk leave and arrive in pieces, whole.
func TestJumboFrames(t *testing.T) {
	from, to, fromIndex, toIndex, _ := link(t, 1, 9000)
	var got *Summary
	// A generator that the machine did not let send all is tried again.
	for try := 0; try < 20 && (got == nil || got.Unique != 1000); try++ {
		s := startXDP(t, to, toIndex, Options{Flow: flow.Native, Longest: 9014})
		var r *gen.Result
		err := from.Do(func() (err error) {
			r, err = gen.RunXDP(t.Context(), fromIndex, gen.QueueOptions{Flow: toSink(flow.Native, 9014, 298, 4098), Rate: 5000, For: 200 * time.Millisecond})
			return
		})
		var err2 error
		got, err2 = s.Stop()
		if err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
		if got.Unique != r.Frames || got.Bytes != r.Bytes || got.Damaged != 0 {
			t.Fatalf("%+v of %+v", got, r.Counts)
		}
	}
	if got.Unique != 1000 {
		t.Errorf("%d frames of 1000 were sent, at best", got.Unique)
	}
}

// All three generators do to a flow what they say, and the sink finds just that.
func TestImpairedFlows(t *testing.T) {
	from, to, fromIndex, toIndex, mac := link(t, 1, 1500)
	impaired := flow.Impairments{Loss: 0.05, Duplicate: 0.03, Reorder: 0.02, Malformed: 0.04}
	const pps, d = 20_000, 300 * time.Millisecond
	for _, kind := range []string{"kernel", "xdp", "udp"} {
		t.Run(kind, func(t *testing.T) {
			var s *Sink
			o := toSink(flow.UDP, 128)
			o.Impairments, o.Seed = impaired, 7
			if kind == "udp" {
				o.Malformed = 0
				o.ToIP = inet.Addr{10, 50, 0, 253}
				if err := to.Do(func() (err error) {
					s, err = StartUDP(context.Background(), "10.50.0.253", Options{Flow: flow.UDP})
					return
				}); err != nil {
					t.Fatal(err)
				}
			} else {
				s = startXDP(t, to, toIndex, Options{Flow: flow.UDP})
			}
			o.To = mac
			var r *gen.Result
			err := from.Do(func() (err error) {
				switch kind {
				case "kernel":
					r, err = runKernel(t.Context(), fromIndex, o, pps, d)
				case "xdp":
					r, err = gen.RunXDP(t.Context(), fromIndex, gen.QueueOptions{Flow: o, Rate: pps, For: d})
				case "udp":
					r, err = gen.RunUDP(t.Context(), gen.QueueOptions{Flow: o, Rate: pps, For: d})
				}
				return err
			})
			got, err2 := s.Stop()
			if err != nil || err2 != nil {
				t.Fatal(err, err2)
			}
			c := r.Counts
			t.Logf("sent %+v, arrived %+v", c, got)
			// One frame may have been about to be sent again or late when the run ended.
			near := func(a, b uint64) bool { return a <= b+2 && b <= a+2 }
			if r.Frames != r.Asked && r.Invalid() == "" || !near(got.Duplicates, c.Duplicated) || !near(got.Reordered, c.Reordered) || !near(got.Lost, c.Skipped) || got.Damaged != 0 {
				t.Errorf("arrived %+v of %+v", got, c)
			}
			if kind != "udp" && got.Other != c.Malformed {
				t.Errorf("%d malformed frames arrived of %d", got.Other, c.Malformed)
			}
			for name, share := range map[string][2]float64{
				"loss": {float64(c.Skipped), 0.05}, "duplicates": {float64(c.Duplicated), 0.03}, "reordering": {float64(c.Reordered), 0.02}, "malformed": {float64(c.Malformed), o.Malformed},
			} {
				if got := share[0] / float64(c.Frames); math.Abs(got-share[1]) > 0.012 {
					t.Errorf("%s: share %.3f, want %.3f", name, got, share[1])
				}
			}
		})
	}
}

func runKernel(ctx context.Context, index int, o flow.Options, pps float64, d time.Duration) (*gen.Result, error) {
	plain := o
	plain.Impairments = flow.Impairments{} // the program's part
	s, err := flow.New(plain)
	if err != nil {
		return nil, err
	}
	frame := make([]byte, s.Longest())
	frame = frame[:s.Next(frame, 0)]
	g, err := gen.Open(gen.Options{IfIndex: index, Frame: frame, StampAt: o.Kind.StampAt(), Rate: pps, Impairments: o.Impairments, Seed: o.Seed})
	if err != nil {
		return nil, err
	}
	defer g.Close()
	return g.RunPaced(ctx, d)
}

// A generator that cannot keep up is INVALID; a device that cannot keep up loses, and the run is valid.
func TestWhoIsSlow(t *testing.T) {
	from, to, fromIndex, toIndex, _ := link(t, 1, 1500)
	run := func(o gen.QueueOptions, so Options) (*gen.Result, *Summary) {
		t.Helper()
		so.Flow = flow.UDP
		s := startXDP(t, to, toIndex, so)
		o.Flow = toSink(flow.UDP, 64)
		var r *gen.Result
		err := from.Do(func() (err error) { r, err = gen.RunXDP(t.Context(), fromIndex, o); return })
		got, err2 := s.Stop()
		if err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
		return r, got
	}
	r, _ := run(gen.QueueOptions{Rate: 100_000, For: 200 * time.Millisecond, Slowed: 5 * time.Millisecond}, Options{})
	if v := r.Invalid(); !strings.Contains(v, "INVALID: the generator") {
		t.Errorf("a slowed generator that sent %d of %d: %q", r.Frames, r.Asked, v)
	}
	// A generator that was slow itself, as on a busy machine, says nothing about the device.
	for range 20 {
		r, got := run(gen.QueueOptions{Rate: 100_000, For: 300 * time.Millisecond}, Options{Slowed: 20 * time.Millisecond})
		v := r.Invalid()
		if v != "" {
			t.Logf("busy machine: %s", v)
		}
		if v == "" || got.Unique <= r.Frames/2 {
			if got.Unique > r.Frames/2 || got.Lost == 0 {
				t.Errorf("a slowed device took %d of %d frames, lost %d between", got.Unique, r.Frames, got.Lost)
			}
			return
		}
	}
	t.Error("the generator was too slow each time")
}

// A run that is interrupted says so, and what it has done so far.
func TestInterrupted(t *testing.T) {
	from, _, fromIndex, _, mac := link(t, 1, 1500)
	for _, kind := range []string{"kernel", "xdp"} {
		ctx, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
		var r *gen.Result
		begin := time.Now()
		err := from.Do(func() (err error) {
			o := toSink(flow.UDP, 64)
			o.To = mac
			if kind == "kernel" {
				r, err = runKernel(ctx, fromIndex, o, 10_000, time.Minute)
			} else {
				r, err = gen.RunXDP(ctx, fromIndex, gen.QueueOptions{Flow: o, Rate: 10_000, For: time.Minute})
			}
			return err
		})
		cancel()
		if err == nil || r == nil || r.Frames == 0 || r.Frames > 100_000 || time.Since(begin) > 30*time.Second {
			t.Errorf("%s: error %v, result %+v after %v", kind, err, r, time.Since(begin))
		}
	}
}

func TestEndpointsAreClosed(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	_, to, _, toIndex, _ := link(t, 2, 1500)
	for range 3 { // each run binds the queues again
		s := startXDP(t, to, toIndex, Options{Flow: flow.UDP, Queues: 2})
		if _, err := s.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	err := to.Do(func() error {
		_, err := StartXDP(context.Background(), toIndex, Options{Flow: flow.UDP, Queues: 3})
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "queue 2") {
		t.Errorf("three queues on a netdev of two: %v", err)
	}
	s := startXDP(t, to, toIndex, Options{Flow: flow.UDP, Queues: 2}) // what failed has let go
	if _, err := s.Stop(); err != nil {
		t.Error(err)
	}
}
