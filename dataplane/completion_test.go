package dataplane

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Every time is in the one bucket whose bounds hold it, and quantiles are bounds that hold.
func TestCompletionsCount(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		times := rapid.SliceOf(rapid.OneOf(rapid.Int64Range(-5, 5_000), rapid.Int64Range(0, 1<<40))).Draw(r, "times")
		var c, other completions
		for i, ns := range times {
			if i%2 == 0 {
				c.add(ns)
			} else {
				other.add(ns)
			}
		}
		c.merge(&other)
		p := c.public()
		var sum time.Duration
		below := func(bound time.Duration) (n uint64) {
			for _, ns := range times {
				if bound == 0 || max(ns, 0) < int64(bound) {
					n++
				}
			}
			return n
		}
		for _, ns := range times {
			sum += time.Duration(max(ns, 0))
		}
		var cumulative uint64
		for _, b := range p.Buckets {
			cumulative += b.Slots
			if want := below(b.Below); cumulative != want {
				r.Errorf("%d below %v, want %d", cumulative, b.Below, want)
			}
		}
		if p.Sum != sum || p.Count() != uint64(len(times)) {
			r.Errorf("sum %v of %d, want %v of %d", p.Sum, p.Count(), sum, len(times))
		}
		for _, q := range []float64{0.01, 0.5, 0.99, 1} {
			at, ok := p.Quantile(q)
			if len(times) == 0 && ok {
				r.Error("a quantile of nothing")
			}
			if ok && float64(below(at)) < q*float64(len(times)) {
				r.Errorf("%v: %d of %d are below %v", q, below(at), len(times), at)
			}
		}
	})
}

// Who is late is seen while it is late, and counted after; how long the others waited is in the histogram.
func TestWhoIsLate(t *testing.T) {
	for _, native := range []bool{false, true} {
		name := map[bool]string{false: "switchml", true: "native"}[native]
		t.Run(name, func(t *testing.T) {
			begin := time.Now()
			var n *NIC
			var ports []*MemPort
			var frame func(rank, slot int) []byte
			if native {
				var ws []*nativeWorker
				n, ws = nativeJob(t, testConfig(), JobSpec{Workers: 2, Slots: 4})
				ports = []*MemPort{ws[0].port, ws[1].port}
				frame = func(rank, slot int) []byte { return ws[rank].contribution(uint32(slot), 0, le32(1, 2, 3, 4)) }
			} else {
				n, ports = memNIC(t, testConfig(), 2)
				install(t, n, JobSpec{Name: "j", Workers: 2, Elements: 64, Slots: 4, Members: members(2, false)})
				frame = func(rank, slot int) []byte { return request(rank, 64, slot, 0, 0, 1) }
			}
			status := func() JobStatus {
				t.Helper()
				st, err := n.Job("j")
				if err != nil {
					t.Fatal(err)
				}
				return st
			}
			received := check(t, n).Total.Received
			put := func(rank, slot int) {
				t.Helper()
				mustSend(t, ports[rank], frame(rank, slot))
				received++
				waitReceived(t, n, received)
			}
			put(0, 0)
			put(0, 1)
			const late = 20 * time.Millisecond
			time.Sleep(late)
			st := status()
			if w := st.Status[1]; w.MissingSince.Before(begin) || time.Since(w.MissingSince) < late {
				t.Errorf("rank 1 is missing since %v, %v ago", w.MissingSince, time.Since(w.MissingSince))
			}
			if w := st.Status[0]; !w.MissingSince.IsZero() {
				t.Errorf("rank 0 is missing since %v", w.MissingSince)
			}
			put(1, 0)
			put(1, 1)
			put(1, 0) // it lost the result
			st = status()
			if a, b := st.Status[0], st.Status[1]; a.Last != 0 || b.Last != 2 || a.Resent != 0 || b.Resent != 1 || !b.MissingSince.IsZero() {
				t.Errorf("rank 0: last %d times, %d resent; rank 1: %d, %d, missing since %v", a.Last, a.Resent, b.Last, b.Resent, b.MissingSince)
			}
			if c := &st.Times; c.Count() != 2 || c.Sum < 2*late || c.Sum > 2*time.Since(begin) {
				t.Errorf("%d slots in %v", c.Count(), c.Sum)
			}
			if at, ok := st.Times.Quantile(0.5); !ok || at < late {
				t.Errorf("half of the slots in %v, %t", at, ok)
			}
			for _, p := range ports {
				drainWire(p)()
			}
		})
	}
}
