package datagram

import (
	"errors"
	"fmt"
	"net"
	"testing"
	"time"
)

// besides is a Beside whose two sockets are UDP's, and the NIC's ends of them.
func besides(t *testing.T) (b *Beside, own, group *net.UDPConn, toOwn, toGroup *net.UDPAddr) {
	t.Helper()
	u, own := pair(t, 100)
	g, group := pair(t, 100)
	toOwn, toGroup = u.conn.LocalAddr().(*net.UDPAddr), g.conn.LocalAddr().(*net.UDPAddr)
	b = NewBeside(u, g)
	t.Cleanup(func() { _ = b.Close() }) // again, for tests that have closed it
	return b, own, group, toOwn, toGroup
}

func TestBesideTakesBoth(t *testing.T) {
	b, own, group, toOwn, toGroup := besides(t)
	if err := b.Send([][]byte{frame("request")}); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 100)
	_ = own.SetReadDeadline(time.Now().Add(10 * time.Second))
	if n, from, err := own.ReadFromUDP(buf); err != nil || string(buf[:n]) != "request" || from.Port != toOwn.Port {
		t.Fatalf("%q from %v, %v", buf[:n], from, err)
	}
	const each = 3 * Burst / 2 // fewer than are kept
	for i := range each {
		if _, err := own.WriteToUDP(fmt.Appendf(nil, "own %d", i), toOwn); err != nil {
			t.Fatal(err)
		}
		if _, err := group.WriteToUDP(fmt.Appendf(nil, "group %d", i), toGroup); err != nil {
			t.Fatal(err)
		}
	}
	next := map[string]int{}
	for until := time.Now().Add(20 * time.Second); next["own"] < each || next["group"] < each; {
		got, err := b.Recv(time.Now().Add(time.Second))
		if err != nil || time.Now().After(until) {
			t.Fatalf("%v: %v", next, err)
		}
		for _, p := range got {
			var where string
			var i int
			if _, err := fmt.Sscanf(string(p), "%s %d", &where, &i); err != nil || i != next[where] {
				t.Fatalf("%q, %v: want number %d", p, err, next[where])
			}
			next[where]++
		}
	}
}

// What comes to the worker alone ends a wait for the group; so does Wake; and nothing comes after the deadline.
func TestBesideWaits(t *testing.T) {
	b, own, _, toOwn, _ := besides(t)
	if got, err := b.Recv(time.Now().Add(10 * time.Millisecond)); len(got) > 0 || err != nil {
		t.Fatalf("%q, %v", got, err)
	}
	time.AfterFunc(20*time.Millisecond, func() { _, _ = own.WriteToUDP([]byte("late"), toOwn) })
	begin := time.Now()
	for {
		got, err := b.Recv(begin.Add(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		if len(got) == 1 && string(got[0]) == "late" {
			break
		}
	}
	time.AfterFunc(20*time.Millisecond, b.Wake)
	if got, err := b.Recv(begin.Add(time.Minute)); len(got) > 0 || err != nil {
		t.Fatalf("%q, %v", got, err)
	}
	if d := time.Since(begin); d > 30*time.Second {
		t.Errorf("it took %v", d)
	}
}

func TestBesideEnds(t *testing.T) {
	b, _, _, _, _ := besides(t)
	_ = b.own.(*UDP).conn.Close() // as when the socket breaks
	for {
		if _, err := b.Recv(time.Now().Add(time.Minute)); err != nil {
			if !errors.Is(err, net.ErrClosed) {
				t.Error(err)
			}
			break
		}
	}
	_ = b.Close()
	if _, err := b.group.Recv(time.Now().Add(time.Second)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the group's socket is open: %v", err)
	}
}
