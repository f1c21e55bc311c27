package native

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gradnic/dataplane"
	"gradnic/wire/inet"
)

var (
	nicMAC = inet.MAC{0x06, 0, 0, 0, 0, 0xfe}
	nicIP  = inet.Addr{10, 50, 0, 254}
)

func workerMAC(r int) inet.MAC { return inet.MAC{2, 0, 0, 0, 1, byte(r)} }
func workerIP(r int) inet.Addr { return inet.Addr{10, 50, 0, byte(r + 1)} }

// cable is the link of a worker to a NIC that may be replaced by another one; without one it is unplugged.
type cable struct {
	port atomic.Pointer[dataplane.MemPort]
	// tap, if not nil, sees every frame that passes; the worker's are not changed after it.
	tap func(fromWorker bool, frame []byte)
}

func (c *cable) Send(frame []byte) error {
	if c.tap != nil {
		c.tap(true, frame)
	}
	if p := c.port.Load(); p != nil {
		if err := p.Send(frame); err != nil && !errors.Is(err, dataplane.ErrPortClosed) {
			return err
		}
	}
	return nil
}

func (c *cable) Recv(buf []byte, deadline time.Time) (int, error) {
	p := c.port.Load()
	if p == nil {
		time.Sleep(min(time.Until(deadline), 200*time.Microsecond))
		return 0, os.ErrDeadlineExceeded
	}
	n, err := p.Recv(buf, deadline)
	if errors.Is(err, dataplane.ErrPortClosed) {
		c.port.CompareAndSwap(p, nil)
		return 0, os.ErrDeadlineExceeded
	}
	if err == nil && c.tap != nil {
		c.tap(false, buf[:n])
	}
	return n, err
}

// rig is a NIC with a port for each worker, which can be killed and started again.
type rig struct {
	t      testing.TB
	spec   dataplane.JobSpec
	cfg    dataplane.Config
	cables []*cable

	nic   *dataplane.NIC
	kills int
}

func newRig(t testing.TB, spec dataplane.JobSpec) *rig {
	t.Helper()
	spec.Name, spec.Protocol = "j", dataplane.ProtocolNative
	if spec.Elements == 0 {
		spec.Elements = 64
	}
	if spec.Slots == 0 {
		spec.Slots = 64
	}
	r := &rig{t: t, spec: spec, cfg: dataplane.Config{MAC: nicMAC, IP: nicIP, FramesPerQueue: 512, Wait: dataplane.Interrupt, Drain: time.Millisecond}}
	for range spec.Workers {
		r.cables = append(r.cables, &cable{})
	}
	r.start(nil)
	t.Cleanup(func() {
		r.stop()
		if err := r.nic.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		s := r.nic.Snapshot()
		if err := s.Check(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// start starts a NIC that knows nothing of an earlier one.
func (r *rig) start(impair func(port int) dataplane.Impairment) {
	r.t.Helper()
	var ports []dataplane.PortSpec
	var mem []*dataplane.MemPort
	for i := range r.cables {
		mem = append(mem, dataplane.NewMemPort(fmt.Sprint("m", i)))
		ports = append(ports, mem[i])
	}
	n, err := dataplane.New(r.cfg, ports...)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := n.InstallJob(r.spec); err != nil {
		r.t.Fatal(err)
	}
	if impair != nil {
		for i := range mem {
			if err := n.Impair(fmt.Sprint("m", i), impair(i)); err != nil {
				r.t.Fatal(err)
			}
		}
	}
	if err := n.Start(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
	r.nic = n
	for i, c := range r.cables {
		c.port.Store(mem[i])
	}
}

// stop unplugs the NIC and ends it with all that it knows.
func (r *rig) stop() {
	for _, c := range r.cables {
		c.port.Store(nil)
	}
	dead, cancel := context.WithCancel(context.Background())
	cancel()
	if err := r.nic.Stop(dead); err != nil {
		r.t.Error(err)
	}
}

func (r *rig) kill(impair func(port int) dataplane.Impairment) {
	r.stop()
	r.kills++
	r.start(impair)
}

func (r *rig) config(rank int) Config {
	c := Config{Rank: rank, NIC: nicIP, NICMAC: nicMAC, IP: workerIP(rank), MAC: workerMAC(rank), Link: r.cables[rank]}
	if n := r.spec.Native; n != nil && len(n.Keys) > 0 {
		c.Key = &n.Keys[rank]
	}
	return c
}

// join brings all workers together.
func (r *rig) join() []*Worker {
	r.t.Helper()
	ws := make([]*Worker, r.spec.Workers)
	each(r.t, len(ws), func(ctx context.Context, i int) (err error) {
		ws[i], err = Join(ctx, r.config(i))
		return err
	})
	for _, w := range ws {
		r.t.Cleanup(func() { w.Close() })
	}
	return ws
}

// each runs f for each rank at once, with a bound on the time.
func each(t testing.TB, n int, f func(ctx context.Context, rank int) error) {
	t.Helper()
	bound := 30 * time.Second
	if *soak {
		bound = 5 * time.Minute
	}
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	errs := make([]error, n)
	var g sync.WaitGroup
	for i := range n {
		g.Go(func() { errs[i] = f(ctx, i) })
	}
	g.Wait()
	for i, err := range errs {
		if err != nil {
			t.Fatalf("rank %d: %v", i, err)
		}
	}
}
