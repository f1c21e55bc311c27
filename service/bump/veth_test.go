package bump

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"testing"
	"time"

	"gradnic/dataplane"
	"gradnic/internal/netlab"
	"gradnic/internal/netlab/netlabtest"
	"gradnic/wire/inet"
)

// vethLab is two hosts, each behind a NIC of its own:
//
//	host0 eth0 - h [nic0] w - w [nic1] h - eth0 host1
type vethLab struct {
	host, nic [2]*netlab.NS
}

func newVethLab(t *testing.T) *vethLab {
	lab := netlabtest.New(t, "gnbump")
	l := &vethLab{}
	for side, name := range []string{"0", "1"} {
		l.host[side], l.nic[side] = netlabtest.Namespace(t, lab, "host"+name), netlabtest.Namespace(t, lab, "nic"+name)
		// The second host finishes its checksums itself, since its NIC is not always a bump.
		netlabtest.Veth(t, lab,
			netlab.End{NS: l.host[side], Name: "eth0", MAC: hostMAC[side].String(), Addr: hostIP[side].String() + "/24", NoChecksumOffload: side == 1},
			netlab.End{NS: l.nic[side], Name: "h"})
	}
	netlabtest.Veth(t, lab, netlab.End{NS: l.nic[0], Name: "w"}, netlab.End{NS: l.nic[1], Name: "w"})
	return l
}

// vethNIC is a NIC of the lab: with a bump, or one that only forwards.
type vethNIC struct {
	*Running
	nic *dataplane.NIC
}

func (l *vethLab) start(t *testing.T, side int, isBump bool, o Options, rules ...string) *vethNIC {
	t.Helper()
	for _, r := range rules {
		o.Rules = append(o.Rules, mustRule(t, r))
	}
	var ports []dataplane.PortSpec
	for _, name := range []string{"h", "w"} {
		ports = append(ports, dataplane.XDPPort{Interface: name, Namespace: l.nic[side].Do, WholePort: true})
	}
	n, err := dataplane.New(dataplane.Config{MAC: inet.MAC{2, 0x67, 192, 0, 2, 1}, IP: inet.Addr{192, 0, 2, 1}}, ports...)
	if err != nil {
		t.Fatal(err)
	}
	v := &vethNIC{nic: n}
	t.Cleanup(func() { v.stop(t) })
	if isBump {
		v.Running, err = Start(t.Context(), n, StartOptions{
			ServeOptions: ServeOptions{Host: "h", Wire: "w", Engine: o}, Namespace: l.nic[side].Do, Status: t.TempDir() + "/s",
		})
		if err != nil {
			t.Fatal(err)
		}
	} else {
		for from, to := range map[string]string{"h": "w", "w": "h"} {
			if err := n.SetFunction(from, dataplane.Function{Kind: dataplane.Forward, To: to}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := n.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return v
}

func (v *vethNIC) stop(t *testing.T) {
	if v.nic == nil {
		return
	}
	if v.Running != nil {
		if err := v.Running.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
	if err := v.nic.Stop(context.Background()); err != nil {
		t.Errorf("stop: %v", err)
	}
	s := v.nic.Snapshot()
	if err := s.Check(); err != nil {
		t.Error(err)
	}
	v.nic = nil
}

// datagrams sends n datagrams of gradients from host 0 to a port of host 1, a few at a time, and returns how many came. Each
// is checked against the rule.
func (l *vethLab) datagrams(t *testing.T, port uint16, n int, rule *Rule) (came int) {
	t.Helper()
	var from, to *net.UDPConn
	addr := func(side int, port uint16) *net.UDPAddr {
		return &net.UDPAddr{IP: hostIP[side][:], Port: int(port)}
	}
	err := l.host[1].Do(func() (err error) { to, err = net.ListenUDP("udp4", addr(1, port)); return err })
	if err == nil {
		err = l.host[0].Do(func() (err error) { from, err = net.DialUDP("udp4", addr(0, 4000), addr(1, port)); return err })
	}
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	defer to.Close()
	r := rand.New(rand.NewPCG(uint64(port), 3))
	sent := map[uint64][]byte{}
	buf := make([]byte, 2000)
	for i := 1; i <= n; i++ {
		payload := append(make([]byte, 8), gradient(r, 366, false)...)
		binary.BigEndian.PutUint64(payload, uint64(i))
		sent[uint64(i)] = payload
		if _, err := from.Write(payload); err != nil {
			t.Fatal(err)
		}
		if i%8 != 0 && i != n {
			continue
		}
		for {
			wait := 2 * time.Millisecond
			if i == n {
				wait = 100 * time.Millisecond
			}
			if err := to.SetReadDeadline(time.Now().Add(wait)); err != nil {
				t.Fatal(err)
			}
			k, _, err := to.ReadFromUDP(buf)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			want := sent[binary.BigEndian.Uint64(buf)]
			if want == nil {
				t.Fatalf("a datagram that nobody sent: %x", buf[:k])
			}
			if why := near(datagram(0, 4000, port, 0, want), datagram(0, 4000, port, 0, buf[:k]), rule); why != "" {
				t.Fatal(why)
			}
			if came++; came == i {
				break
			}
		}
	}
	return came
}

// stream sends n bytes of gradients over TCP from host 0 to a port of host 1 and compares what came.
func (l *vethLab) stream(t *testing.T, port, n int, during func()) {
	t.Helper()
	var ln *net.TCPListener
	err := l.host[1].Do(func() (err error) {
		ln, err = net.ListenTCP("tcp4", &net.TCPAddr{IP: hostIP[1][:], Port: port})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	sum := make(chan [32]byte, 1)
	go func() {
		c, err := ln.AcceptTCP()
		if err != nil {
			return
		}
		defer c.Close()
		h := sha256.New()
		_ = c.SetDeadline(time.Now().Add(30 * time.Second))
		_, _ = io.Copy(h, c) // an error shows in the sum
		sum <- [32]byte(h.Sum(nil))
	}()
	var c *net.TCPConn
	err = l.host[0].Do(func() (err error) {
		c, err = net.DialTCP("tcp4", nil, &net.TCPAddr{IP: hostIP[1][:], Port: port})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	data := gradient(rand.New(rand.NewPCG(uint64(port), 5)), n/4, false)
	half := len(data) / 2
	if _, err := c.Write(data[:half]); err != nil {
		t.Fatal(err)
	}
	if during != nil {
		during()
	}
	if _, err := c.Write(data[half:]); err != nil {
		t.Fatal(err)
	}
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	select {
	case got := <-sum:
		if got != sha256.Sum256(data) {
			t.Fatal("what came is not what was sent")
		}
	case <-time.After(30 * time.Second):
		t.Fatal("the transfer does not end")
	}
}

// TestOverVeth: real sockets of two hosts, with a bump on either side, on one side only, and through restarts of each.
func TestOverVeth(t *testing.T) {
	l := newVethLab(t)
	rules := []string{gradRule, "tcp dport=5001 codec=lossless"}
	rule := mustRule(t, gradRule)
	o := Options{HelloEvery: 5 * time.Millisecond, DeadAfter: 100 * time.Millisecond}
	a := l.start(t, 0, true, o, rules...)

	// The far end only forwards: everything arrives, raw.
	b := l.start(t, 1, false, o)
	if n := l.datagrams(t, 9000, 200, &rule); n != 200 {
		t.Errorf("without a far end %d of 200 datagrams came", n)
	}
	l.stream(t, 5001, 1<<20, nil)
	time.Sleep(2 * o.DeadAfter)
	// A bump that was held up itself gives the far end time anew.
	for end := time.Now().Add(20 * time.Second); a.Status().Counters.Missing == 0 && time.Now().Before(end); {
		time.Sleep(o.DeadAfter)
	}
	c := a.Status().Counters
	if c.Compressed.Frames != 0 || c.Raw[RawNoPeer] < 200 || c.Missing != 1 {
		t.Errorf("without a far end: %+v", c)
	}
	if c.Completed < 200 {
		t.Errorf("a veth leaves checksums to the card, and %d were completed", c.Completed)
	}
	b.stop(t)

	b = l.start(t, 1, true, o)
	l.untilPresent(t, a)
	before := a.Status().Counters
	if n := l.datagrams(t, 9000, 400, &rule); n != 400 {
		t.Errorf("%d of 400 datagrams came", n)
	}
	if n := l.datagrams(t, 9001, 100, nil); n != 100 {
		t.Errorf("of no rule: %d of 100 datagrams came", n)
	}
	c = a.Status().Counters
	if n := c.Compressed.Frames - before.Compressed.Frames; n < 400 {
		t.Errorf("%d of 400 frames were compressed: %+v", n, c)
	}
	l.stream(t, 5001, 2<<20, nil)
	l.stream(t, 5002, 2<<20, nil)
	c = a.Status().Counters
	if n := c.Compressed.Frames - before.Compressed.Frames; n < 1000 {
		t.Errorf("TCP of a rule was not compressed: %+v", c)
	}

	// Either end starts again in the midst of a transfer.
	l.stream(t, 5001, 1<<20, func() { b.stop(t); b = l.start(t, 1, true, o) })
	l.untilPresent(t, a)
	if c := a.Status().Counters; c.Restarts == 0 {
		t.Errorf("the far end's restart was not seen: %+v", c)
	}
	l.stream(t, 5001, 1<<20, func() { a.stop(t); a = l.start(t, 0, true, o, rules...) })
	l.untilPresent(t, a)
	if n := l.datagrams(t, 9000, 100, &rule); n != 100 {
		t.Errorf("after restarts %d of 100 datagrams came", n)
	}
	if c := a.Status().Counters; c.Compressed.Frames < 100 {
		t.Errorf("after restarts: %+v", c)
	}
}

// untilPresent sends until the bump has found its far end.
func (l *vethLab) untilPresent(t *testing.T, a *vethNIC) {
	t.Helper()
	one := mustRule(t, gradRule)
	for end := time.Now().Add(10 * time.Second); ; {
		l.datagrams(t, 9000, 1, &one)
		for _, p := range a.Status().Peers {
			if p.State == Present {
				return
			}
		}
		if time.Now().After(end) {
			t.Fatalf("no far end: %+v", a.Status())
		}
	}
}

// TestStatusOfARunningBump: the Unix socket and the metrics tell what the counters say, and the netdevs are promiscuous
// only as long as the bump runs.
func TestStatusOfARunningBump(t *testing.T) {
	l := newVethLab(t)
	promiscuous := func() bool {
		_, _, err := l.nic[0].Interface("h")
		if err != nil {
			t.Fatal(err)
		}
		link, err := l.nic[0].Netlink().LinkByName("h")
		if err != nil {
			t.Fatal(err)
		}
		return link.Attrs().Promisc > 0
	}
	a := l.start(t, 0, true, Options{}, gradRule)
	if !promiscuous() {
		t.Error("the host port is not promiscuous")
	}
	l.start(t, 1, true, Options{})
	l.untilPresent(t, a)
	dir := t.TempDir()
	ln, err := net.Listen("unix", dir+"/s")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- a.ServeStatus(ln) }()
	s, err := AskStatus(t.Context(), dir+"/s")
	if err != nil {
		t.Fatal(err)
	}
	want := a.Status()
	if s.Boot != want.Boot || len(s.Peers) != 1 || s.Peers[0].State != Present || s.Counters.Compressed != want.Counters.Compressed || s.Counters.Raw != want.Counters.Raw {
		t.Errorf("told %+v\nis %+v", s, want)
	}
	var table bytes.Buffer
	if err := s.Table(&table); err != nil || !bytes.Contains(table.Bytes(), []byte("present")) {
		t.Errorf("%v: %s", err, table.String())
	}
	if err := ln.Close(); err != nil {
		t.Error(err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
	if _, err := AskStatus(t.Context(), dir+"/none"); err == nil {
		t.Error("nobody answers, and no error")
	}
	a.stop(t)
	if promiscuous() {
		t.Error("the host port is still promiscuous")
	}
}
