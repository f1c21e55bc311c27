package accl_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"gradnic/internal/acclcheck"
	"gradnic/internal/acclcheck/rig"
	wire "gradnic/wire/accl"
	"gradnic/wire/inet"
	. "gradnic/worker/accl"
)

// TestOverUDP: two and three ranks in namespaces of their own do every collective over UDP on sizes about every segment
// and from 1 to 300, for every type and operation, equal to the reference.
func TestOverUDP(t *testing.T) {
	for _, ranks := range []int{2, 3} {
		t.Run(fmt.Sprint(ranks, " ranks"), func(t *testing.T) {
			n := rig.New(t, ranks, nil)
			var rs []Rank
			for r := range ranks {
				rs = append(rs, n.UDP(t, Config{Rank: r, Ranks: n.Peers}))
			}
			begin := time.Now()
			done := rig.Sweep(t, rs, DefaultSegment, *full)
			t.Logf("%d collectives in %v", done, time.Since(begin).Round(time.Millisecond))
			if want := 66 * 45; done < want {
				t.Errorf("%d collectives, fewer than %d", done, want)
			}
			for r, k := range rs {
				s := k.Stats()
				if s.Faults != ([wire.NumFaults]uint64{}) || s.Sent == 0 || s.Received == 0 {
					t.Errorf("rank %d: %+v", r, s)
				}
			}
		})
	}
}

// TestOverLoopback: ranks on addresses of the loopback interface, which needs no rights; every collective and type.
func TestOverLoopback(t *testing.T) {
	var ps []Peer
	for r := range 3 {
		ip := inet.Addr{127, 0, 0, byte(r + 1)}
		free, err := net.ListenUDP("udp4", &net.UDPAddr{IP: ip[:]}) // a port that nobody has
		if err != nil {
			t.Fatal(err)
		}
		ps = append(ps, Peer{IP: ip, Port: free.LocalAddr().(*net.UDPAddr).AddrPort().Port()})
		free.Close()
	}
	var rs []Rank
	for r := range 3 {
		u, err := Listen(Config{Rank: r, Ranks: ps})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { u.Close() })
		rs = append(rs, u)
	}
	for i, c := range acclcheck.Kinds(0) {
		c.Count, c.Root = 1000+i, i%3
		if err := rig.Do(t.Context(), rs, acclcheck.New(c, 3, DefaultSegment, 1)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLongOverUDP: large arrays, whole datagrams, and messages of several datagrams.
func TestLongOverUDP(t *testing.T) {
	n := rig.New(t, 3, nil)
	for _, segment := range []int{DefaultSegment, 2*wire.MaxDatagram - 64, 1 << 16} {
		t.Run(fmt.Sprint(segment), func(t *testing.T) {
			var rs []Rank
			for r := range 3 {
				rs = append(rs, n.UDP(t, Config{Rank: r, Ranks: n.Peers, Segment: segment, LongMessages: segment > DefaultSegment}))
			}
			for _, c := range acclcheck.Kinds(1) {
				if c.Type != Float32 || c.Op != Sum {
					continue
				}
				c.Count = 30_000
				if err := rig.Do(t.Context(), rs, acclcheck.New(c, 3, segment, 9)); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// badPeer is a rank on a plain socket of its namespace that loses, or sends in another order, what change says. The socket
// is open when it returns; the rank begins with start.
func badPeer(t *testing.T, n *rig.Net, rank int, change func(k int, d Datagram) []Datagram, calls ...Call) (start func()) {
	t.Helper()
	p, err := NewResponder(Config{Rank: rank, Ranks: n.Peers}, calls...)
	if err != nil {
		t.Fatal(err)
	}
	port := func(r int) uint16 { return wire.BasePort + uint16(r) }
	var conn *net.UDPConn
	if err := n.Spaces[rank].Do(func() (err error) {
		conn, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(n.Peers[rank].IP.Netip(), port(rank))))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	var g sync.WaitGroup
	t.Cleanup(func() { conn.Close(); g.Wait() })
	k := 0
	send := func(ds []Datagram) {
		for _, d := range ds {
			for _, d := range change(k, d) {
				if _, err := conn.WriteToUDPAddrPort(d.Payload, netip.AddrPortFrom(n.Peers[d.To].IP.Netip(), port(d.To))); err != nil {
					t.Error(err)
				}
			}
			k++
		}
	}
	run := func() {
		send(p.Start())
		buf := make([]byte, wire.MaxDatagram)
		for {
			k, from, err := conn.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			out, _ := p.Datagram(int(from.Port())-wire.BasePort, buf[:k])
			send(out)
		}
	}
	return func() { g.Go(run) }
}

// TestAccidentsOverUDP: a datagram of one rank is lost, or overtaken by the next, among three ranks over real sockets.
// Both other ranks end with an error that names it or whom they waited for, within the deadline, and stay ended.
func TestAccidentsOverUDP(t *testing.T) {
	const timeout = time.Second
	var held []Datagram
	for _, c := range []struct {
		name   string
		change func(k int, d Datagram) []Datagram
		next   error // at the rank that gets the bad peer's messages
	}{
		{"lost in the middle", func(k int, d Datagram) []Datagram {
			if k == 1 {
				return nil
			}
			return []Datagram{d}
		}, ErrLost},
		{"lost at the start, and nothing behind it", func(k int, d Datagram) []Datagram { return nil }, ErrTimeout},
		{"overtaken", func(k int, d Datagram) []Datagram {
			if k == 0 {
				held = []Datagram{d}
				return nil
			}
			out := append([]Datagram{d}, held...)
			held = nil
			return out
		}, ErrLost},
	} {
		t.Run(c.name, func(t *testing.T) {
			held = nil
			n := rig.New(t, 3, nil)
			j := acclcheck.New(Call{Collective: AllReduce, Type: Float32, Count: 2500}, 3, DefaultSegment, 1)
			var rs []Rank
			for r := range 2 {
				rs = append(rs, n.UDP(t, Config{Rank: r, Ranks: n.Peers, Timeout: timeout}))
			}
			start := badPeer(t, n, 2, c.change, j.Of(2)...)
			errs := make([]error, 2)
			begin := time.Now()
			var g sync.WaitGroup
			for r, k := range rs {
				g.Go(func() { errs[r] = k.Do(t.Context(), j.Of(r)[0]) })
			}
			start()
			g.Wait()
			if d := time.Since(begin); d > 30*timeout {
				t.Errorf("took %v", d)
			}
			var pe *PeerError
			if !errors.Is(errs[0], c.next) || !errors.As(errs[0], &pe) || pe.Peer != 2 {
				t.Errorf("rank 0, which gets messages of the bad rank: %v", errs[0])
			}
			if !errors.Is(errs[1], ErrTimeout) || !strings.Contains(fmt.Sprint(errs[1]), "from rank 0: no message in time") {
				t.Errorf("rank 1, which waits for rank 0: %v", errs[1])
			}
			for r, k := range rs {
				if err := k.Do(t.Context(), j.Of(r)[0]); !errors.Is(err, ErrEnded) || !errors.Is(err, errs[r]) {
					t.Errorf("rank %d, next call: %v", r, err)
				}
			}
		})
	}
}

// TestGivenUp: a call ends when its context does, and with the rank; a call that cannot work is refused and changes
// nothing.
func TestGivenUp(t *testing.T) {
	n := rig.New(t, 2, nil)
	u := n.UDP(t, Config{Rank: 0, Ranks: n.Peers, Timeout: time.Minute})
	ok := acclcheck.New(Call{Collective: AllReduce, Type: Int32, Count: 10}, 2, DefaultSegment, 1)
	for _, c := range []struct {
		call Call
		why  string
	}{
		{Call{Collective: Barrier}, "rendezvous only"},
		{Call{Collective: AllToAll, Count: 1}, "rendezvous only"},
		{Call{Collective: Bcast, Count: 1<<18 + 1, Src: make([]byte, 4<<18+4)}, "over the eager limit of 1048576"},
		{Call{Collective: Send, Count: 1, Src: make([]byte, 4)}, "to or from the rank itself"},
		{Call{Collective: Send, Count: 1, Root: 2}, "rank 2 of 2"},
		{Call{Collective: Send, Count: 1, Root: 1, Type: Int32, Half: true}, "for float32"},
		{Call{Collective: AllReduce, Count: 2, Src: make([]byte, 8), Dst: make([]byte, 4)}, "Dst has 4 bytes"},
		{Call{Collective: AllReduce, Count: -1}, "legal are 0 to"},
		{Call{Collective: 99}, "unknown"},
	} {
		if err := u.Do(t.Context(), c.call); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%v: %v, want %s", c.call.Collective, err, c.why)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	begin := time.Now()
	if err := u.Do(ctx, ok.Of(0)[0]); !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) > 20*time.Second {
		t.Errorf("after %v: %v", time.Since(begin), err)
	}
	if err := u.Do(t.Context(), ok.Of(0)[0]); !errors.Is(err, ErrEnded) {
		t.Errorf("after that: %v", err)
	}
	v := n.UDP(t, Config{Rank: 1, Ranks: n.Peers, Timeout: time.Minute})
	time.AfterFunc(50*time.Millisecond, func() { v.Close() })
	if err := v.Do(t.Context(), ok.Of(1)[0]); !errors.Is(err, net.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

// TestMTU: an interface that cannot carry the frames is refused at the start, with what mends it.
func TestMTU(t *testing.T) {
	n := rig.New(t, 2, nil)
	link, err := n.Spaces[0].Netlink().LinkByName(rig.Interface)
	if err == nil {
		err = n.Spaces[0].Netlink().LinkSetMTU(link, 1500)
	}
	if err != nil {
		t.Fatal(err)
	}
	err = n.Spaces[0].Do(func() error {
		u, err := Listen(Config{Ranks: n.Peers})
		if err == nil {
			u.Close()
		}
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "ip link set dev eth0 mtu 4124") {
		t.Errorf("%v", err)
	}
	if err := n.Spaces[0].Do(func() error {
		u, err := Listen(Config{Ranks: n.Peers, Segment: 1024})
		if err == nil {
			err = u.Close()
		}
		return err
	}); err != nil {
		t.Errorf("a segment that fits: %v", err)
	}
}
