package dataplane

import "testing"

// TestMTUTooSmallForJob: a netdev whose MTU is too small for a job's frames is told, with the job and what it takes: the
// frames get lost before anything counts them.
func TestMTUTooSmallForJob(t *testing.T) {
	l, n, log := healLab(t, 2, 1, 1) // jobs of 64 elements
	waitState(t, n, 0, StateUp, "")
	link, err := l.nic.Netlink().LinkByName("p0")
	if err != nil {
		t.Fatal(err)
	}
	mtu := func(bytes int) {
		t.Helper()
		if err := l.nic.Netlink().LinkSetMTU(link, bytes); err != nil {
			t.Fatal(err)
		}
	}
	quiet := func() {
		t.Helper()
		waitState(t, n, 0, StateUp, "")
		d := newDeadline(t, healWithin)
		for p := n.Snapshot().Ports[0]; p.Why != ""; p = n.Snapshot().Ports[0] {
			if d.ended() {
				t.Fatalf("port %s: %s", p.Name, p.Why)
			}
		}
	}
	mtu(1000)
	install(t, n, JobSpec{Name: "native", Protocol: "native", Workers: 2, Elements: 360})
	waitState(t, n, 0, StateUp, "interface p0: MTU 1000 makes frames of 1014 bytes, job native has longer ones, of ")
	if p := n.Snapshot().Ports[1]; p.Why != "" {
		t.Errorf("the other port: %s", p.Why)
	}
	mtu(1500)
	quiet()
	mtu(1000)
	waitState(t, n, 0, StateUp, "job native has longer ones")
	if err := n.RemoveJob("native"); err != nil {
		t.Fatal(err)
	}
	quiet()
	// A job whose workers are all behind another port.
	install(t, n, JobSpec{Name: "elsewhere", Workers: 1, Elements: 256, Members: []WorkerSpec{{MAC: workerMAC(7), IP: workerIP(7), Port: 1}}})
	mtu(500)
	install(t, n, JobSpec{Name: "here", Workers: 1, Elements: 256, Members: []WorkerSpec{{MAC: workerMAC(8), IP: workerIP(8), Port: 0}}})
	waitState(t, n, 0, StateUp, "MTU 500 makes frames of 514 bytes, job here has longer ones")
	if got := log.With("port up", "but", "job native"); len(got) != 2 {
		t.Errorf("said %d times: %q", len(got), got)
	}
	check(t, n)
}
