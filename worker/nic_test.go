package worker_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"gradnic/dataplane"
	"gradnic/wire/inet"
	"gradnic/worker"
)

var (
	nicMAC = inet.MAC{0x06, 0, 0, 0, 0, 0xfe}
	nicIP  = inet.Addr{10, 50, 0, 254}
)

func workerMAC(rank int) inet.MAC { return inet.MAC{0x02, 0, 0, 0, byte(rank + 1), 0} }
func workerIP(rank int) inet.Addr { return inet.Addr{10, 50, 0, byte(rank + 1)} }

// fabric is the real NIC with a port in memory for each worker.
type fabric struct {
	nic     *dataplane.NIC
	links   []*dataplane.MemPort
	workers []*worker.Worker
	heard   []atomic.Uint64 // results that came to each worker's group sockets, in a lab
}

// start starts the NIC.
func (f *fabric) start(t testing.TB, ports []dataplane.PortSpec) {
	t.Helper()
	var err error
	if f.nic, err = dataplane.New(dataplane.Config{MAC: nicMAC, IP: nicIP, FramesPerQueue: 1024}, ports...); err != nil {
		t.Fatal(err)
	}
	if err := f.nic.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// stop closes the workers, as far as they are there, and stops the NIC, whose counters must add up.
func (f *fabric) stop(t testing.TB) {
	for _, w := range f.workers {
		if w == nil {
			continue
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := f.nic.Stop(context.Background()); err != nil {
		t.Error(err)
	}
	s := f.nic.Snapshot()
	if err := s.Check(); err != nil {
		t.Error(err)
	}
}

func newFabric(t testing.TB, n int, base worker.Config, wrap func(rank int, l worker.FrameLink) worker.FrameLink) *fabric {
	t.Helper()
	f := &fabric{}
	var ports []dataplane.PortSpec
	job := dataplane.JobSpec{Name: "test", Workers: n, Elements: base.Elements, Slots: 512}
	for r := range n {
		p := dataplane.NewMemPort(fmt.Sprintf("w%d", r))
		f.links = append(f.links, p)
		ports = append(ports, p)
		job.Members = append(job.Members, dataplane.WorkerSpec{Rank: r, MAC: workerMAC(r), IP: workerIP(r), Port: r})
	}
	if !base.Group.IsZero() {
		job.Multicast = multicastTo(base.Group, n)
	}
	f.start(t, ports)
	t.Cleanup(func() { f.stop(t) })
	if err := f.nic.InstallJob(job); err != nil {
		t.Fatal(err)
	}
	for r := range n {
		c := base
		c.Rank, c.Workers = r, n
		c.NICMAC, c.NICIP, c.MAC, c.IP = nicMAC, nicIP, workerMAC(r), workerIP(r)
		c.Link = f.links[r]
		if wrap != nil {
			c.Link = wrap(r, c.Link)
		}
		w, err := worker.Join(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		f.workers = append(f.workers, w)
	}
	return f
}

func (f *fabric) impair(t testing.TB, i dataplane.Impairment) {
	t.Helper()
	for r := range f.links {
		i.Seed = uint64(r + 1)
		if err := f.nic.Impair(fmt.Sprintf("w%d", r), i); err != nil {
			t.Fatal(err)
		}
	}
}

// each runs do for every worker at once and returns their statistics and errors.
func (f *fabric) each(do func(rank int, w *worker.Worker) (worker.Stats, error)) ([]worker.Stats, []error) {
	stats, errs := make([]worker.Stats, len(f.workers)), make([]error, len(f.workers))
	var g sync.WaitGroup
	for r, w := range f.workers {
		g.Go(func() { stats[r], errs[r] = do(r, w) })
	}
	g.Wait()
	return stats, errs
}

func deadline(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func randomInts(rank, n int, seed uint64) []int32 {
	r := rand.New(rand.NewPCG(seed, uint64(rank)))
	v := make([]int32, n)
	for i := range v {
		v[i] = int32(r.Uint32())
	}
	return v
}

func randomFloats(rank, n int, seed uint64) []float32 {
	r := rand.New(rand.NewPCG(seed, uint64(rank)))
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(math.Ldexp(r.NormFloat64(), r.IntN(40)-30))
	}
	return v
}

// reduceInts runs one all-reduce of n int32, checks it and returns the statistics.
func (f *fabric) reduceInts(t testing.TB, n int, seed uint64) []worker.Stats {
	t.Helper()
	ctx := deadline(t)
	in := make([][]int32, len(f.workers))
	for r := range in {
		in[r] = randomInts(r, n, seed)
	}
	out := make([][]int32, len(in))
	stats, errs := f.each(func(r int, w *worker.Worker) (worker.Stats, error) {
		out[r] = make([]int32, n)
		return w.AllReduceInt32(ctx, out[r], in[r])
	})
	for r := range in {
		if errs[r] != nil {
			t.Fatalf("rank %d, %d elements: %v", r, n, errs[r])
		}
		if c := worker.CheckInt32(out[r], in); c.Wrong != 0 {
			t.Fatalf("rank %d: %d of %d elements wrong, the first is %d", r, c.Wrong, n, c.First)
		}
	}
	return stats
}

func (f *fabric) reduceFloats(t testing.TB, n int, seed uint64) []worker.Stats {
	t.Helper()
	ctx := deadline(t)
	in := make([][]float32, len(f.workers))
	out := make([][]float32, len(in))
	for r := range in {
		in[r] = randomFloats(r, n, seed)
		out[r] = slices.Clone(in[r])
	}
	stats, errs := f.each(func(r int, w *worker.Worker) (worker.Stats, error) {
		return w.AllReduceFloat32(ctx, out[r], out[r]) // in place
	})
	for r := range in {
		if errs[r] != nil {
			t.Fatalf("rank %d, %d elements: %v", r, n, errs[r])
		}
		c := worker.CheckFloat32(out[r], in, f.workers[r].Config().Elements, f.workers[r].Config().Threads)
		if c.Wrong != 0 {
			t.Fatalf("rank %d: %d of %d elements wrong, the first is %d; %+v", r, c.Wrong, n, c.First, c)
		}
		if !slices.Equal(out[r], out[0]) {
			t.Fatalf("rank %d has other floats than rank 0", r)
		}
	}
	return stats
}

func TestAllReduceLengths(t *testing.T) {
	for _, elements := range []int{64, 256} {
		for _, n := range []int{1, 2, 5} {
			t.Run(fmt.Sprintf("%dx%d", n, elements), func(t *testing.T) {
				f := newFabric(t, n, worker.Config{Elements: elements, Outstanding: 4}, nil)
				seed := uint64(1)
				for _, k := range []int{0, 1, 2, 4, 5, 8, 9} {
					for _, d := range []int{-1, 0, 1} {
						if length := k*elements + d; length >= 0 {
							seed++
							for r, s := range f.reduceInts(t, length, seed) {
								if want := uint64((length + elements - 1) / elements); s.Packets != want || s.Received != want {
									t.Errorf("rank %d, %d elements: %d packets and %d results, want %d", r, length, s.Packets, s.Received, want)
								}
							}
							f.reduceFloats(t, length, seed)
						}
					}
				}
			})
		}
	}
}

func TestAllReduceUnderLoss(t *testing.T) {
	for _, c := range []struct {
		name string
		imp  dataplane.Impairment
	}{
		{"1 % in", dataplane.Impairment{IngressLoss: 0.01}},
		{"1 % out", dataplane.Impairment{EgressLoss: 0.01}},
		{"10 % in", dataplane.Impairment{IngressLoss: 0.1}},
		{"10 % out", dataplane.Impairment{EgressLoss: 0.1}},
		{"10 % out, all copies", dataplane.Impairment{EgressLoss: 0.1, EgressTogether: true}},
		{"10 % both, doubled", dataplane.Impairment{IngressLoss: 0.1, EgressLoss: 0.1, Duplicate: 0.1}},
		{"30 % both", dataplane.Impairment{IngressLoss: 0.3, EgressLoss: 0.3}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFabric(t, 4, worker.Config{Elements: 64, Outstanding: 16}, nil)
			f.impair(t, c.imp)
			packets := 120
			if c.imp.IngressLoss >= 0.3 {
				packets = 20
			}
			var resent uint64
			for _, s := range f.reduceInts(t, packets*64-3, 1) {
				resent += s.Resent
			}
			for _, s := range f.reduceFloats(t, packets*64-3, 2) {
				resent += s.Resent
			}
			if resent == 0 {
				t.Error("nothing was resent: the impairment had no effect")
			}
		})
	}
}

// Each frame of a short job is lost in turn, in each direction, the last included.
func TestAllReduceLosesExactlyOne(t *testing.T) {
	f := newFabric(t, 2, worker.Config{Elements: 64, Outstanding: 3}, nil)
	const packets = 8
	for k := uint64(1); k <= packets; k++ {
		for _, dir := range []string{"in", "out"} {
			imp := dataplane.Impairment{DropIngress: []uint64{k}}
			if dir == "out" {
				imp = dataplane.Impairment{DropEgress: []uint64{k}}
			}
			if err := f.nic.Impair("w1", imp); err != nil {
				t.Fatal(err)
			}
			stats := f.reduceInts(t, packets*64, k)
			if stats[1].Resent == 0 {
				t.Errorf("frame %d %s: rank 1 resent nothing", k, dir)
			}
		}
	}
	if err := f.nic.Impair("w1", dataplane.Impairment{}); err != nil {
		t.Fatal(err)
	}
	f.reduceInts(t, packets*64, 99)
}

// A worker that comes late makes the others resend; each result counts once.
func TestLateWorker(t *testing.T) {
	f := newFabric(t, 3, worker.Config{Elements: 64, Outstanding: 8}, nil)
	for round := range uint64(3) {
		in := [][]int32{randomInts(0, 2000, round), randomInts(1, 2000, round), randomInts(2, 2000, round)}
		ctx := deadline(t)
		stats, errs := f.each(func(r int, w *worker.Worker) (worker.Stats, error) {
			if r == 2 {
				time.Sleep(120 * time.Millisecond)
			}
			return w.AllReduceInt32(ctx, in[r], slices.Clone(in[r]))
		})
		want := make([][]int32, 3)
		for r := range want {
			want[r] = randomInts(r, 2000, round)
		}
		for r := range in {
			if errs[r] != nil {
				t.Fatal(errs[r])
			}
			if c := worker.CheckInt32(in[r], want); c.Wrong != 0 {
				t.Fatalf("round %d rank %d: %d wrong", round, r, c.Wrong)
			}
		}
		// In later rounds the timer knows that a round trip takes that long.
		if round == 0 && (stats[0].Resent == 0 || stats[0].Timeouts == 0) {
			t.Errorf("round %d: rank 0 resent nothing in 120 ms", round)
		}
		// Doubling: 10+20+40+80 ms is past the delay, so each packet goes out again 4 times at most; a timer that does not double would send 12.
		if got := stats[0].Resent; got > 8*5 {
			t.Errorf("round %d: rank 0 resent %d times: the timer does not back off", round, got)
		}
	}
}

// A peer that never comes: the context's end is told, with what is missing,
// and the session is over.
func TestMissingWorker(t *testing.T) {
	f := newFabric(t, 2, worker.Config{Elements: 64, Outstanding: 4}, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Millisecond)
	defer cancel()
	v := make([]int32, 1000)
	_, err := f.workers[0].AllReduceInt32(ctx, v, v)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "packet 0 on slot 0 set 0") {
		t.Fatalf("error: %v", err)
	}
	if _, err := f.workers[0].AllReduceInt32(t.Context(), v, v); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "join again") {
		t.Fatalf("second call: %v", err)
	}
	s, err := f.nic.Job("test")
	if err != nil || !slices.Equal(s.Missing, []int{1}) {
		t.Fatalf("the NIC misses %v: %v", s.Missing, err)
	}
}

func TestContextEndedBefore(t *testing.T) {
	f := newFabric(t, 1, worker.Config{Elements: 64}, nil)
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("why")
	cancel(why)
	v := make([]int32, 10)
	if _, err := f.workers[0].AllReduceInt32(ctx, v, v); !errors.Is(err, why) {
		t.Fatalf("error: %v", err)
	}
	f.reduceInts(t, 100, 1) // nothing had begun, so nothing is lost
}

func TestCloseEndsAnAllReduce(t *testing.T) {
	f := newFabric(t, 2, worker.Config{Elements: 64}, nil)
	done := make(chan error)
	go func() {
		v := make([]int32, 1000)
		_, err := f.workers[0].AllReduceInt32(context.Background(), v, v)
		done <- err
	}()
	time.Sleep(20 * time.Millisecond)
	if err := f.workers[0].Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, worker.ErrClosed) {
		t.Fatalf("error: %v", err)
	}
	v := make([]float32, 3)
	if _, err := f.workers[0].AllReduceFloat32(context.Background(), v, v); !errors.Is(err, worker.ErrClosed) {
		t.Fatalf("after Close: %v", err)
	}
}

func TestNICStops(t *testing.T) {
	f := newFabric(t, 2, worker.Config{Elements: 64}, nil)
	time.AfterFunc(30*time.Millisecond, func() { _ = f.nic.Stop(context.Background()) })
	v := make([]int32, 1000)
	if _, err := f.workers[0].AllReduceInt32(deadline(t), v, v); !errors.Is(err, dataplane.ErrPortClosed) {
		t.Fatalf("error: %v", err)
	}
}

func TestLengthsMustMatch(t *testing.T) {
	f := newFabric(t, 1, worker.Config{Elements: 64}, nil)
	if _, err := f.workers[0].AllReduceInt32(t.Context(), make([]int32, 2), make([]int32, 3)); err == nil {
		t.Error("took a short dst of int32")
	}
	if _, err := f.workers[0].AllReduceFloat32(t.Context(), make([]float32, 4), make([]float32, 3)); err == nil {
		t.Error("took a long dst of float32")
	}
}

func TestConfig(t *testing.T) {
	good := worker.Config{Workers: 2, IP: workerIP(0), MAC: workerMAC(0), NICMAC: nicMAC, NICIP: nicIP, Link: dataplane.NewMemPort("x")}
	if w, err := worker.Join(t.Context(), good); err != nil {
		t.Fatal(err)
	} else if c := w.Config(); c.Elements != 256 || c.Outstanding != 64 || c.Port != 4000 || c.Slots() != 64 {
		t.Errorf("defaults: %+v", c)
	}
	for name, change := range map[string]func(*worker.Config){
		"no workers":           func(c *worker.Config) { c.Workers = 0 },
		"33 workers":           func(c *worker.Config) { c.Workers = 33 },
		"rank 2 of 2":          func(c *worker.Config) { c.Rank = 2 },
		"rank -1":              func(c *worker.Config) { c.Rank = -1 },
		"128 elements":         func(c *worker.Config) { c.Elements = 128 },
		"threads on a link":    func(c *worker.Config) { c.Threads = 2 },
		"negative threads":     func(c *worker.Config) { c.Threads = -1 },
		"uneven threads":       func(c *worker.Config) { c.Link, c.Threads, c.Outstanding = nil, 2, 7 },
		"too many outstanding": func(c *worker.Config) { c.Outstanding = 1<<14 + 1 },
		"port":                 func(c *worker.Config) { c.Port = 65536 },
		"negative timeout":     func(c *worker.Config) { c.Timeout = -1 },
		"timeouts crossed":     func(c *worker.Config) { c.MinTimeout, c.MaxTimeout = 2, 1 },
		"policy":               func(c *worker.Config) { c.NonFinite = 9 },
		"no IP":                func(c *worker.Config) { c.IP = inet.Addr{} },
		"no MAC of the NIC":    func(c *worker.Config) { c.NICMAC = inet.MAC{} },
		"no way to the NIC":    func(c *worker.Config) { c.NICIP = inet.Addr{} },
		"no group":             func(c *worker.Config) { c.Group = workerIP(0) },
		"no MAC":               func(c *worker.Config) { c.MAC = inet.MAC{} },
	} {
		c := good
		change(&c)
		if _, err := worker.Join(t.Context(), c); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	c := worker.Config{Workers: 2, Threads: 4, Outstanding: 256}
	if got := c.Slots(); got != 2*64*3+64 {
		t.Errorf("4 threads of 64 packets need %d slots", got)
	}
}

// Packets cost no memory: a job of many packets allocates no more than one of few.
func TestNoAllocationPerPacket(t *testing.T) {
	f := newFabric(t, 2, worker.Config{Elements: 64, Outstanding: 16, MinTimeout: time.Second, Timeout: time.Second, MaxTimeout: time.Second}, nil)
	measure := func(packets int) float64 {
		in := [][]float32{make([]float32, 64*packets), make([]float32, 64*packets)}
		return testing.AllocsPerRun(3, func() {
			_, errs := f.each(func(r int, w *worker.Worker) (worker.Stats, error) {
				return w.AllReduceFloat32(context.Background(), in[r], in[r])
			})
			if err := errors.Join(errs...); err != nil {
				t.Fatal(err)
			}
		})
	}
	measure(4000) // the largest first: arrays that grow with the job are kept
	few, many := measure(40), measure(4000)
	if many > few+800 { // 0.1 a packet, for what the runtime does on the side
		t.Errorf("%.0f allocations for 40 packets a worker, %.0f for 4000", few, many)
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
