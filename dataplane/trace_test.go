package dataplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"testing"
	"time"

	"gradnic/wire/switchml"
)

func startTrace(t testing.TB, n *NIC, o TraceOptions) *Trace {
	t.Helper()
	tr, err := n.Trace(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tr.Close)
	return tr
}

// next reads a frame that must come.
func (t *Trace) next(tb testing.TB) TraceFrame {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	f, err := t.Read(ctx)
	if err != nil {
		tb.Fatal(err)
	}
	return f
}

// A slot's frames are followed to the end, whatever becomes of them, and what is said is what came out of the ports.
func TestTrace(t *testing.T) {
	for _, lanes := range []int{1, 2} {
		t.Run(fmt.Sprintf("lanes=%d", lanes), func(t *testing.T) {
			cfg := testConfig()
			cfg.Lanes = lanes
			n, mem := memNIC(t, cfg, 2)
			install(t, n, JobSpec{Name: "j", Workers: 2, Elements: 64, Slots: 16, Members: members(2, false)})
			tr := startTrace(t, n, TraceOptions{Slot: 5, Count: 7})
			mustSend(t, mem[0], request(0, 64, 4, 0, 0, 1)) // another slot
			// Each frame is waited for, so that with two lanes the order is known.
			mustSend(t, mem[0], request(0, 64, 5, 1, 77, 1))
			f := tr.next(t)
			if f.Message.MAC != workerMAC(0) || f.Message.IP != workerIP(0) || f.Message.UDPPort != 4000 || f.Message.To != switchml.PortBase ||
				f.Message.Slot != 5 || f.Message.Set != 1 || f.Message.Elements != 64 || f.Message.TSI != "4d000000" || f.Length != 308 || f.Port != "m0" {
				t.Errorf("parse: %+v", f)
			}
			if f.Job != "j" || f.Rank != 0 || f.Outcome != "added" || f.Verdict != "contributed" || !reflect.DeepEqual(f.Seen, []int{0}) ||
				!reflect.DeepEqual(f.Waiting, []int{1}) || len(f.Replies) != 0 {
				t.Errorf("added: %+v", f)
			}
			if f.Lane != 5%lanes || f.From != -1 && f.From == f.Lane {
				t.Errorf("lane %d from %d", f.Lane, f.From)
			}
			mustSend(t, mem[0], request(0, 64, 5, 1, 77, 1))
			if f = tr.next(t); f.Outcome != "duplicate" || f.Verdict != "duplicate" {
				t.Errorf("duplicate: %+v", f)
			}
			mustSend(t, mem[1], request(1, 64, 5, 1, 77, 2))
			f = tr.next(t)
			if f.Outcome != "completed" || f.Verdict != "contributed" || !reflect.DeepEqual(f.Seen, []int{0, 1}) || len(f.Waiting) != 0 || len(f.Replies) != 2 {
				t.Fatalf("completed: %+v", f)
			}
			for k, r := range f.Replies {
				if r.Rank != k || r.MAC != workerMAC(k) || r.IP != workerIP(k) || r.UDPPort != 4001 || r.Port != fmt.Sprintf("m%d", k) || r.Length != 308 || !r.Posted || r.Reason != "" {
					t.Errorf("reply %d: %+v", k, r)
				}
				if v := values(recv(t, mem[k])); v[0] != 3 {
					t.Errorf("rank %d got %d", k, v[0])
				}
			}
			// Asked again, lost on the way out.
			if err := n.Impair("m1", Impairment{DropEgress: []uint64{1}}); err != nil {
				t.Fatal(err)
			}
			mustSend(t, mem[1], request(1, 64, 5, 1, 77, 2))
			f = tr.next(t)
			if f.Outcome != "answered" || len(f.Replies) != 1 || f.Replies[0].Posted || f.Replies[0].Reason != "impaired-egress" || f.Verdict != "duplicate" {
				t.Errorf("answered: %+v", f)
			}
			// Copies that are not even made.
			if err := n.Impair("m1", Impairment{DropEgress: []uint64{1}, EgressTogether: true}); err != nil {
				t.Fatal(err)
			}
			mustSend(t, mem[1], request(1, 64, 5, 1, 77, 2))
			f = tr.next(t)
			if len(f.Replies) != 0 || f.Lost["impaired-egress"] != 1 {
				t.Errorf("lost: %+v", f)
			}
			// Dropped: of nobody, and of the wrong size.
			mustSend(t, mem[0], request(9, 64, 5, 0, 0, 2))
			f = tr.next(t)
			if f.Verdict != "drop" || f.Reason != "unknown-worker" || f.Rank != -1 || f.Job != "" || f.Outcome != "" || len(f.Replies) != 0 {
				t.Errorf("unknown: %+v", f)
			}
			mustSend(t, mem[0], request(0, 256, 5, 0, 0, 2))
			if f = tr.next(t); f.Verdict != "drop" || f.Reason != "wrong-size" {
				t.Errorf("wrong size: %+v", f)
			}
			if _, err := tr.Read(t.Context()); !errors.Is(err, io.EOF) || tr.Lost() != 0 {
				t.Errorf("after the last: %v, lost %d", err, tr.Lost())
			}
			waitReceived(t, n, 8)
			check(t, n)
		})
	}
}

// Under traffic a trace takes nothing away: all sums are right, none is lost, and the trace is the counters'.
func TestTraceUnderTraffic(t *testing.T) {
	n, mem := memNIC(t, testConfig(), 2)
	install(t, n, JobSpec{Name: "j", Workers: 2, Elements: 64, Slots: 16, Members: members(2, false)})
	tr := startTrace(t, n, TraceOptions{Job: "j", Slot: 3, Count: 100})
	const rounds = 40
	for k := range rounds {
		for slot := range 16 {
			for r := range mem {
				mustSend(t, mem[r], request(r, 64, slot, k%2, uint32(k), int32(k)))
			}
		}
		for range 16 {
			for r := range mem {
				if v := values(recv(t, mem[r])); v[63] != int32(2*k) {
					t.Fatalf("round %d: %d", k, v[63])
				}
			}
		}
	}
	tr.Close()
	outcomes := map[string]int{}
	for {
		f, err := tr.Read(t.Context())
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil || f.Message.Slot != 3 || f.Job != "j" {
			t.Fatalf("%v: %+v", err, f)
		}
		outcomes[f.Outcome]++
	}
	if outcomes["added"] != rounds || outcomes["completed"] != rounds || len(outcomes) != 2 || tr.Lost() != 0 {
		t.Errorf("%v, lost %d", outcomes, tr.Lost())
	}
	silent(t, mem...)
	check(t, n)
}

func TestTraceOptions(t *testing.T) {
	n, _ := memNIC(t, testConfig(), 1)
	install(t, n, JobSpec{Name: "j", Workers: 1, Elements: 64, Slots: 16, Members: members(1, false)})
	for name, o := range map[string]TraceOptions{
		"slot": {Slot: MaxSlots}, "negative": {Slot: -1}, "job's slot": {Job: "j", Slot: 16}, "count": {Count: -1}, "many": {Count: MaxTraceCount + 1},
	} {
		if _, err := n.Trace(o); err == nil {
			t.Errorf("%s: %+v is taken", name, o)
		}
	}
	if _, err := n.Trace(TraceOptions{Job: "k"}); !errors.Is(err, ErrNoJob) {
		t.Errorf("%v", err)
	}
}

// A job that is not asked for, and a reader that does not read.
func TestTraceOfAnotherJobAndLoss(t *testing.T) {
	n, mem := memNIC(t, testConfig(), 1)
	install(t, n, JobSpec{Name: "j", Workers: 2, Elements: 64, Slots: 16, Members: members(2, true)[:1]})
	install(t, n, JobSpec{Name: "k", Workers: 2, Elements: 64, Slots: 16, Members: []WorkerSpec{{Rank: 0, MAC: workerMAC(9), IP: workerIP(9), Port: 0}}})
	tr := startTrace(t, n, TraceOptions{Job: "k", Slot: 2, Count: 1000})
	mustSend(t, mem[0], request(0, 64, 2, 0, 0, 1))
	mustSend(t, mem[0], request(9, 64, 2, 0, 0, 1))
	if f := tr.next(t); f.Job != "k" || f.Message.MAC != workerMAC(9) {
		t.Errorf("%+v", f)
	}
	const frames = 2 * traceDepth
	for range frames {
		mustSend(t, mem[0], request(9, 64, 2, 0, 0, 1))
	}
	waitReceived(t, n, 2+frames)
	if tr.Lost() != frames-traceDepth {
		t.Errorf("lost %d", tr.Lost())
	}
}

// Native messages are followed too: by round, with the rank that they name, and the answer that goes out in the frame itself.
func TestTraceNative(t *testing.T) {
	for _, lanes := range []int{1, 2} {
		cfg := testConfig()
		cfg.Lanes = lanes
		n, ws := nativeJob(t, cfg, JobSpec{Workers: 2, Slots: 8})
		tr := startTrace(t, n, TraceOptions{Slot: 5, Job: "j", Count: 5})
		send := func(r int, round uint32) TraceFrame {
			mustSend(t, ws[r].port, ws[r].contribution(5, round, le32(1, 2, 3, int32(r))))
			return tr.next(t)
		}
		f := send(0, 0)
		if f.Message.Protocol != "native" || f.Message.Kind != "contribution" || f.Message.Round != 0 || f.Message.JobID != 1 || f.Message.MAC != workerMAC(0) ||
			f.Message.Elements != 4 || f.Job != "j" || f.Rank != 0 || f.Outcome != "added" || !reflect.DeepEqual(f.Seen, []int{0}) || !reflect.DeepEqual(f.Waiting, []int{1}) {
			t.Errorf("added: %+v", f)
		}
		f = send(1, 0)
		if f.Outcome != "completed" || f.Verdict != "contributed" || f.Rank != 1 || len(f.Replies) != 2 || len(f.Waiting) != 0 {
			t.Fatalf("completed: %+v", f)
		}
		ranks := map[int]bool{}
		for _, r := range f.Replies {
			ranks[r.Rank] = r.Posted && r.MAC == workerMAC(r.Rank) && r.Port == fmt.Sprintf("m%d", r.Rank) && r.Length > 60
		}
		if !ranks[0] || !ranks[1] {
			t.Errorf("replies: %+v", f.Replies)
		}
		for _, w := range ws {
			w.result(le32(2, 4, 6, 1), 0)
		}
		if f = send(0, 0); f.Outcome != "answered" || f.Verdict != "duplicate" || len(f.Replies) != 1 || f.Replies[0].Rank != 0 {
			t.Errorf("answered: %+v", f)
		}
		if f = send(1, 7); f.Verdict != "drop" || f.Reason != "early-round" || len(f.Replies) != 0 || len(f.Seen) != 0 {
			t.Errorf("early: %+v", f)
		}
		// From a station that the job does not know by this rank.
		g := ws[0].contribution(5, 1, le32(1, 2, 3, 4))
		g[11] = 77
		mustSend(t, ws[0].port, g)
		if f = tr.next(t); f.Verdict != "drop" || f.Reason != "unknown-worker" {
			t.Errorf("stranger: %+v", f)
		}
		check(t, n)
	}
}
