package native

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"gradnic/aggregation"
	"gradnic/dataplane"
	"gradnic/wire/inet"
	wire "gradnic/wire/native"
)

// scatters runs reduce-scatters, all-gathers and broadcasts in flight at a time, and compares every bit with what the definition gives.
// Parts begin anywhere in packets.
func scatters(t *testing.T, ws []*Worker, seed uint64, calls, most int, pause time.Duration) {
	t.Helper()
	n := len(ws)
	rnd := rand.New(rand.NewPCG(seed, 7))
	type one struct {
		kind, root int
		part       int
		in         [][]int32 // by rank
		out        [][]int32
	}
	all := make([]one, calls)
	for k := range all {
		c := &all[k]
		c.kind, c.root, c.part = rnd.IntN(3), rnd.IntN(n), rnd.IntN(most)
		for r := range n {
			size := [3][2]int{{n * c.part, c.part}, {c.part, n * c.part}, {c.part, c.part}}[c.kind]
			c.in = append(c.in, random[int32](seed+uint64(100*k+r), size[0]))
			c.out = append(c.out, make([]int32, size[1]))
		}
	}
	each(t, n, func(ctx context.Context, r int) error {
		var ps []*Pending
		for k := range all {
			c := &all[k]
			var p *Pending
			var err error
			switch c.kind {
			case 0:
				p, err = startReduceScatter(ws[r], c.out[r], c.in[r])
			case 1:
				p, err = startAllGather(ws[r], c.out[r], c.in[r])
			case 2:
				if r == c.root {
					copy(c.out[r], c.in[r])
				}
				p, err = startBroadcast(ws[r], c.out[r], c.root)
			}
			if err != nil {
				return err
			}
			ps = append(ps, p)
			time.Sleep(pause * time.Duration(rand.IntN(3)))
		}
		for k, p := range ps {
			if _, err := p.Wait(ctx); err != nil {
				return fmt.Errorf("call %d: %w", k, err)
			}
		}
		return nil
	})
	for k := range all {
		c := &all[k]
		for r := range n {
			want := make([]int32, len(c.out[r]))
			for i := range want {
				switch c.kind {
				case 0:
					for w := range n {
						want[i] += c.in[w][r*c.part+i]
					}
				case 1:
					want[i] = c.in[i/c.part][i%c.part]
				case 2:
					want[i] = c.in[c.root][i]
				}
			}
			if !slices.Equal(c.out[r], want) {
				t.Fatalf("call %d of kind %d with parts of %d, root %d: rank %d has not what it should", k, c.kind, c.part, c.root, r)
			}
		}
	}
}

// Parts of every size over a network that loses, doubles and reorders, loses its memory up to five times, and dies between two
// copies of one result: what each worker gets is exact.
func TestPartsUnderAccidents(t *testing.T) {
	cases := 12
	if *soak {
		cases = 1000
	}
	var again, supplied uint64
	// On a busy machine the memory may not be lost at a point where it matters; then there are more cases.
	for seed := 0; seed < cases || seed < 5*cases && (again == 0 || supplied == 0); seed++ {
		if !t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(uint64(seed), 31))
			spec := dataplane.JobSpec{
				Workers: 2 + rnd.IntN(4), Slots: 1 + rnd.IntN(40), Elements: 1 + rnd.IntN(30),
				Native: &dataplane.NativeSpec{Type: aggregation.Int32, Order: aggregation.Order(rnd.IntN(2)), Policy: aggregation.Propagate, Deadline: 20 * time.Second},
			}
			if seed%4 == 1 {
				spec.Native.Keys = testKeys(spec.Workers)
			}
			if seed%4 == 2 {
				spec.Multicast = &dataplane.MulticastSpec{IP: inet.Addr{239, 7, 7, 7}}
			}
			bad := dataplane.Impairment{IngressLoss: rnd.Float64() / 8, EgressLoss: rnd.Float64() / 8, Duplicate: rnd.Float64() / 4, Reorder: rnd.Float64() / 4, ReorderBy: 1 + rnd.IntN(9)}
			r := newRig(t, spec)
			r.stop()
			r.cfg.Lanes, r.cfg.Seed = 1+rnd.IntN(3), uint64(seed)
			r.start(func(int) dataplane.Impairment { return bad })
			ws := make([]*Worker, spec.Workers)
			each(t, len(ws), func(ctx context.Context, i int) (err error) {
				cfg := r.config(i)
				cfg.Timeout, cfg.MinTimeout, cfg.MaxTimeout = 10*time.Millisecond, 4*time.Millisecond, 40*time.Millisecond
				ws[i], err = Join(ctx, cfg)
				return err
			})
			for _, w := range ws {
				t.Cleanup(func() { w.Close() })
			}
			var ended atomic.Bool
			killer := make(chan struct{})
			go func() {
				defer close(killer)
				for range 1 + rnd.IntN(5) {
					time.Sleep(time.Duration(1+rnd.IntN(25)) * time.Millisecond)
					if ended.Load() {
						return
					}
					cut, first := uint64(rnd.IntN(60)+1), rnd.IntN(spec.Workers)
					r.kill(func(port int) dataplane.Impairment {
						im := bad
						im.CutEgress = cut
						if port == first {
							im.CutEgress++
						}
						return im
					})
					time.Sleep(30 * time.Millisecond)
					r.kill(func(int) dataplane.Impairment { return bad })
				}
			}()
			scatters(t, ws, uint64(seed), 8, 30*spec.Elements/spec.Workers+2, time.Millisecond)
			ended.Store(true)
			<-killer
			for _, w := range ws {
				c := w.Counts()
				supplied += c.Supplied
				again += c.Again
			}
			allReduce[int32](t, r, ws, 500) // and the job goes on
		}) {
			return
		}
	}
	t.Logf("%d results supplied, %d contributions to results that were lost", supplied, again)
	if again == 0 || supplied == 0 {
		t.Error("no memory was lost at a point where it mattered")
	}
}

// The worker that has use for a result is the one whom it did not reach before the memory was lost: the others have the result without
// values, and have overwritten their arrays. They contribute once more.
func TestPartLostByItsOnlyTaker(t *testing.T) {
	r := newRig(t, dataplane.JobSpec{Workers: 3, Elements: 16, Slots: 8, Native: &dataplane.NativeSpec{Type: aggregation.Float32, Order: aggregation.Ranked}})
	ws := r.join()
	if err := r.nic.Impair("m2", dataplane.Impairment{EgressLoss: 1}); err != nil {
		t.Fatal(err)
	}
	in, out := make([][]float32, 3), make([][]float32, 3)
	src := make([][]float32, 3)
	for i := range in {
		in[i], out[i] = random[float32](uint64(i), 3*40), make([]float32, 40)
		src[i] = slices.Clone(in[i])
	}
	stuck := make(chan struct{})
	each(t, 3, func(ctx context.Context, i int) error {
		p, err := startReduceScatter(ws[i], out[i], src[i])
		if err != nil {
			return err
		}
		if i == 0 {
			// All but rank 2 have all results, and those of rank 2's part without values.
			for (ws[0].progress() < 8 || ws[1].progress() < 8) && ctx.Err() == nil {
				time.Sleep(time.Millisecond)
			}
			clear(src[0])
			clear(src[1])
			close(stuck)
		}
		if i == 2 {
			<-stuck
			r.kill(nil)
		}
		_, err = p.Wait(ctx)
		return err
	})
	full := make([][]float32, 3)
	for i := range full {
		full[i] = make([]float32, 3*40)
		for k := range out {
			copy(full[i][40*k:], out[k])
		}
	}
	compare(t, r, in, full)
	var again uint64
	for _, w := range ws {
		again += w.Counts().Again
	}
	if again == 0 {
		t.Error("nobody contributed once more")
	}
}

// What goes over the wire: a reduce-scatter brings each worker its own part alone, an all-gather takes from each its own part
// alone.
func TestPartsOnTheWire(t *testing.T) {
	const n, packets = 4, 25
	for _, full := range []bool{false, true} {
		r := newRig(t, dataplane.JobSpec{Workers: n, Elements: 256, Slots: 64, Native: &dataplane.NativeSpec{}})
		var up, down [n]atomic.Int64
		for i, c := range r.cables {
			c.tap = func(fromWorker bool, frame []byte) {
				if fromWorker {
					up[i].Add(int64(len(frame)))
				} else {
					down[i].Add(int64(len(frame)))
				}
			}
		}
		ws := make([]*Worker, n)
		each(t, n, func(ctx context.Context, i int) (err error) {
			cfg := r.config(i)
			cfg.Full, cfg.Timeout, cfg.MinTimeout, cfg.MaxTimeout = full, time.Second, time.Second, time.Second
			ws[i], err = Join(ctx, cfg)
			return err
		})
		for _, w := range ws {
			t.Cleanup(func() { w.Close() })
		}
		v := random[int32](1, n*packets*256)
		measure := func(what string, f func(ctx context.Context, i int) error, wantUp, wantDown int64) {
			for i := range n {
				up[i].Store(0)
				down[i].Store(0)
			}
			each(t, n, f)
			for i := range n {
				if up[i].Load() < wantUp || up[i].Load() > wantUp+wantUp/20 || down[i].Load() < wantDown || down[i].Load() > wantDown+wantDown/20 {
					t.Errorf("%s, whole arrays %v, rank %d: %d bytes up, want %d, %d down, want %d", what, full, i, up[i].Load(), wantUp, down[i].Load(), wantDown)
				}
			}
			t.Logf("%s, whole arrays %v: %d bytes up, %d down", what, full, up[0].Load(), down[0].Load())
		}
		bare, whole := int64(wire.FrameLen(0)), int64(wire.FrameLen(4*256))
		all := n * packets * whole
		part := packets*whole + (n-1)*packets*bare
		if full {
			part = all
		}
		measure("reduce-scatter", func(ctx context.Context, i int) error {
			_, err := ReduceScatter(ctx, ws[i], make([]int32, packets*256), v)
			return err
		}, all, part)
		measure("all-gather", func(ctx context.Context, i int) error {
			_, err := AllGather(ctx, ws[i], make([]int32, len(v)), v[:packets*256])
			return err
		}, part, all)
		measure("all-reduce", func(ctx context.Context, i int) error {
			_, err := AllReduce(ctx, ws[i], make([]int32, len(v)), v)
			return err
		}, all, all)
	}
}
