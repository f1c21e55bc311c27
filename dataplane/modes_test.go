package dataplane

import (
	"context"
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"gradnic/xdp"
)

// TestQueueStatistics: of two queues the one whose lane does not read is the one that loses frames, and the port's count is
// the sum.
func TestQueueStatistics(t *testing.T) {
	l := newVethLab(t, 1, 2, false)
	cfg := testConfig()
	cfg.Lanes = 2
	n := startNIC(t, cfg, l.ports()...)
	if err := n.SetFunction("p0", Function{Kind: Sink}); err != nil {
		t.Fatal(err)
	}
	b := newBlaster(t, l.workers[0], "w", 2, 64, 298, writeRequest(64))
	n.mu.Lock()
	n.parkLanes(func() {
		for range cfg.FramesPerQueue/64 + 4 {
			if err := b.round(1); err != nil {
				t.Error(err)
			}
			b.settle()
		}
	})
	n.mu.Unlock()
	waitFor(t, n, func(s *Snapshot) bool { return s.Total.Received+lostInKernel(s.Ports[0].Kernel) == b.settle() })
	p := check(t, n).Ports[0]
	if len(p.QueueKernel) != 2 || lostInKernel(p.QueueKernel[0]) != 0 || lostInKernel(p.QueueKernel[1]) == 0 || lostInKernel(p.Kernel) != lostInKernel(p.QueueKernel[1]) {
		t.Errorf("%+v of %+v", p.Kernel, p.QueueKernel)
	}
	if q := p.PerQueue; len(q) != 2 || q[0].Queue != 0 || q[0].Lane != 0 || q[0].Received != 0 || q[1].Queue != 1 || q[1].Lane != 1 || q[1].Received != p.Received || q[1].Received == 0 {
		t.Errorf("%+v of %d frames", q, p.Received)
	}
}

// TestModesAreShown: how sockets are bound, and why a program is not in the driver, is what the snapshot says; a mode that
// is forced and cannot be had ends the start with the reason.
func TestModesAreShown(t *testing.T) {
	l := newVethLab(t, 1, 1, false)
	lo, err := l.nic.Netlink().LinkByName("lo")
	if err == nil {
		err = l.nic.Netlink().LinkSetMTU(lo, 1500) // with its own all sockets would be for frames of many chunks
	}
	if err != nil {
		t.Fatal(err)
	}
	n := startNIC(t, testConfig(),
		XDPPort{Interface: "p0", Namespace: l.nic.Do, BusyPoll: xdp.BusyPoll{Microseconds: 20}},
		XDPPort{Interface: "lo", Namespace: l.nic.Do}, NewMemPort("m"))
	ports := n.Snapshot().Ports
	if p := ports[0]; p.Mode != "native" || p.NoNative != "" || !strings.HasPrefix(p.Sockets, "copy need-wakeup busy-poll tx-budget=") {
		t.Errorf("veth: %s, %q, %q", p.Mode, p.NoNative, p.Sockets)
	}
	if p := ports[1]; p.Mode != "generic" || !strings.Contains(p.NoNative, "operation not supported") || strings.Contains(p.Sockets, "busy-poll") {
		t.Errorf("lo: %s, %q, %q", p.Mode, p.NoNative, p.Sockets)
	}
	if p := ports[2]; p.Sockets != "" || p.NoNative != "" {
		t.Errorf("memory: %q, %q", p.NoNative, p.Sockets)
	}
	install(t, n, JobSpec{Name: "j", Workers: 1, Elements: 64, Members: members(1, true)})
	if err := roundTrip(l.wires(t)[0], 0, 0); err != nil {
		t.Errorf("with busy polling: %v", err)
	}
	if err := n.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}

	n, err = New(testConfig(), XDPPort{Interface: "p0", Namespace: l.nic.Do, ForceZeroCopy: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Start(context.Background()); !errors.Is(err, unix.EOPNOTSUPP) || !strings.Contains(err.Error(), "the driver has no zero-copy: operation not supported: start with --zero-copy auto or off, which copy (gradnic doctor p0: ") {
		t.Errorf("zero-copy was forced: %v", err)
	}
	if id := linkProgram(t, l.nic, "p0"); id != 0 {
		t.Errorf("program %d is left", id)
	}
}
