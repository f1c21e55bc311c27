package native

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"gradnic/aggregation"
	"gradnic/dataplane"
	"gradnic/wire/inet"
	wire "gradnic/wire/native"
)

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		child()
		return
	}
	goleak.VerifyTestMain(m)
}

// random fills values whose bits are any.
func random[T Element](seed uint64, n int) []T {
	r := rand.New(rand.NewPCG(seed, uint64(n)))
	v := make([]T, n)
	b := make([]byte, 8*n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	get(v, b)
	return v
}

// allReduce runs one all-reduce on a job of T and compares every bit with the definition of the order by rank.
func allReduce[T Element](t *testing.T, r *rig, ws []*Worker, n int) {
	t.Helper()
	in, out := make([][]T, len(ws)), make([][]T, len(ws))
	for i := range ws {
		in[i] = random[T](uint64(i+1), n)
		out[i] = make([]T, n)
	}
	each(t, len(ws), func(ctx context.Context, i int) error {
		_, err := AllReduce(ctx, ws[i], out[i], in[i])
		return err
	})
	compare(t, r, in, out)
}

func compare[T Element](t *testing.T, r *rig, in, out [][]T) {
	t.Helper()
	n := len(in[0])
	if n == 0 {
		return
	}
	x := r.spec.Native
	spec := aggregation.Spec{
		Rule: aggregation.Rounds, Workers: len(in), Slots: 1, Elements: min(n, aggregation.MaxElements), Type: x.Type,
		ByteOrder: aggregation.LittleEndian, Op: x.Op, Order: aggregation.Ranked, Policy: x.Policy,
	}
	size := spec.WireBytes() / spec.Elements
	for lo := 0; lo < n; lo += spec.Elements {
		hi := min(lo+spec.Elements, n)
		parts := make([][]byte, len(in))
		for i := range in {
			parts[i] = make([]byte, spec.WireBytes())
			put(parts[i], in[i][lo:hi])
		}
		want := make([]byte, spec.WireBytes())
		if _, err := aggregation.Reference(spec, parts, want); err != nil {
			t.Fatal(err)
		}
		for i := range out {
			got := make([]byte, spec.WireBytes())
			put(got, out[i][lo:hi])
			if !slices.Equal(got[:(hi-lo)*size], want[:(hi-lo)*size]) {
				t.Fatalf("rank %d, elements %d to %d of %v are not bit-equal", i, lo, hi, x.Type)
			}
		}
	}
}

// Every type and operation, at lengths around multiples of a packet (case 4), in order by rank: bit-equal.
func TestTypesOperationsLengths(t *testing.T) {
	run := func(typ aggregation.Type, op aggregation.Op, policy aggregation.Policy, f func(t *testing.T, r *rig, ws []*Worker, n int)) {
		t.Run(fmt.Sprintf("%v %v %v", typ, op, policy), func(t *testing.T) {
			r := newRig(t, dataplane.JobSpec{Workers: 3, Slots: 2, Elements: 10, Native: &dataplane.NativeSpec{Type: typ, Op: op, Order: aggregation.Ranked, Policy: policy}})
			ws := r.join()
			for k := range 5 {
				for d := -1; d <= 1; d++ {
					if n := 10*k + d; n >= 0 {
						f(t, r, ws, n)
					}
				}
			}
		})
	}
	for op := aggregation.Sum; op <= aggregation.Max; op++ {
		for _, policy := range []aggregation.Policy{aggregation.Propagate, aggregation.Saturate} {
			run(aggregation.Int32, op, policy, allReduce[int32])
			run(aggregation.Int64, op, policy, allReduce[int64])
			run(aggregation.Int8, op, policy, allReduce[int8])
			run(aggregation.Float32, op, policy, allReduce[float32])
			run(aggregation.Float64, op, policy, allReduce[float64])
			run(aggregation.Float16, op, policy, allReduce[uint16])
			run(aggregation.BFloat16, op, policy, allReduce[uint16])
		}
	}
}

// Frames of 1500 and of nearly 4096 bytes.
func TestFullFrames(t *testing.T) {
	for _, c := range []struct{ chunk, elements int }{{2048, 360}, {4096, 940}} {
		r := newRig(t, dataplane.JobSpec{Workers: 1, Native: &dataplane.NativeSpec{}})
		r.stop()
		r.cfg.ChunkSize, r.spec.Elements, r.spec.Workers = c.chunk, c.elements, 2
		r.cables = append(r.cables, &cable{})
		r.start(nil)
		ws := r.join()
		allReduce[int32](t, r, ws, 3*c.elements+1)
	}
}

func TestLossDuplicationReordering(t *testing.T) {
	for _, lanes := range []int{1, 2} {
		r := newRig(t, dataplane.JobSpec{Workers: 4, Native: &dataplane.NativeSpec{Type: aggregation.Float32, Order: aggregation.Ranked}})
		r.stop()
		r.cfg.Lanes = lanes
		r.start(func(int) dataplane.Impairment {
			return dataplane.Impairment{IngressLoss: 0.1, EgressLoss: 0.1, Duplicate: 0.1, Reorder: 0.1, ReorderBy: 5}
		})
		ws := r.join()
		for _, n := range []int{1, 1000, 20000} {
			allReduce[float32](t, r, ws, n)
		}
		c := ws[0].Counts()
		if c.Resent == 0 {
			t.Errorf("nothing was lost: %+v", c)
		}
	}
}

func TestCollectives(t *testing.T) {
	for _, typ := range []aggregation.Type{aggregation.Int32, aggregation.Float32} {
		for op := aggregation.Sum; op <= aggregation.Max; op++ {
			for _, policy := range []aggregation.Policy{aggregation.Propagate, aggregation.Saturate} {
				if op == aggregation.Mean {
					continue
				}
				r := newRig(t, dataplane.JobSpec{Workers: 3, Elements: 7, Native: &dataplane.NativeSpec{Type: typ, Op: op, Policy: policy}})
				ws := r.join()
				if typ == aggregation.Int32 {
					collectives[int32](t, ws, random[int32](3, 3*25))
				} else {
					v := random[float32](3, 3*25)
					for i := range v { // NaN is not kept to the bit
						if v[i] != v[i] || v[i]-v[i] != 0 {
							v[i] = 0
						}
					}
					v[0], v[30] = float32(negZero()), 0
					collectives(t, ws, v)
				}
			}
		}
	}
	r := newRig(t, dataplane.JobSpec{Workers: 1, Native: &dataplane.NativeSpec{Op: aggregation.Mean}})
	ws := r.join()
	if _, err := Broadcast(t.Context(), ws[0], make([]int32, 3), 0); err == nil || !strings.Contains(err.Error(), "mean") {
		t.Errorf("broadcast over means: %v", err)
	}
	if _, err := AllReduce(t.Context(), ws[0], make([]float32, 3), make([]float32, 3)); err == nil {
		t.Error("float32 over a job of int32")
	}
}

func negZero() float64 { z := 0.0; return -z * 1 }

func collectives[T Element](t *testing.T, ws []*Worker, v []T) {
	t.Helper()
	n := len(v) / len(ws)
	each(t, len(ws), func(ctx context.Context, i int) error {
		all := make([]T, len(v))
		// Nothing befalls what is only copied, also where infinities are clamped.
		stats, err := AllGather(ctx, ws[i], all, v[i*n:(i+1)*n])
		if err == nil && stats.Flags != 0 {
			err = fmt.Errorf("all-gather: flags %v", stats.Flags)
		}
		if err != nil {
			return err
		}
		if !same(all, v) {
			return fmt.Errorf("gathered %v, want %v", all, v)
		}
		for root := range ws {
			buf := make([]T, len(v))
			if i == root {
				copy(buf, v)
			}
			stats, err := Broadcast(ctx, ws[i], buf, root)
			if err == nil && stats.Flags != 0 {
				err = fmt.Errorf("broadcast: flags %v", stats.Flags)
			}
			if err != nil {
				return err
			}
			if !same(buf, v) {
				return fmt.Errorf("broadcast gave %v, want %v", buf, v)
			}
		}
		sum, part := make([]T, len(v)), make([]T, n)
		if _, err := AllReduce(ctx, ws[i], sum, v); err != nil {
			return err
		}
		if _, err := ReduceScatter(ctx, ws[i], part, v); err != nil {
			return err
		}
		if !same(part, sum[i*n:(i+1)*n]) {
			return fmt.Errorf("scattered %v, want %v", part, sum[i*n:(i+1)*n])
		}
		_, err = Barrier(ctx, ws[i])
		return err
	})
}

// same compares bits.
func same[T Element](a, b []T) bool {
	x, y := make([]byte, 8*len(a)), make([]byte, 8*len(b))
	put(x, a)
	put(y, b)
	return slices.Equal(x, y)
}

// A barrier holds until the last worker comes.
func TestBarrierHolds(t *testing.T) {
	r := newRig(t, dataplane.JobSpec{Workers: 3, Native: &dataplane.NativeSpec{}})
	ws := r.join()
	began := time.Now()
	each(t, 3, func(ctx context.Context, i int) error {
		if i == 2 {
			time.Sleep(150 * time.Millisecond)
		}
		_, err := Barrier(ctx, ws[i])
		if took := time.Since(began); took < 150*time.Millisecond {
			return fmt.Errorf("left after %v", took)
		}
		return err
	})
}

// Several collectives in flight, of different kinds; results come right whatever the order they end in.
func TestSeveralInFlight(t *testing.T) {
	r := newRig(t, dataplane.JobSpec{Workers: 4, Slots: 16, Elements: 8, Native: &dataplane.NativeSpec{}})
	ws := r.join()
	const calls = 20
	in := make([][][]int32, calls)
	out := make([][][]int32, calls)
	for k := range in {
		in[k], out[k] = make([][]int32, 4), make([][]int32, 4)
		for i := range ws {
			in[k][i], out[k][i] = random[int32](uint64(k*10+i), 50*k), make([]int32, 50*k)
		}
	}
	each(t, 4, func(ctx context.Context, i int) error {
		var ps []*Pending
		for k := range in {
			p, err := StartAllReduce(ws[i], out[k][i], in[k][i])
			if err != nil {
				return err
			}
			ps = append(ps, p)
		}
		for k := len(ps) - 1; k >= 0; k-- {
			if _, err := ps[k].Wait(ctx); err != nil {
				return err
			}
		}
		return nil
	})
	for k := range in {
		compare(t, r, in[k], out[k])
	}
}

// Results by one multicast frame a port.
func TestMulticastResults(t *testing.T) {
	r := newRig(t, dataplane.JobSpec{Workers: 4, Native: &dataplane.NativeSpec{}, Multicast: &dataplane.MulticastSpec{IP: inet.Addr{239, 7, 7, 7}}})
	ws := r.join()
	allReduce[int32](t, r, ws, 10000)
	if c := ws[1].Counts(); c.Results == 0 {
		t.Errorf("%+v", c)
	}
}

// A worker dies in the middle (case 6): the others are told, which one, within the deadline, and the slots come back.
// Those that are left can start again with a new one.
func TestDeadWorker(t *testing.T) {
	r := newRig(t, dataplane.JobSpec{Workers: 4, Native: &dataplane.NativeSpec{Deadline: 300 * time.Millisecond}})
	ws := r.join()
	allReduce[int32](t, r, ws, 1000)
	r.cables[2].port.Store(nil) // it is heard of no more
	began := time.Now()
	each(t, 4, func(ctx context.Context, i int) error {
		if i == 2 {
			return nil
		}
		_, err := AllReduce(ctx, ws[i], make([]int32, 1000), make([]int32, 1000))
		var e *Ended
		if !errors.Is(err, ErrAborted) || !errors.As(err, &e) || !slices.Equal(e.Ranks, []int{2}) {
			return fmt.Errorf("the error is %w", err)
		}
		return nil
	})
	if took := time.Since(began); took < 300*time.Millisecond || took > 3*time.Second {
		t.Errorf("told after %v", took)
	}
	st, err := r.nic.Job("j")
	if err != nil || st.Use.InUse != 0 || st.State.State != "aborted" {
		t.Fatalf("%+v %v", st, err)
	}
	for _, w := range ws {
		w.Close()
	}
	r.kill(nil)
	allReduce[int32](t, r, r.join(), 500)
}

// A worker whose caller loses patience tells the others.
func TestGiveUp(t *testing.T) {
	r := newRig(t, dataplane.JobSpec{Workers: 3, Native: &dataplane.NativeSpec{Deadline: time.Minute}})
	ws := r.join()
	each(t, 3, func(ctx context.Context, i int) error {
		switch i {
		case 0:
			return nil // it does not come
		case 1:
			short, cancel := context.WithTimeout(ctx, 400*time.Millisecond)
			defer cancel()
			_, err := AllReduce(short, ws[i], make([]int32, 10), make([]int32, 10))
			if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "[0]") {
				return fmt.Errorf("the error is %w", err)
			}
		case 2:
			_, err := AllReduce(ctx, ws[i], make([]int32, 10), make([]int32, 10))
			var e *Ended
			if !errors.As(err, &e) || !slices.Equal(e.Ranks, []int{1}) {
				return fmt.Errorf("the error is %w", err)
			}
		}
		return nil
	})
	// The same job again, in a new life, with new workers.
	for _, w := range ws {
		w.Close()
	}
	allReduce[int32](t, r, r.join(), 100)
}

// After two seconds it is said which of the two it is: no answer at all, or others that have not come.
func TestJoinSaysWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	r := newRig(t, dataplane.JobSpec{Workers: 3, Native: &dataplane.NativeSpec{}})
	for rank, c := range map[int]struct {
		nic  inet.Addr
		says string
	}{
		1: {nicIP, "job 1 at NIC 10.50.0.254: the NIC answers, and waits for ranks [0 2]"},
		2: {inet.Addr{10, 50, 0, 99}, "job 1 at NIC 10.50.0.99: no answer from the NIC, "},
	} {
		t.Run(c.nic.String(), func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			cfg, said := r.config(rank), ""
			cfg.NIC = c.nic
			cfg.Waiting = func(what string) { said = what; cancel() }
			begin := time.Now()
			if _, err := Join(ctx, cfg); !errors.Is(err, context.Canceled) || !strings.HasPrefix(said, c.says) || time.Since(begin) < 2*time.Second {
				t.Errorf("after %v: %v, said %q, want %q", time.Since(begin), err, said, c.says)
			}
		})
	}
}

func TestJoinNamesWhoIsMissing(t *testing.T) {
	r := newRig(t, dataplane.JobSpec{Workers: 3, Native: &dataplane.NativeSpec{}})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := Join(ctx, r.config(1))
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "[0 2]") {
		t.Errorf("%v", err)
	}
	cfg := r.config(0)
	cfg.NIC = inet.Addr{10, 50, 0, 99}
	ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err = Join(ctx, cfg); err == nil || !strings.Contains(err.Error(), "no answer") {
		t.Errorf("%v", err)
	}
}

// Workers that make different calls are told, instead of being given wrong sums.
func TestDifferentLengths(t *testing.T) {
	r := newRig(t, dataplane.JobSpec{Workers: 2, Native: &dataplane.NativeSpec{}})
	ws := r.join()
	failed := make([]error, 2)
	each(t, 2, func(ctx context.Context, i int) error {
		n := 10 + i
		_, failed[i] = AllReduce(ctx, ws[i], make([]int32, n), make([]int32, n))
		return nil
	})
	if failed[0] == nil && failed[1] == nil {
		t.Error("nobody noticed")
	}
}

// A worker that started anew while the others go on.
func TestWorkerStartsAnew(t *testing.T) {
	r := newRig(t, dataplane.JobSpec{Workers: 2, Native: &dataplane.NativeSpec{}})
	ws := r.join()
	allReduce[int32](t, r, ws, 1000)
	ws[1].Close()
	got := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	go func() {
		w, err := Join(ctx, r.config(1))
		if err == nil {
			t.Cleanup(func() { w.Close() })
		}
		got <- err
	}()
	_, err := AllReduce(ctx, ws[0], make([]int32, 10), make([]int32, 10))
	var e *Ended
	if !errors.Is(err, ErrOutOfStep) || !errors.As(err, &e) || !slices.Equal(e.Ranks, []int{1}) {
		t.Errorf("the error is %v", err)
	}
	ws[0].Close()
	w, err := Join(ctx, r.config(0)) // and now both are new
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := <-got; err != nil {
		t.Fatal(err)
	}
}

func TestFlagsAreTold(t *testing.T) {
	r := newRig(t, dataplane.JobSpec{Workers: 2, Native: &dataplane.NativeSpec{Type: aggregation.Int32}})
	ws := r.join()
	each(t, 2, func(ctx context.Context, i int) error {
		s, err := AllReduce(ctx, ws[i], make([]int32, 1), []int32{1 << 30})
		if err == nil && s.Flags != wire.FlagWrapped {
			err = fmt.Errorf("flags %#x", s.Flags)
		}
		return err
	})
}

// Steady state allocates nothing for a packet: not in the worker, and not in the NIC beside it.
func TestNoAllocationPerPacket(t *testing.T) {
	if underRace {
		t.Skip("the race detector allocates")
	}
	r := newRig(t, dataplane.JobSpec{Workers: 2, Native: &dataplane.NativeSpec{}})
	ws := r.join()
	run := func(packets int) float64 {
		n := 64 * packets
		a, b := make([]int32, n), make([]int32, n)
		return testing.AllocsPerRun(3, func() {
			each(t, 2, func(ctx context.Context, i int) error {
				v := a
				if i == 1 {
					v = b
				}
				_, err := AllReduce(ctx, ws[i], v, v)
				return err
			})
		})
	}
	run(100)
	few, many := run(100), run(4000)
	if many-few > 200 {
		t.Errorf("%.0f allocations for 100 packets a worker, %.0f for 4000", few, many)
	}
}
