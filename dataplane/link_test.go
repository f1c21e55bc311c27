package dataplane

import (
	"context"
	"testing"
	"time"
)

// TestLinkDownAndUp: a link that goes down loses frames while it is down; afterwards everything works again.
func TestLinkDownAndUp(t *testing.T) {
	l := newVethLab(t, 2, 1, false)
	n := startNIC(t, testConfig(), l.ports()...)
	install(t, n, JobSpec{Name: "j", Workers: 1, Elements: 64, Members: members(1, true)})
	install(t, n, JobSpec{Name: "k", Workers: 1, Elements: 64, Members: []WorkerSpec{{MAC: workerMAC(1), IP: workerIP(1), Port: -1}}})
	wires := l.wires(t)
	if err := roundTrip(wires[0], 0, 0); err != nil {
		t.Fatal(err)
	}
	link, err := l.nic.Netlink().LinkByName("p0")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.nic.Netlink().LinkSetDown(link); err != nil {
		t.Fatal(err)
	}
	for i := range 20 { // the other port goes on
		if err := wires[1].Send(request(1, 64, i, 0, 0, 7)); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 2048)
		if _, err := wires[1].Recv(buf, time.Now().Add(5*time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	idle(t, 300*time.Millisecond, 30*time.Millisecond) // with a port that is down
	if err := l.nic.Netlink().LinkSetUp(link); err != nil {
		t.Fatal(err)
	}
	until := newDeadline(t, 2*time.Second)
	for i := 1; ; i++ {
		// Sending fails, or a frame is lost, until the carrier is back.
		if wires[0].Send(request(0, 64, i%256, 0, 0, 7)) == nil {
			buf := make([]byte, 2048)
			if _, err := wires[0].Recv(buf, time.Now().Add(50*time.Millisecond)); err == nil {
				break
			}
		}
		if until.ended() {
			t.Fatal("the port does not work again after 2 s")
		}
	}
	check(t, n)
}

// TestLinkDeleted: a netdev that is taken away costs its own port; the other goes on, nothing spins, and Stop works.
func TestLinkDeleted(t *testing.T) {
	l := newVethLab(t, 2, 1, false)
	n, err := New(testConfig(), l.ports()...)
	if err != nil {
		t.Fatal(err)
	}
	m := members(2, false)
	install(t, n, JobSpec{Name: "j", Workers: 2, Elements: 64, Members: m})
	if err := n.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	wires := l.wires(t)
	link, err := l.nic.Netlink().LinkByName("p0")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.nic.Netlink().LinkDel(link); err != nil {
		t.Fatal(err)
	}
	// Rank 0 has moved to the other port, by its address; its results still go to the port it was given.
	buf := make([]byte, 2048)
	for i := range 10 {
		for r := range 2 {
			if err := wires[1].Send(request(r, 64, i, 0, 0, 7)); err != nil {
				t.Fatal(err)
			}
		}
		k, err := wires[1].Recv(buf, time.Now().Add(5*time.Second))
		if err != nil || values(buf[:k])[0] != 14 {
			t.Fatalf("round %d: %v", i, err)
		}
	}
	idle(t, 300*time.Millisecond, 30*time.Millisecond) // with a port that is gone
	check(t, n)
	if err := n.Stop(context.Background()); err != nil {
		t.Errorf("stop: %v", err)
	}
	if s := n.Snapshot(); s.Check() != nil {
		t.Error(s.Check())
	}
}
