package native

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"gradnic/aggregation"
	"gradnic/dataplane"
)

// Jobs of any shape under any accident: loss, doubles, reordering, late workers, kills, several calls in flight. The
// results are those of the definition, to the bit.
func TestAnyAccident(t *testing.T) {
	cases := 25
	if *soak {
		cases = 1000
	}
	for seed := range cases {
		// A test of its own, so that its NIC is gone before the next one's.
		if !t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { anyAccident(t, seed) }) {
			return
		}
	}
}

func anyAccident(t *testing.T, seed int) {
	rnd := rand.New(rand.NewPCG(uint64(seed), 99))
	spec := dataplane.JobSpec{
		Workers: 1 + rnd.IntN(5), Slots: 1 + rnd.IntN(40), Elements: 1 + rnd.IntN(64),
		Native: &dataplane.NativeSpec{
			Type: []aggregation.Type{aggregation.Int32, aggregation.Float32}[rnd.IntN(2)], Op: aggregation.Op(rnd.IntN(4)),
			Order: aggregation.Ranked, Policy: aggregation.Policy(rnd.IntN(2)), Deadline: 20 * time.Second,
		},
	}
	if seed%2 == 1 {
		spec.Native.Keys = testKeys(spec.Workers)
	}
	bad := dataplane.Impairment{IngressLoss: rnd.Float64() / 8, EgressLoss: rnd.Float64() / 8, Duplicate: rnd.Float64() / 4, Reorder: rnd.Float64() / 4, ReorderBy: 1 + rnd.IntN(9)}
	impair := func(int) dataplane.Impairment { return bad }
	kills := rnd.IntN(4)
	r := newRig(t, spec)
	r.stop()
	r.cfg.Lanes, r.cfg.Seed = 1+rnd.IntN(3), uint64(seed)
	r.start(impair)
	ws := r.join()
	quit := make(chan struct{})
	killer := make(chan struct{})
	go func() {
		defer close(killer)
		for range kills {
			select {
			case <-quit:
				return
			case <-time.After(time.Duration(rnd.IntN(30)) * time.Millisecond):
				r.kill(impair)
			}
		}
	}()
	defer func() { // also when a call failed
		close(quit)
		<-killer
		for _, w := range ws {
			w.Close()
		}
		if t.Failed() {
			t.Logf("seed %d: %+v %+v, %d kills", seed, spec, bad, kills)
		}
	}()
	if spec.Native.Type == aggregation.Int32 {
		accident[int32](t, r, ws, uint64(seed))
	} else {
		accident[float32](t, r, ws, uint64(seed))
	}
}

func accident[T Element](t *testing.T, r *rig, ws []*Worker, seed uint64) {
	t.Helper()
	const calls = 3
	var in, out [calls][][]T
	for k := range calls {
		rnd := rand.New(rand.NewPCG(seed, uint64(k)))
		n := rnd.IntN(60 * r.spec.Elements)
		for i := range ws {
			in[k], out[k] = append(in[k], random[T](seed+uint64(i*calls+k), n)), append(out[k], make([]T, n))
		}
	}
	each(t, len(ws), func(ctx context.Context, i int) error {
		var ps []*Pending
		for k := range calls {
			p, err := StartAllReduce(ws[i], out[k][i], in[k][i])
			if err != nil {
				return err
			}
			ps = append(ps, p)
			time.Sleep(time.Duration(i) * time.Millisecond)
		}
		for _, p := range ps {
			if _, err := p.Wait(ctx); err != nil {
				return err
			}
		}
		return nil
	})
	for k := range calls {
		compare(t, r, in[k], out[k])
	}
}
