package native

import (
	"context"
	"flag"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"gradnic/aggregation"
	"gradnic/dataplane"
)

var soak = flag.Bool("soak", false, "case 7 with 64 MiB")

// Case 7: the NIC is killed ten times during one all-reduce, at points spread over the run; every other time it dies
// between two copies of one result, so that some workers have it and others do not. Bit-equal to an undisturbed run.
func TestKilledTenTimes(t *testing.T) {
	n := 1 << 21 // 8 MiB: long enough, on a fast machine too, that most kills come while it runs
	if *soak {
		n = 1 << 24
	}
	t.Run("int32", func(t *testing.T) { killed[int32](t, n, aggregation.Int32, aggregation.Arrival) })
	t.Run("float32 ranked", func(t *testing.T) { killed[float32](t, n, aggregation.Float32, aggregation.Ranked) })
}

func killed[T Element](t *testing.T, n int, typ aggregation.Type, order aggregation.Order) {
	const kills = 10
	r := newRig(t, dataplane.JobSpec{Workers: 4, Elements: 256, Slots: 128, Native: &dataplane.NativeSpec{Type: typ, Order: order, Deadline: 20 * time.Second}})
	ws := r.join()
	in, out := make([][]T, 4), make([][]T, 4)
	for i := range ws {
		in[i], out[i] = random[T](uint64(i), n), make([]T, n)
	}
	var ended atomic.Int32
	during := 0
	done := make(chan struct{})
	go func() {
		defer close(done)
		rnd := rand.New(rand.NewPCG(4, 4))
		chunks := n / 256
		for k := range kills {
			// Wait until a part of the run is done.
			for ws[0].progress() < uint64(chunks*(k+1)/(kills+2)) && ended.Load() == 0 {
				time.Sleep(200 * time.Microsecond)
			}
			if ended.Load() == 0 {
				during++
			}
			var impair func(port int) dataplane.Impairment
			if k%2 == 0 {
				// The next NIC sends this many frames to each worker and then dies: to the first ones of the group
				// one more than to the others.
				cut, first := uint64(rnd.IntN(300)+1), rnd.IntN(3)+1
				impair = func(port int) dataplane.Impairment {
					if port < first {
						return dataplane.Impairment{CutEgress: cut + 1}
					}
					return dataplane.Impairment{CutEgress: cut}
				}
			}
			r.kill(impair)
			if impair != nil { // it has died on its own; nobody is to wait for it for long
				time.Sleep(100 * time.Millisecond)
				r.kill(nil)
			}
		}
	}()
	each(t, 4, func(ctx context.Context, i int) error {
		_, err := AllReduce(ctx, ws[i], out[i], in[i])
		ended.Add(1)
		return err
	})
	<-done
	if r.kills < kills || during < kills/2 {
		t.Errorf("killed %d times, %d rounds of it while the all-reduce ran", r.kills, during)
	}
	compare(t, r, in, out)
	var c Counts
	for _, w := range ws {
		x := w.Counts()
		c.Supplied += x.Supplied
		c.Relayed += x.Relayed
		c.Epochs = max(c.Epochs, x.Epochs)
	}
	t.Logf("killed %d times, %d epochs seen, %d results supplied, %d relayed", r.kills, c.Epochs, c.Supplied, c.Relayed)
	if c.Supplied == 0 || c.Relayed == 0 {
		t.Error("no result had to be supplied: the points of death were not where they should be")
	}
	// And the job goes on.
	allReduce[T](t, r, ws, 1000)
}

// A worker that has returned from its call still has the results that another lacks.
func TestKilledAfterOneReturned(t *testing.T) {
	r := newRig(t, dataplane.JobSpec{Workers: 2, Elements: 16, Slots: 8, Native: &dataplane.NativeSpec{Type: aggregation.Float32, Order: aggregation.Arrival}})
	r.stop()
	ports := func(cut uint64) func(port int) dataplane.Impairment {
		return func(port int) dataplane.Impairment {
			if port == 1 {
				return dataplane.Impairment{CutEgress: cut}
			}
			return dataplane.Impairment{}
		}
	}
	r.start(ports(3)) // rank 1 is told to wait and to go; of its results it gets few or none
	ws := r.join()
	in := [][]float32{random[float32](1, 100), random[float32](2, 100)}
	out := [][]float32{make([]float32, 100), make([]float32, 100)}
	returned := make(chan struct{})
	each(t, 2, func(ctx context.Context, i int) error {
		if i == 0 {
			src, dst := slices.Clone(in[0]), make([]float32, len(in[0]))
			_, err := AllReduce(ctx, ws[0], dst, src)
			copy(out[0], dst)
			clear(src) // the arrays are the caller's again
			clear(dst)
			close(returned)
			return err
		}
		p, err := StartAllReduce(ws[1], out[1], in[1])
		if err != nil {
			return err
		}
		<-returned
		r.kill(nil)
		_, err = p.Wait(ctx)
		return err
	})
	compare(t, r, in, out)
	if ws[0].Counts().Supplied == 0 || ws[1].Counts().Relayed == 0 {
		t.Errorf("%+v %+v", ws[0].Counts(), ws[1].Counts())
	}
}
