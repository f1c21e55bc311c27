package dataplane

import (
	"strings"
	"testing"
	"time"

	"gradnic/wire/inet"
	"gradnic/xdp"
)

// A function in the kernel takes the frames that a lane would take, counts them as the steering program's, and keeps
// the account of pktgen; the way to the lanes is open again afterwards.
func TestInKernel(t *testing.T) {
	l := newVethLab(t, 1, 1, false)
	cfg := testConfig()
	n := startNIC(t, cfg, XDPPort{Interface: "p0", Namespace: l.nic.Do, WholePort: true})
	needNative(t, n)
	w := l.wires(t)[0]
	// A veth delivers what an XDP program sends back only where there is one; this one passes everything.
	index, _, err := l.workers[0].Interface("w")
	if err != nil {
		t.Fatal(err)
	}
	var pass *xdp.Steering
	if err := l.workers[0].Do(func() (err error) {
		pass, err = xdp.Attach(xdp.AttachOptions{IfIndex: index, Mode: xdp.Native})
		return
	}); err != nil {
		t.Fatal(err)
	}
	defer pass.Close()
	at := time.Now()
	steered := func(verdict string) uint64 { return n.Snapshot().Ports[0].Steering[verdict] }
	for _, c := range []struct {
		kind    FunctionKind
		verdict string
	}{{Reflect, "reflected"}, {Sink, "sunk"}} {
		if err := n.SetFunction("p0", Function{Kind: c.kind, Pktgen: true, InKernel: true}); err != nil {
			t.Fatal(err)
		}
		before := steered(c.verdict)
		received := n.Snapshot().Total.Received
		for i := uint32(1); i <= 20; i++ {
			if i == 7 {
				continue
			}
			f := pktgenFrame(1, i, at)
			if err := w.Send(f); err != nil {
				t.Fatal(err)
			}
			if c.kind == Reflect {
				back := make([]byte, 2048)
				k, err := w.Recv(back, time.Now().Add(5*time.Second))
				if err != nil {
					t.Fatalf("frame %d: %v", i, err)
				}
				if k != len(f) || string(back[:6]) != string(f[6:12]) || string(back[6:12]) != string(f[:6]) || string(back[12:k]) != string(f[12:]) {
					t.Fatalf("sent %x, came back %x", f, back[:k])
				}
			}
		}
		waitFor(t, n, func(*Snapshot) bool { return steered(c.verdict) == before+19 })
		s, err := n.Pktgen("p0")
		if err != nil {
			t.Fatal(err)
		}
		want := PktgenStream{MAC: inet.MAC{2, 0, 0, 0, 0, 1}, IP: inet.Addr{10, 9, 0, 1}, Unique: 19, Lost: 1}
		if s.Frames != 19 || s.Other != 0 || len(s.Streams) != 1 || s.Streams[0] != want || s.Latency == nil || s.Latency.Samples != 19 || s.Latency.Max > 60e6 {
			t.Errorf("%v: %+v, latency %+v", c.kind, s, s.Latency)
		}
		if got := n.Snapshot().Total.Received; got != received {
			t.Errorf("%v: %d frames came to a lane", c.kind, got-received)
		}
	}
	if err := n.Impair("p0", Impairment{IngressLoss: 0.5}); err == nil || !strings.Contains(err.Error(), "in the kernel") {
		t.Errorf("impaired in the kernel: %v", err)
	}
	if err := n.SetFunction("p0", Function{Kind: Reflect}); err != nil {
		t.Fatal(err)
	}
	if err := w.Send(pktgenFrame(1, 1, at)); err != nil {
		t.Fatal(err)
	}
	waitFor(t, n, func(s *Snapshot) bool { return s.Total.Received > 0 && s.Total.Transmitted == s.Total.Received })
	if err := n.Impair("p0", Impairment{IngressLoss: 0.5}); err != nil {
		t.Fatal(err)
	}
	if err := n.SetFunction("p0", Function{Kind: Sink, InKernel: true}); err == nil || !strings.Contains(err.Error(), "impair") {
		t.Errorf("in the kernel with an impairment: %v", err)
	}
	if got := n.Snapshot().Ports[0].Function; got != "reflect" {
		t.Errorf("after what was refused the function is %q", got)
	}
}

// A netdev that was made again has its function again.
func TestInKernelHeals(t *testing.T) {
	l := newVethLab(t, 1, 1, false)
	n := startNIC(t, testConfig(), XDPPort{Interface: "p0", Namespace: l.nic.Do, WholePort: true})
	if err := n.SetFunction("p0", Function{Kind: Sink, InKernel: true, Pktgen: true}); err != nil {
		t.Fatal(err)
	}
	waitState(t, n, 0, StateUp, "")
	l.delete(t, 0)
	waitState(t, n, 0, StateDown, "does not exist")
	l.create(t, 0, 1)
	waitState(t, n, 0, StateUp, "")
	if err := l.wires(t)[0].Send(pktgenFrame(1, 1, time.Now())); err != nil {
		t.Fatal(err)
	}
	waitFor(t, n, func(s *Snapshot) bool { return s.Ports[0].Steering["sunk"] > 0 })
	if s, err := n.Pktgen("p0"); err != nil || s.Frames != 1 {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestInKernelRefused(t *testing.T) {
	n, err := New(Config{MAC: inet.MAC{6}, IP: inet.Addr{10, 9, 0, 254}}, NewMemPort("p"))
	if err != nil {
		t.Fatal(err)
	}
	for f, want := range map[Function]string{
		{Kind: Sink, InKernel: true}:      "no netdev",
		{Kind: Aggregate, InKernel: true}: "reflect or sink",
	} {
		if err := n.SetFunction("p", f); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", f, err)
		}
	}
}
