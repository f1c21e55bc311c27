package dataplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gradnic/internal/netlab"
	"gradnic/internal/netlab/netlabtest"
	"gradnic/wire/inet"
)

// rawEnd is the worker's end of a veth as a packet socket: whole frames, nothing of the kernel's stack in the way.
type rawEnd struct{ fd int }

func openRaw(t testing.TB, ns *netlab.NS, iface string) *rawEnd {
	t.Helper()
	index, _, err := ns.Interface(iface)
	if err != nil {
		t.Fatal(err)
	}
	r := &rawEnd{-1}
	err = ns.Do(func() error {
		var err error
		if r.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		for opt, v := range map[int]int{unix.PACKET_IGNORE_OUTGOING: 1, unix.PACKET_QDISC_BYPASS: 1} {
			if err := unix.SetsockoptInt(r.fd, unix.SOL_PACKET, opt, v); err != nil {
				return err
			}
		}
		if err := unix.SetsockoptInt(r.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20); err != nil {
			return err
		}
		return unix.Bind(r.fd, &unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_ALL), Ifindex: index})
	})
	if err != nil {
		t.Fatalf("packet socket on %s: %v", iface, err)
	}
	t.Cleanup(func() { unix.Close(r.fd) })
	return r
}

func htons(v uint16) uint16 { return v<<8 | v>>8 }

func (r *rawEnd) Send(frame []byte) error {
	for {
		_, err := unix.Write(r.fd, frame)
		if errors.Is(err, unix.ENOBUFS) {
			time.Sleep(50 * time.Microsecond)
			continue
		}
		return err
	}
}

func (r *rawEnd) Recv(buf []byte, deadline time.Time) (int, error) {
	for {
		left := time.Until(deadline)
		if left <= 0 {
			return 0, os.ErrDeadlineExceeded
		}
		fds := [1]unix.PollFd{{Fd: int32(r.fd), Events: unix.POLLIN}}
		if n, err := unix.Poll(fds[:], int(left/time.Millisecond)+1); n == 0 || errors.Is(err, unix.EINTR) {
			continue
		} else if err != nil {
			return 0, err
		}
		return unix.Read(r.fd, buf)
	}
}

// bench of veths: worker r's end is "w" in its own namespace, the NIC's is "p<r>" in the namespace "nic".
type vethLab struct {
	*netlab.Lab
	nic     *netlab.NS
	workers []*netlab.NS
}

func newVethLab(t testing.TB, workers, queues int, addr bool) *vethLab {
	t.Helper()
	l := &vethLab{Lab: netlabtest.New(t, "dp")}
	l.nic = netlabtest.Namespace(t, l.Lab, "nic")
	for r := range workers {
		w := netlabtest.Namespace(t, l.Lab, fmt.Sprintf("w%d", r))
		l.workers = append(l.workers, w)
		e := netlab.End{NS: w, Name: "w", MAC: workerMAC(r).String(), Queues: queues}
		if addr {
			e.Addr = workerIP(r).String() + "/24"
		}
		netlabtest.Veth(t, l.Lab, e, netlab.End{NS: l.nic, Name: fmt.Sprintf("p%d", r), Queues: queues})
	}
	return l
}

func (l *vethLab) ports() []PortSpec {
	var p []PortSpec
	for r := range l.workers {
		p = append(p, XDPPort{Interface: fmt.Sprintf("p%d", r), Namespace: l.nic.Do})
	}
	return p
}

func (l *vethLab) wires(t testing.TB) []wire {
	var w []wire
	for _, ns := range l.workers {
		w = append(w, openRaw(t, ns, "w"))
	}
	return w
}

// needNative fails when a port does not run in native mode, which veth has.
func needNative(t testing.TB, n *NIC) {
	t.Helper()
	for _, p := range n.Snapshot().Ports {
		if p.Mode != "native" {
			t.Fatalf("port %s runs in mode %q", p.Name, p.Mode)
		}
	}
}

// linkProgram returns the id of the XDP program on an interface, 0 for none.
func linkProgram(t testing.TB, ns *netlab.NS, iface string) uint32 {
	t.Helper()
	link, err := ns.Netlink().LinkByName(iface)
	if err != nil {
		t.Fatal(err)
	}
	if x := link.Attrs().Xdp; x != nil && x.Attached {
		return x.ProgId
	}
	return 0
}

// flood sends frames in turn until it is stopped; it returns how many were sent.
func flood(w wire, frames [][]byte) (stop func() uint64) {
	quit, done := make(chan struct{}), make(chan uint64)
	go func() {
		sent := uint64(0)
		for {
			select {
			case <-quit:
				done <- sent
				return
			default:
			}
			for _, f := range frames {
				if err := w.Send(f); err == nil {
					sent++
				}
			}
		}
	}()
	return func() uint64 { close(quit); return <-done }
}

func TestCapturesOverVeth(t *testing.T) {
	for _, elements := range []int{64, 256} {
		t.Run(fmt.Sprint(elements), func(t *testing.T) {
			l := newVethLab(t, 2, 1, false)
			n := startNIC(t, testConfig(), l.ports()...)
			needNative(t, n)
			install(t, n, capturesJob(elements))
			replayCaptures(t, n, elements, l.wires(t))
		})
	}
}

func TestGenericMode(t *testing.T) {
	l := newVethLab(t, 1, 1, false)
	n := startNIC(t, testConfig(), XDPPort{Interface: "p0", Namespace: l.nic.Do, Mode: 2})
	if m := n.Snapshot().Ports[0].Mode; m != "generic" {
		t.Fatalf("mode %s", m)
	}
	install(t, n, JobSpec{Name: "j", Workers: 1, Elements: 256, Members: members(1, true)})
	w := l.wires(t)[0]
	buf := make([]byte, 2048)
	for i := range 50 {
		if err := w.Send(request(0, 256, i, 0, uint32(i), int32(i))); err != nil {
			t.Fatal(err)
		}
		k, err := w.Recv(buf, time.Now().Add(5*time.Second))
		if err != nil || values(buf[:k])[9] != int32(i) {
			t.Fatalf("%d: %v", i, err)
		}
	}
	check(t, n)
}

// TestPing: a kernel resolves the NIC's address and pings it.
func TestPing(t *testing.T) {
	l := newVethLab(t, 2, 1, true)
	n := startNIC(t, testConfig(), l.ports()...)
	for r, ns := range l.workers {
		var fd int
		err := ns.Do(func() (err error) {
			fd, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMP)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 5}); err != nil {
			t.Fatal(err)
		}
		for seq := range byte(3) {
			msg := append([]byte{inet.ICMPEchoRequest, 0, 0, 0, 0x12, byte(r), 0, seq}, "gradnic answers"...)
			c := inet.Checksum(msg)
			msg[2], msg[3] = byte(c>>8), byte(c)
			if err := unix.Sendto(fd, msg, 0, &unix.SockaddrInet4{Addr: nicIP}); err != nil {
				t.Fatal(err)
			}
			buf := make([]byte, 256)
			k, _, err := unix.Recvfrom(fd, buf, 0)
			if err != nil {
				t.Fatalf("worker %d: ping %d: %v", r, seq, err)
			}
			got := buf[20:k]
			if got[0] != inet.ICMPEchoReply || inet.Checksum(got) != 0 || string(got[8:]) != "gradnic answers" || got[7] != seq {
				t.Fatalf("answer %x", got)
			}
		}
	}
	s := check(t, n)
	if s.Total.Answered != 8 { // one ARP and three echoes each
		t.Fatalf("%+v", s.Total)
	}
}

// TestMalformedOverVeth takes the whole port, so that frames which the steering program would leave to the kernel
// reach the lane as well.
func TestMalformedOverVeth(t *testing.T) {
	l := newVethLab(t, 1, 1, false)
	n := startNIC(t, testConfig(), XDPPort{Interface: "p0", Namespace: l.nic.Do, WholePort: true})
	install(t, n, JobSpec{Name: "j", Workers: 1, Elements: 64, Slots: 8, Members: members(1, true)})
	w := l.wires(t)[0]
	whole := request(0, 64, 0, 0, 0, 1)
	sent := uint64(0)
	for k := 14; k < len(whole); k++ { // the kernel refuses to send less than a header
		if err := w.Send(whole[:k]); err != nil {
			t.Fatal(err)
		}
		if sent++; sent%64 == 0 {
			waitReceived(t, n, sent)
		}
	}
	for _, f := range [][]byte{request(0, 64, 8, 0, 0, 1), request(1, 64, 0, 0, 0, 1), request(0, 256, 0, 0, 0, 1)} {
		if err := w.Send(f); err != nil {
			t.Fatal(err)
		}
		sent++
	}
	s := waitReceived(t, n, sent)
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	d := s.Total.Drops
	if d["short"] != uint64(len(whole)-14) || d["slot-out-of-range"] != 1 || d["unknown-worker"] != 1 || d["wrong-size"] != 1 || s.Total.Dropped() != sent {
		t.Fatalf("sent %d: %v", sent, d)
	}
	if s.Ports[0].Steering["taken-all"] != sent {
		t.Fatalf("steering %v", s.Ports[0].Steering)
	}
}

// TestTwoLanes: a veth of two queues and two lanes. Frames reach a queue by the sender's CPU, so about half of them are
// handed over to the lane that owns their slot; all results are right.
func TestTwoLanes(t *testing.T) {
	const workers, slots, rounds = 2, 64, 6
	l := newVethLab(t, workers, 2, false)
	cfg := testConfig()
	cfg.Lanes = 2
	n := startNIC(t, cfg, l.ports()...)
	needNative(t, n)
	install(t, n, JobSpec{Name: "j", Workers: workers, Elements: 64, Slots: slots, Members: members(workers, true)})
	wires := l.wires(t)
	buf := make([]byte, 2048)
	sent := uint64(0)
	for round := range rounds {
		for r, w := range wires {
			for s := range slots {
				if err := w.Send(request(r, 64, s, round%2, uint32(s), int32(1000*round+s+r))); err != nil {
					t.Fatal(err)
				}
				sent++
			}
		}
		waitReceived(t, n, sent)
		for r, w := range wires {
			seen := map[byte]bool{}
			for range slots {
				k, err := w.Recv(buf, time.Now().Add(5*time.Second))
				if err != nil {
					t.Fatalf("round %d worker %d: %v", round, r, err)
				}
				slot := buf[49]
				if seen[slot] || values(buf[:k])[3] != int32(2*(1000*round+int(slot))+1) {
					t.Fatalf("round %d slot %d: %d", round, slot, values(buf[:k])[3])
				}
				seen[slot] = true
			}
		}
	}
	s := check(t, n)
	if s.Total.Contributed != sent || s.Lanes[0].Results == 0 || s.Lanes[1].Results == 0 {
		t.Fatalf("sent %d: %+v", sent, s)
	}
	if out, in := s.Lanes[0].HandedOut+s.Lanes[1].HandedOut, s.Lanes[0].HandedIn+s.Lanes[1].HandedIn; out == 0 || out != in {
		t.Fatalf("%d frames were handed out, %d in", out, in)
	}
}

// TestQueuesMustBeServed: a netdev with more queues than are opened, or fewer than there are lanes, is refused.
func TestQueuesMustBeServed(t *testing.T) {
	l := newVethLab(t, 1, 2, false)
	start := func(lanes int, p XDPPort) error {
		cfg := testConfig()
		cfg.Lanes = lanes
		p.Interface, p.Namespace = "p0", l.nic.Do
		n, err := New(cfg, p)
		if err != nil {
			t.Fatal(err)
		}
		return errors.Join(n.Start(context.Background()), n.Stop(context.Background()))
	}
	if err := start(1, XDPPort{Queues: 1}); err == nil {
		t.Error("one of two queues")
	}
	if err := start(3, XDPPort{}); err == nil {
		t.Error("three lanes on two queues")
	}
	if err := start(1, XDPPort{Queues: 1, PartialQueues: true}); err != nil {
		t.Error(err)
	}
	if err := start(1, XDPPort{}); err != nil { // one lane, two queues
		t.Error(err)
	}
	if id := linkProgram(t, l.nic, "p0"); id != 0 {
		t.Errorf("program %d is left", id)
	}
}
