package dataplane

import (
	"errors"
	"fmt"
	"reflect"
	"testing"

	"gradnic/xdp"
)

// A trace follows the frames that come to lanes, which are those that have a result to tell, of slots beyond what lanes
// have of such a job, and on lanes that do not own them.
func TestSummedTrace(t *testing.T) {
	for _, lanes := range []int{1, 2} {
		t.Run(fmt.Sprintf("%d-lanes", lanes), func(t *testing.T) {
			l := newVethLab(t, 2, lanes, false)
			cfg := testConfig()
			cfg.Lanes = lanes
			n := startNIC(t, cfg, l.ports()...)
			install(t, n, summedJob(2, 64, 8))
			tr := startTrace(t, n, TraceOptions{Slot: 7, Count: 4})
			wires := l.wires(t)
			send := func(rank int, frame []byte) {
				t.Helper()
				if err := wires[rank].Send(frame); err != nil {
					t.Fatal(err)
				}
			}
			send(0, request(0, 64, 7, 1, 5, 1)) // is added, and comes to no lane
			send(0, request(0, 64, 6, 1, 5, 1))
			waitFor(t, n, func(s *Snapshot) bool { return summedHere(s) == 2 })
			send(1, request(1, 64, 6, 1, 5, 1)) // another slot
			send(1, request(1, 64, 7, 1, 5, 1))
			all := []int{0, 1}
			f := tr.next(t)
			if f.Outcome != "completed" || f.Verdict != "contributed" || f.Job != "j" || f.Rank != 1 || f.Message.Set != 1 || f.Port != "p1" ||
				!reflect.DeepEqual(f.Seen, all) || len(f.Waiting) != 0 || len(f.Replies) != 2 || f.Replies[1].Rank != 1 || !f.Replies[0].Posted {
				t.Errorf("completed: %+v", f)
			}
			send(0, request(0, 64, 7, 1, 5, 1))
			f = tr.next(t)
			if f.Outcome != "answered" || f.Verdict != "duplicate" || f.Rank != 0 || f.Port != "p0" || !reflect.DeepEqual(f.Seen, all) || len(f.Replies) != 1 || f.Replies[0].Rank != 0 {
				t.Errorf("answered: %+v", f)
			}
			send(0, request(0, 256, 7, 0, 5, 1))
			if f = tr.next(t); f.Verdict != "drop" || f.Reason != "wrong-size" || f.Outcome != "" || len(f.Seen) != 0 {
				t.Errorf("of another size: %+v", f)
			}
			// What no program has looked at.
			n.mu.Lock()
			err := n.ports[0].open.sums(nil)
			n.mu.Unlock()
			if err != nil {
				t.Fatal(err)
			}
			send(0, request(0, 64, 7, 0, 5, 1))
			if f = tr.next(t); f.Verdict != "drop" || f.Reason != "not-summed" || f.Job != "j" || f.Outcome != "" || len(f.Seen) != 0 || len(f.Replies) != 0 {
				t.Errorf("not summed: %+v", f)
			}
			check(t, n)
		})
	}
}

// A job is not there unless all ports add up for it, and the next one asks again.
func TestSummedPortFails(t *testing.T) {
	l := newVethLab(t, 2, 1, false)
	n := startNIC(t, testConfig(), l.ports()...)
	fails := errors.New("no room for a program")
	n.mu.Lock()
	real := n.ports[1].open.sums
	n.ports[1].open.sums = func(*xdp.Sums) error { return fails }
	n.mu.Unlock()
	for range 2 {
		if err := n.InstallJob(summedJob(2, 64, 8)); !errors.Is(err, fails) || len(n.Jobs()) != 0 {
			t.Fatalf("%v, %d jobs", err, len(n.Jobs()))
		}
	}
	n.mu.Lock()
	n.ports[1].open.sums = real
	n.mu.Unlock()
	install(t, n, summedJob(2, 64, 8))
	for rank, w := range l.wires(t) {
		if err := w.Send(request(rank, 64, 0, 0, 0, 1)); err != nil {
			t.Fatal(err)
		}
	}
	waitFor(t, n, func(s *Snapshot) bool { return s.Total.Results == 1 && s.Total.Drops["not-summed"] == 0 })
	check(t, n)
}
