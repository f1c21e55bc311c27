package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"gradnic/bench/endpoint"
	"gradnic/bench/gen"
	"gradnic/bench/peers"
	"gradnic/bench/report"
	"gradnic/xdp"
)

// pings is how many round trips one turn takes: enough for a p99.9 of fifty samples above it.
const pings = 50_000

// pinger sends one frame and waits for it to come back, spinning, over AF_XDP on the generator's end.
type pinger struct {
	*endpoint.Endpoint
	frame []byte
}

func (r *Rig) openPinger(size int) (*pinger, error) {
	e, err := endpoint.Open(endpoint.Options{
		Socket: xdp.SocketOptions{IfIndex: r.genIndex, RxSize: 64, TxSize: 64, CompletionSize: 64}, Chunks: 64, Steer: true,
	})
	if err != nil {
		return nil, fmt.Errorf("pinger: %w", err)
	}
	// Chunk 0 is sent, the others receive.
	if err := e.Fill(0, 1); err != nil {
		return nil, errors.Join(fmt.Errorf("pinger: %w", err), e.Close())
	}
	return &pinger{e, r.Frame(size, false)}, nil
}

// run takes n round trips and records them in nanoseconds. A frame that does not come back within a second ends it.
func (p *pinger) run(n int, h *hdrhistogram.Histogram) error {
	var (
		tx   = [1]xdp.Desc{{Len: uint32(len(p.frame))}}
		rx   [8]xdp.Desc
		cq   [8]uint64
		sock = p.Sockets[0]
	)
	copy(p.UMEM.Bytes(), p.frame)
	for range n {
		for sock.TxPosted() > sock.Completed() {
			sock.Complete(cq[:])
		}
		start := time.Now()
		if sock.Transmit(tx[:]) != 1 {
			return errors.New("pinger: the transmit ring is full")
		}
		if err := sock.Kick(); err != nil {
			return err
		}
		for spins := 1; ; spins++ {
			if got := sock.Receive(rx[:]); got > 0 {
				if err := h.RecordValue(int64(time.Since(start))); err != nil {
					return fmt.Errorf("pinger: %w", err)
				}
				sock.FillDescs(rx[:got])
				break
			}
			if spins%(1<<16) == 0 && time.Since(start) > time.Second {
				return errors.New("pinger: a frame did not come back within a second")
			}
		}
	}
	return nil
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
		restore, err := gen.Pin(r.genCPU)
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

// percentiles are those of the plot; the last has fifty samples beyond it.
var percentiles = [...]float64{50, 75, 90, 99, 99.9}

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
	plot := report.Plot{Title: "Round trips of 64 bytes, by percentile", X: "of so many round trips, one takes longer", Y: "us", LogX: true, LogY: true}
	all := map[string][len(percentiles)][]float64{}
	defer func() {
		for _, name := range []string{"lane", "c"} {
			for i, q := range percentiles {
				plot.At(name, 100/(100-q), all[name][i])
			}
		}
		rep.Plots = append(rep.Plots, plot)
	}()
	for round := range o.Rounds {
		if err := ctx.Err(); err != nil {
			return err
		}
		var a, b *hdrhistogram.Histogram
		err := r.inQuiet(ctx, func() (err error) {
			a, err = r.echo(func() (*peers.Process, error) {
				return peers.Launch(r.dev, "lane", lane, r.target(peers.Reflect))
			}, size)
			return
		})
		if err != nil {
			return fmt.Errorf("echo/lane: %w", err)
		}
		err = r.inQuiet(ctx, func() (err error) {
			b, err = r.echo(func() (*peers.Process, error) { return peers.LaunchC(r.dev, c, r.target(peers.Reflect)) }, size)
			return
		})
		if err != nil {
			return fmt.Errorf("echo/c: %w", err)
		}
		for name, h := range map[string]*hdrhistogram.Histogram{"lane": a, "c": b} {
			rounds := all[name]
			for i, q := range percentiles {
				rounds[i] = append(rounds[i], float64(h.ValueAtQuantile(q))/1e3)
			}
			all[name] = rounds
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
			Load: report.LoadAverage(),
		}, ours[i], theirs[i])
	}
	return nil
}
