package datagram

import (
	"bytes"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"gradnic/internal/netlab/netlabtest"
	"gradnic/wire/inet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var loop = inet.Addr{127, 0, 0, 1}

// pair is a transport and the NIC's end of it, on loopback.
func pair(t *testing.T, room int) (*UDP, *net.UDPConn) {
	t.Helper()
	nic, err := net.ListenUDP("udp4", &net.UDPAddr{IP: loop[:]})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nic.Close() })
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: loop[:]})
	if err != nil {
		t.Fatal(err)
	}
	u, err := NewUDP(conn, Endpoint{IP: loop, Port: uint16(nic.LocalAddr().(*net.UDPAddr).Port)}, room)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { u.Close() })
	return u, nic
}

func frame(payload string) []byte { return append(make([]byte, inet.PayloadOffset), payload...) }

func TestUDPBothWays(t *testing.T) {
	u, nic := pair(t, 100)
	var frames [][]byte
	for range 3*Burst + 5 {
		frames = append(frames, frame("request"))
	}
	if err := u.Send(frames); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 2000)
	var from *net.UDPAddr
	for range frames {
		_ = nic.SetReadDeadline(time.Now().Add(5 * time.Second))
		n, a, err := nic.ReadFromUDP(buf)
		if err != nil || string(buf[:n]) != "request" {
			t.Fatalf("%q %v", buf[:n], err)
		}
		from = a
	}
	for range 5 {
		if _, err := nic.WriteToUDP([]byte("result"), from); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := nic.WriteToUDP(make([]byte, 1000), from); err != nil { // too long: seen as such
		t.Fatal(err)
	}
	var got [][]byte
	for len(got) < 6 {
		b, err := u.Recv(time.Now().Add(5 * time.Second))
		if err != nil || len(b) == 0 {
			t.Fatal(err)
		}
		for _, p := range b {
			got = append(got, bytes.Clone(p))
		}
	}
	if string(got[4]) != "result" || len(got[5]) != 101 {
		t.Errorf("%q", got)
	}
	// A stranger is not heard.
	stranger, err := net.ListenUDP("udp4", &net.UDPAddr{IP: loop[:]})
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	_, _ = stranger.WriteToUDP([]byte("x"), from)
	if b, err := u.Recv(time.Now().Add(20 * time.Millisecond)); len(b) != 0 || err != nil {
		t.Errorf("%q %v", b, err)
	}
}

// Nobody behind the port: ICMP says so, and that is no end.
func TestUDPRefusedIsCounted(t *testing.T) {
	u, nic := pair(t, 100)
	nic.Close()
	for range 20 {
		if err := u.Send([][]byte{frame("a"), frame("b")}); err != nil {
			t.Fatal(err)
		}
		if b, err := u.Recv(time.Now().Add(5 * time.Millisecond)); err != nil || len(b) != 0 {
			t.Fatalf("%q %v", b, err)
		}
	}
	if f := u.Faults(); f.Socket == 0 || !errors.Is(f.Last, unix.ECONNREFUSED) {
		t.Errorf("%+v", f)
	}
}

func TestWake(t *testing.T) {
	u, _ := pair(t, 100)
	f := NewFrames(quiet{}, Endpoint{}, Endpoint{}, 100)
	for _, tr := range []Transport{u, f} {
		tr.Wake() // before: the next one returns
		start := time.Now()
		if b, err := tr.Recv(start.Add(time.Minute)); err != nil || len(b) != 0 {
			t.Fatalf("%q %v", b, err)
		}
		go func() { time.Sleep(20 * time.Millisecond); tr.Wake() }()
		if b, err := tr.Recv(start.Add(time.Minute)); err != nil || len(b) != 0 {
			t.Fatalf("%q %v", b, err)
		}
		if took := time.Since(start); took > 10*time.Second || took < 20*time.Millisecond {
			t.Errorf("%T woke after %v", tr, took)
		}
		start = time.Now()
		if _, err := tr.Recv(start.Add(30 * time.Millisecond)); err != nil || time.Since(start) < 30*time.Millisecond {
			t.Errorf("%T did not wait: %v, %v", tr, time.Since(start), err)
		}
	}
}

// quiet is a link on which nothing comes.
type quiet struct{}

func (quiet) Send([]byte) error { return os.ErrDeadlineExceeded }
func (quiet) Recv(_ []byte, deadline time.Time) (int, error) {
	time.Sleep(time.Until(deadline))
	return 0, os.ErrDeadlineExceeded
}

// Frames takes what comes from the NIC to the worker or its group, and nothing else.
func TestFramesAreChecked(t *testing.T) {
	worker := Endpoint{inet.MAC{2, 0, 0, 0, 0, 1}, inet.Addr{10, 0, 0, 1}, 4000}
	nic := Endpoint{inet.MAC{2, 0, 0, 0, 0, 9}, inet.Addr{10, 0, 0, 9}, 48880}
	group := Endpoint{inet.MAC{1, 0, 0x5e, 1, 1, 1}, inet.Addr{239, 1, 1, 1}, 48880}
	var frames [][]byte
	put := func(from, to Endpoint) {
		b := make([]byte, inet.PayloadOffset+4)
		inet.PutEthernet(b, to.MAC, from.MAC, inet.EtherTypeIPv4)
		inet.PutIPv4(b[inet.L3Offset:], inet.IPv4{Proto: inet.ProtoUDP, Src: from.IP, Dst: to.IP, PayloadLen: 12})
		inet.PutUDP(b[inet.L4Offset:], inet.UDP{Src: from.Port, Dst: to.Port, PayloadLen: 4})
		frames = append(frames, b)
	}
	other := func(e Endpoint, k int) Endpoint {
		switch k {
		case 0:
			e.MAC[5]++
		case 1:
			e.IP[3]++
		default:
			e.Port++
		}
		return e
	}
	put(nic, worker)
	put(nic, group)
	for k := range 3 {
		put(other(nic, k), worker)
		put(nic, other(worker, k))
		put(nic, other(group, k))
	}
	frames = append(frames, []byte{1, 2, 3})
	f := NewFrames(&script{frames: frames}, worker, nic, 100)
	if got, err := f.Recv(time.Now()); err != nil || len(got) != 1 || f.Faults().Foreign != 11 {
		t.Errorf("without the group: %d taken, %+v, %v", len(got), f.Faults(), err)
	}
	f = NewFrames(&script{frames: frames}, worker, nic, 100)
	f.Listen(group)
	if got, err := f.Recv(time.Now()); err != nil || len(got) != 2 || f.Faults().Foreign != 10 {
		t.Errorf("with the group: %d taken, %+v, %v", len(got), f.Faults(), err)
	}
	if err := NewFrames(quiet{}, worker, nic, 100).Send([][]byte{{1}}); err != nil {
		t.Errorf("a full link: %v", err)
	}
}

// script gives frames one after the other.
type script struct{ frames [][]byte }

func (s *script) Send([]byte) error { return nil }
func (s *script) Recv(buf []byte, _ time.Time) (int, error) {
	if len(s.frames) == 0 {
		return 0, os.ErrDeadlineExceeded
	}
	n := copy(buf, s.frames[0])
	s.frames = s.frames[1:]
	return n, nil
}

// The group's socket hears what is sent to the group by the NIC, and nothing else.
func TestListenGroup(t *testing.T) {
	lab := netlabtest.New(t, "dgram")
	ns := netlabtest.Namespace(t, lab, "a")
	if err := ns.Do(func() error {
		ifc, err := InterfaceOf(loop)
		if err != nil {
			return err
		}
		nic, err := net.ListenUDP("udp4", &net.UDPAddr{IP: loop[:]})
		if err != nil {
			return err
		}
		defer nic.Close()
		group := Endpoint{IP: inet.Addr{239, 1, 1, 1}, Port: 48880}
		me := Endpoint{IP: loop, Port: uint16(nic.LocalAddr().(*net.UDPAddr).Port)}
		for range 2 { // two workers of one host
			u, err := ListenGroup(ifc, group, me, 100)
			if err != nil {
				return err
			}
			defer u.Close()
			raw, err := nic.SyscallConn()
			if err != nil {
				return err
			}
			if err := raw.Control(func(fd uintptr) {
				err = unix.SetsockoptIPMreqn(int(fd), unix.IPPROTO_IP, unix.IP_MULTICAST_IF, &unix.IPMreqn{Ifindex: int32(ifc.Index)})
			}); err != nil {
				return err
			}
			if _, err := nic.WriteToUDP([]byte("result"), &net.UDPAddr{IP: net.IP(group.IP[:]), Port: 48880}); err != nil {
				return err
			}
			got, err := u.Recv(time.Now().Add(5 * time.Second))
			if err != nil || len(got) != 1 || string(got[0]) != "result" {
				t.Errorf("%q %v", got, err)
			}
		}
		if _, err := InterfaceOf(inet.Addr{1, 2, 3, 4}); err == nil {
			t.Error("an interface with a foreign address")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// What is longer than the interface takes is not sent in fragments, which no NIC puts together: Send says so, also where it
// would have gone with others as one message.
func TestUDPLongerThanTheMTU(t *testing.T) {
	lab := netlabtest.New(t, "dgrammtu")
	ns := netlabtest.Namespace(t, lab, "a")
	if err := ns.Do(func() error {
		lo, err := ns.Netlink().LinkByName("lo")
		if err != nil {
			return err
		}
		if err := ns.Netlink().LinkSetMTU(lo, 1000); err != nil {
			return err
		}
		for _, segments := range []bool{false, true} {
			u, nic := pair(t, 2000)
			if segments {
				if _, err := u.Segment(); err != nil {
					return err
				}
			}
			fits, long := frame(strings.Repeat("f", 972)), frame(strings.Repeat("l", 973))
			if err := u.Send([][]byte{fits, fits, fits}); err != nil {
				return err
			}
			err := u.Send([][]byte{long, long})
			if !errors.Is(err, unix.EMSGSIZE) || !strings.Contains(err.Error(), "takes an MTU of 1001 here") {
				t.Errorf("segments %v: %v", segments, err)
			}
			for range 3 {
				buf := make([]byte, 2000)
				_ = nic.SetReadDeadline(time.Now().Add(5 * time.Second))
				if n, _, err := nic.ReadFromUDP(buf); n != 972 || err != nil {
					t.Errorf("segments %v: %d bytes, %v", segments, n, err)
				}
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// What a socket has received before it is a worker's is late from who had the port before, and is not taken.
func TestUDPForgets(t *testing.T) {
	listen := func() *net.UDPConn {
		c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	nic, worker := listen(), listen()
	port := func(c *net.UDPConn) uint16 { return c.LocalAddr().(*net.UDPAddr).AddrPort().Port() }
	send := func(s string) {
		if _, err := nic.WriteTo([]byte(s), worker.LocalAddr()); err != nil {
			t.Fatal(err)
		}
	}
	for range 100 {
		send("old")
	}
	u, err := NewUDP(worker, Endpoint{IP: inet.Addr{127, 0, 0, 1}, Port: port(nic)}, 64)
	if err != nil {
		t.Fatal(err)
	}
	send("new")
	got, err := u.Recv(time.Now().Add(5 * time.Second))
	if err != nil || len(got) != 1 || string(got[0]) != "new" {
		t.Fatalf("%q, %v", got, err)
	}
}
