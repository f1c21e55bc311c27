package dataplane

import (
	"context"
	"errors"
	"testing"
	"time"
)

// charged is what a port has charged to a name.
func charged(t testing.TB, n *NIC, port int, name string) BudgetSnapshot {
	t.Helper()
	for _, b := range n.Snapshot().Ports[port].Budgets {
		if b.Name == name {
			return b
		}
	}
	t.Fatalf("port %d has no budget %q: %+v", port, name, n.Snapshot().Ports[port].Budgets)
	return BudgetSnapshot{}
}

// waitCharged waits until frames were charged to a name.
func waitCharged(t testing.TB, n *NIC, port int, name string, frames uint64) BudgetSnapshot {
	t.Helper()
	for until := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		b := charged(t, n, port, name)
		if b.Taken+b.Dropped >= frames {
			return b
		}
		if time.Now().After(until) {
			t.Fatalf("port %d charged %+v to %q, want %d frames", port, b, name, frames)
		}
	}
}

// Over AF_XDP: who is over its budget is stopped before the lane, who is not loses nothing, an address that comes in by
// another port is a stray, and a port that is made again has its budgets and counts.
func TestBudgetsOfPorts(t *testing.T) {
	l := newVethLab(t, 2, 1, false)
	n := startNIC(t, testConfig(), l.ports()...)
	needNative(t, n)
	for r := range 2 {
		install(t, n, JobSpec{Name: string(rune('a' + r)), Workers: 1, Elements: 64, Members: []WorkerSpec{{MAC: workerMAC(r), IP: workerIP(r), Port: -1}}})
	}
	if got := n.Snapshot().Ports[0].Budgets; len(got) != 0 {
		t.Fatalf("budgets that nobody set: %+v", got)
	}
	const burst = 64 // half of 256 frames receive, half of those are a burst
	err := n.SetBudgets(&Budgets{
		Strays: Budget{Name: "strays", Rate: 1},
		Named: []Budget{
			{Name: "a", Senders: []Sender{{workerMAC(0), 0}}},
			{Name: "b", Rate: 1, Senders: []Sender{{workerMAC(1), 1}}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	w := l.wires(t)
	send := func(end wire, rank, frames int) {
		t.Helper()
		for i := range frames {
			if err := end.Send(request(rank, 64, i%64, i/64%2, 0, 7)); err != nil {
				t.Fatal(err)
			}
			if i%16 == 15 {
				time.Sleep(100 * time.Microsecond) // the lane keeps up
			}
		}
	}
	send(w[0], 0, 300)
	send(w[1], 1, 300)
	send(w[0], 1, 300) // b's address behind a's port
	if b := waitCharged(t, n, 0, "a", 300); b.Taken != 300 || b.Dropped != 0 {
		t.Errorf("no bound: %+v", b)
	}
	if b := waitCharged(t, n, 1, "b", 300); b.Taken != burst || b.Dropped != 300-burst || b.Burst != burst {
		t.Errorf("over its budget: %+v", b)
	}
	if b := waitCharged(t, n, 0, "strays", 300); b.Taken != burst || b.Dropped != 300-burst {
		t.Errorf("strays: %+v", b)
	}
	s := waitReceived(t, n, 300+2*burst)
	if s.Total.Received != 300+2*burst {
		t.Errorf("%d frames received", s.Total.Received)
	}
	for port, want := range []uint64{300 - burst, 300 - burst} {
		if got := s.Ports[port].Steering["over-budget"]; got != want {
			t.Errorf("port %d: %d frames over budget, want %d", port, got, want)
		}
	}
	// The port goes and comes back.
	l.delete(t, 1)
	waitState(t, n, 1, StateDown, "")
	l.create(t, 1, 1)
	waitState(t, n, 1, StateUp, "")
	send(openRaw(t, l.workers[1], "w"), 1, 300)
	b := waitCharged(t, n, 1, "b", 600)
	if b.Taken != 2*burst || b.Dropped != 600-2*burst {
		t.Errorf("made again: %+v", b)
	}
	if got := n.Snapshot().Ports[1].Steering["over-budget"]; got != 600-2*burst {
		t.Errorf("made again: %d frames over budget", got)
	}
	// Without budgets all is taken.
	if err := n.SetBudgets(nil); err != nil {
		t.Fatal(err)
	}
	before := n.Snapshot().Total.Received
	send(w[0], 0, 100)
	if got := waitReceived(t, n, before+100).Total.Received; got != before+100 {
		t.Errorf("no budgets: %d frames received of 100", got-before)
	}
}

// A budget that the steering program can not keep is refused; ports without one have none.
func TestBudgetsRefused(t *testing.T) {
	n, _ := memNIC(t, testConfig(), 1)
	if err := n.SetBudgets(&Budgets{}); err != nil {
		t.Errorf("a port in memory: %v", err)
	}
	if got := n.Snapshot().Ports[0].Budgets; len(got) != 0 {
		t.Errorf("a port in memory: %+v", got)
	}
	l := newVethLab(t, 1, 1, false)
	x := startNIC(t, testConfig(), l.ports()...)
	if err := x.SetBudgets(&Budgets{Named: []Budget{{Name: "a", Rate: 1 << 40}}}); err == nil {
		t.Error("a rate that can not be: no error")
	}
	if err := x.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := x.SetBudgets(nil); !errors.Is(err, ErrStopped) {
		t.Errorf("stopped: %v", err)
	}
}
