//go:build vm

package guest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"gradnic/xdp"
)

var nutIP = [4]byte{10, 9, 0, 2}

const (
	port      = 48864
	chunkSize = 2048
	headers   = 14 + 20 + 8
)

// nic is one interface.
type nic struct {
	name  string
	index int
	mac   net.HardwareAddr
}

// byMAC finds an interface of run.sh's: hub, and role 1 (generates) or 2 (under test).
func byMAC(t *testing.T, hub, role byte) nic {
	t.Helper()
	all, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	want := net.HardwareAddr{0x52, 0x54, 0, 0, hub, role}
	for _, i := range all {
		if bytes.Equal(i.HardwareAddr, want) {
			n := nic{i.Name, i.Index, i.HardwareAddr}
			n.up(t)
			return n
		}
	}
	t.Fatalf("no interface has the address %v: its driver did not take it", want)
	return nic{}
}

// up brings it up and waits for its carrier.
func (n nic) up(t *testing.T) {
	t.Helper()
	link, err := netlink.LinkByIndex(n.index)
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		t.Fatal(err)
	}
	n.waitCarrier(t)
}

func (n nic) waitCarrier(t *testing.T) {
	t.Helper()
	for until := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		on, err := os.ReadFile("/sys/class/net/" + n.name + "/carrier")
		if err == nil && on[0] == '1' {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("%s has no carrier: %v", n.name, err)
		}
	}
}

func (n nic) driver() string {
	to, err := os.Readlink("/sys/class/net/" + n.name + "/device/driver")
	if err != nil {
		return "none"
	}
	return filepath.Base(to)
}

func (n nic) receiveQueues(t *testing.T) int {
	t.Helper()
	q, err := filepath.Glob("/sys/class/net/" + n.name + "/queues/rx-*")
	if err != nil {
		t.Fatal(err)
	}
	return len(q)
}

// counter reads one of the NIC's statistics, as rx_packets.
func (n nic) counter(t *testing.T, name string) int {
	t.Helper()
	text, err := os.ReadFile("/sys/class/net/" + n.name + "/statistics/" + name)
	if err != nil {
		t.Fatal(err)
	}
	v, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// settle waits until a counter has risen by n since before, or a while: some drivers ask their hardware every two seconds.
func (n nic) settle(t *testing.T, name string, before, by int) int {
	t.Helper()
	for until := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if got := n.counter(t, name) - before; got >= by || time.Now().After(until) {
			return got
		}
	}
}

// end is a NIC with its steering program and a socket on each of its queues.
type end struct {
	nic
	steer   *xdp.Steering
	sockets []*xdp.Socket
}

// open attaches and opens; chunks from first on are filled, each socket gets per.
func (n nic) open(t *testing.T, u *xdp.UMEM, mode xdp.Mode, first, per int) *end {
	t.Helper()
	e := &end{nic: n}
	st, err := xdp.Attach(xdp.AttachOptions{IfIndex: n.index, Mode: mode})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	e.steer = st
	n.waitCarrier(t) // a driver may set itself up anew for a program
	if err := errors.Join(st.SetAddress([6]byte(n.mac), nutIP), st.SetPorts([]uint16{port})); err != nil {
		t.Fatal(err)
	}
	for q := range n.receiveQueues(t) {
		s, err := u.Open(xdp.SocketOptions{IfIndex: n.index, Queue: q})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		if err := st.Bind(q, s); err != nil {
			t.Fatal(err)
		}
		fill := make([]uint64, per)
		for i := range fill {
			fill[i] = uint64(first+q*per+i) * chunkSize
		}
		if got := s.Fill(fill); got != per {
			t.Fatalf("fill took %d of %d", got, per)
		}
		e.sockets = append(e.sockets, s)
	}
	return e
}

// receive takes frames from all queues until there are n or nothing has come for quiet; each gives back its chunk after each.
func (e *end) receive(t *testing.T, n int, quiet time.Duration, each func(queue int, frame []byte)) (got int) {
	t.Helper()
	var batch [64]xdp.Desc
	last := time.Now()
	for got < n && time.Since(last) < quiet {
		idle := true
		for q, s := range e.sockets {
			k := s.Receive(batch[:])
			for _, d := range batch[:k] {
				each(q, s.UMEM().Frame(d))
			}
			if k == 0 {
				continue
			}
			got, idle, last = got+k, false, time.Now()
			if f := s.FillDescs(batch[:k]); f != k {
				t.Fatalf("the fill ring took back %d of %d", f, k)
			}
		}
		if idle {
			if _, err := e.sockets[0].Wait(time.Millisecond); err != nil {
				t.Fatal(err)
			}
		}
	}
	return got
}

// lost is what the kernel counts as lost in front of the sockets.
func (e *end) lost(t *testing.T) (n int) {
	t.Helper()
	for _, s := range e.sockets {
		st, err := s.Statistics()
		if err != nil {
			t.Fatal(err)
		}
		n += int(st.RxDropped + st.RxRingFull + st.RxFillRingEmpty + st.RxInvalidDescs)
	}
	return n
}

func newUMEM(t *testing.T, chunks int) *xdp.UMEM {
	t.Helper()
	u, err := xdp.NewUMEM(xdp.UMEMOptions{Chunks: chunks, ChunkSize: chunkSize})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := u.Close(); err != nil {
			t.Error(err)
		}
	})
	return u
}

// numbered writes a UDP frame that carries a number.
func numbered(f []byte, from, to net.HardwareAddr, n uint32) {
	copy(f, to)
	copy(f[6:], from)
	binary.BigEndian.PutUint16(f[12:], 0x0800)
	f[14] = 0x45
	binary.BigEndian.PutUint16(f[16:], uint16(len(f)-14))
	f[22], f[23] = 64, unix.IPPROTO_UDP
	copy(f[26:], []byte{10, 9, 0, 1})
	copy(f[30:], nutIP[:])
	binary.BigEndian.PutUint16(f[34:], port)
	binary.BigEndian.PutUint16(f[36:], port)
	binary.BigEndian.PutUint16(f[38:], uint16(len(f)-34))
	binary.BigEndian.PutUint32(f[headers:], n)
}

func mustBe(t *testing.T, what string, got, want any) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func describe(e *end) string {
	return fmt.Sprintf("%s: %v, %d queues, %v", e.driver(), e.steer.Mode(), len(e.sockets), e.sockets[0].Mode())
}
