package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"gradnic/bench/gen"
	"gradnic/bench/peers"
	"gradnic/bench/report"
	"gradnic/xdp"
)

// pings is how many round trips one turn takes: enough for a p99.9 of fifty samples above it.
const pings = 50_000

// pinger sends one frame and waits for it to come back, spinning, over AF_XDP on the generator's end.
type pinger struct {
	umem  *xdp.UMEM
	sock  *xdp.Socket
	steer *xdp.Steering
	frame []byte
}

func (r *Rig) openPinger(size int) (_ *pinger, err error) {
	p := &pinger{frame: r.Frame(size, false)}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("pinger: %w", err), p.Close())
		}
	}()
	const chunks = 64
	if p.umem, err = xdp.NewUMEM(xdp.UMEMOptions{Chunks: chunks, ChunkSize: 2048}); err != nil {
		return p, err
	}
	if p.sock, err = p.umem.Open(xdp.SocketOptions{IfIndex: r.genIndex, RxSize: 64, TxSize: 64, CompletionSize: 64}); err != nil {
		return p, err
	}
	if p.steer, err = xdp.Attach(xdp.AttachOptions{IfIndex: r.genIndex, Mode: xdp.Native}); err != nil {
		return p, err
	}
	if err = errors.Join(p.steer.SetWholePort(true), p.steer.Bind(0, p.sock)); err != nil {
		return p, err
	}
	// Chunk 0 is sent, the others receive.
	addrs := make([]uint64, 0, chunks-1)
	for i := 1; i < chunks; i++ {
		addrs = append(addrs, uint64(i)*2048)
	}
	if n := p.sock.Fill(addrs); n != len(addrs) {
		return p, fmt.Errorf("the fill ring took %d of %d chunks", n, len(addrs))
	}
	return p, nil
}

// run takes n round trips and records them in nanoseconds. A frame that does not come back within a second ends it.
func (p *pinger) run(n int, h *hdrhistogram.Histogram) error {
	var (
		tx = [1]xdp.Desc{{Len: uint32(len(p.frame))}}
		rx [8]xdp.Desc
		cq [8]uint64
	)
	copy(p.umem.Bytes(), p.frame)
	for range n {
		for p.sock.TxPosted() > p.sock.Completed() {
			p.sock.Complete(cq[:])
		}
		start := time.Now()
		if p.sock.Transmit(tx[:]) != 1 {
			return errors.New("pinger: the transmit ring is full")
		}
		if err := p.sock.Kick(); err != nil {
			return err
		}
		for spins := 1; ; spins++ {
			if got := p.sock.Receive(rx[:]); got > 0 {
				if err := h.RecordValue(int64(time.Since(start))); err != nil {
					return fmt.Errorf("pinger: %w", err)
				}
				p.sock.FillDescs(rx[:got])
				break
			}
			if spins%(1<<16) == 0 && time.Since(start) > time.Second {
				return errors.New("pinger: a frame did not come back within a second")
			}
		}
	}
	return nil
}

// Close takes the pinger off its netdev.
func (p *pinger) Close() error {
	var errs []error
	if p.steer != nil {
		errs = append(errs, p.steer.Close())
	}
	if p.sock != nil {
		errs = append(errs, p.sock.Close())
	}
	if p.umem != nil {
		errs = append(errs, p.umem.Close())
	}
	return errors.Join(errs...)
}

// echo is one turn: round trips through a contestant that reflects, in nanoseconds.
func (r *Rig) echo(launch func() (*peers.Process, error), size int) (*hdrhistogram.Histogram, error) {
	echoer, err := launch()
	if err != nil {
		return nil, err
	}
	// The collector would stop the pinger's own thread, and count as the echo's latency.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	h := hdrhistogram.New(100, int64(2*time.Second), 3)
	err = r.gen.Do(func() (err error) {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		restore, err := gen.Pin(generatorCPU)
		if err != nil {
			return err
		}
		defer restore()
		p, err := r.openPinger(size)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, p.Close()) }()
		if err := p.run(1000, hdrhistogram.New(100, int64(2*time.Second), 3)); err != nil { // warm
			return err
		}
		return p.run(pings, h)
	})
	_, err2 := echoer.Stop()
	return h, errors.Join(err, err2)
}

// Goals of the echo's latency over the C echo's.
const (
	goalEchoP50  = 1.1
	goalEchoP999 = 2.0
)

// latency measures round trips through the lane's reflect function and through the C echo, both spinning.
func (r *Rig) latency(ctx context.Context, o EngineOptions, lane []string, c string, rep *report.Report) error {
	const size = 64
	var ours, theirs [2][]float64
	quantiles := [2]float64{50, 99.9}
	for round := range o.Rounds {
		if err := ctx.Err(); err != nil {
			return err
		}
		a, err := r.echo(func() (*peers.Process, error) {
			return peers.Launch(r.dev, "lane", lane, r.target(peers.Reflect))
		}, size)
		if err != nil {
			return fmt.Errorf("echo/lane: %w", err)
		}
		b, err := r.echo(func() (*peers.Process, error) { return peers.LaunchC(r.dev, c, r.target(peers.Reflect)) }, size)
		if err != nil {
			return fmt.Errorf("echo/c: %w", err)
		}
		for i, q := range quantiles {
			ours[i] = append(ours[i], float64(a.ValueAtQuantile(q))/1e3)
			theirs[i] = append(theirs[i], float64(b.ValueAtQuantile(q))/1e3)
		}
		fmt.Fprintf(o.Log, "round %d/%d  echo/%d  lane p50 %.1f us p99.9 %.1f us, C %.1f and %.1f, of %d round trips each\n",
			round+1, o.Rounds, size, ours[0][round], ours[1][round], theirs[0][round], theirs[1][round], pings)
	}
	for i, name := range []string{"p50", "p99.9"} {
		rep.Add(report.Row{
			Name: fmt.Sprintf("echo-%s/lane/%d", name, size), Unit: "us", Against: fmt.Sprintf("echo-%s/c/%d", name, size),
			Goal: []float64{goalEchoP50, goalEchoP999}[i], Bound: "at most the goal; two system calls and two softirqs a round trip",
		}, ours[i], theirs[i])
	}
	return nil
}
