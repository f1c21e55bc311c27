//go:build vm

package guest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"gradnic/xdp"
)

// nicCase is a NIC under test.
type nicCase struct {
	driver string
	hub    byte
	native [2]int // the first kernel whose driver runs XDP programs; zero when none does
	queues int
}

var nicCases = []nicCase{
	{"virtio_net", 0, [2]int{4, 10}, 1},
	{"vmxnet3", 1, [2]int{6, 6}, 2},
	{"e1000e", 2, [2]int{}, 1},
}

func (c nicCase) mode(t *testing.T) xdp.Mode {
	if c.native != [2]int{} && atLeast(t, c.native[0], c.native[1]) {
		return xdp.Native
	}
	return xdp.Generic
}

func eachNIC(t *testing.T, f func(t *testing.T, c nicCase, gen, nut nic)) {
	for _, c := range nicCases {
		t.Run(c.driver, func(t *testing.T) {
			gen, nut := byMAC(t, c.hub, 1), byMAC(t, c.hub, 2)
			if nut.driver() != c.driver {
				t.Fatalf("%s has the driver %s", nut.name, nut.driver())
			}
			f(t, c, gen, nut)
		})
	}
}

// Attached in the mode that the driver has, a socket on every queue, bound in copy mode without being told to.
func TestModes(t *testing.T) {
	eachNIC(t, func(t *testing.T, c nicCase, _, nut nic) {
		e := nut.open(t, newUMEM(t, 256), xdp.Auto, 0, 64)
		fmt.Println("AF_XDP", describe(e))
		mustBe(t, "mode", e.steer.Mode(), c.mode(t))
		mustBe(t, "native error", e.steer.NativeError() != nil, c.mode(t) == xdp.Generic)
		mustBe(t, "queues", len(e.sockets), c.queues)
		for _, s := range e.sockets {
			m := s.Mode()
			if m.ZeroCopy || !m.NeedWakeup || !m.Anchored {
				t.Errorf("bound as %v", m)
			}
		}
		if c.mode(t) == xdp.Generic {
			if _, err := xdp.Attach(xdp.AttachOptions{IfIndex: nut.index, Mode: xdp.Native}); err == nil || !strings.Contains(err.Error(), nut.name) {
				t.Errorf("forced native mode: %v", err)
			}
		}
	})
}

// No driver here has zero-copy: forcing it is refused in clear words, and leaves the queue free.
func TestZeroCopyForced(t *testing.T) {
	eachNIC(t, func(t *testing.T, _ nicCase, _, nut nic) {
		u := newUMEM(t, 64)
		_, err := u.Open(xdp.SocketOptions{IfIndex: nut.index, ForceZeroCopy: true})
		if !errors.Is(err, unix.EOPNOTSUPP) || !strings.Contains(err.Error(), "open queue 0 of "+nut.name+": bind: the driver has no zero-copy") {
			t.Errorf("forced zero-copy: %v", err)
		}
		if zc, err := xdp.ProbeZeroCopy(nut.index, 0); zc || err != nil {
			t.Errorf("probe: %t, %v", zc, err)
		}
		for _, o := range []xdp.SocketOptions{{}, {ForceCopy: true}} {
			o.IfIndex = nut.index
			s, err := newUMEM(t, 64).Open(o)
			if err != nil {
				t.Fatalf("%+v after a refusal: %v", o, err)
			}
			mustBe(t, "zero-copy", s.ZeroCopy(), false)
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}

// What this kernel lacks is found out by asking and said; what it has is used.
func TestWhatTheKernelLacks(t *testing.T) {
	nut := byMAC(t, 0, 2)
	u := newUMEM(t, 64)
	s, err := u.Open(xdp.SocketOptions{IfIndex: nut.index})
	if err != nil {
		t.Fatal(err)
	}
	budget := 32
	if atLeast(t, 6, 17) {
		budget = 256
	}
	mustBe(t, "tx budget", s.Mode().TxBudget, budget)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	for name, own := range map[string]bool{"anchor": false, "no anchor": true} {
		v, err := xdp.NewUMEM(xdp.UMEMOptions{Chunks: 64, ChunkSize: chunkSize, NoAnchor: own})
		if err != nil {
			t.Fatal(err)
		}
		s, err := v.Open(xdp.SocketOptions{IfIndex: nut.index, MultiBuffer: true, ForceCopy: true})
		switch {
		case atLeast(t, 6, 6):
			if err != nil || !s.Mode().MultiBuffer {
				t.Errorf("%s: multi-buffer: %v", name, err)
			}
		case !errors.Is(err, unix.EINVAL) || !strings.Contains(err.Error(), "multi-buffer sockets need Linux 6.6"):
			t.Errorf("%s: multi-buffer without the kernel's help: %v", name, err)
		}
		if s != nil {
			err = s.Close()
		} else {
			err = nil
		}
		if err := errors.Join(err, v.Close()); err != nil {
			t.Error(err)
		}
	}
}

// Every frame of the kernel's own generator is counted by the NIC, by the program and by the socket, and comes once, in order.
// An emulated NIC that has no buffer free, since the guest is slow, leaves one frame in its own queue and the next in that of the
// emulator's hub; when it has buffers again the emulator (qemu_flush_queued_packets) empties the hub's queue first, and what the
// generator has ready follows at once. So there some frames may come late, one for each time that there was no buffer.
func TestEveryFrameOfPktgen(t *testing.T) {
	eachNIC(t, func(t *testing.T, c nicCase, gen, nut nic) {
		countAll(t, gen, nut, xdp.Auto, 50)
	})
	// Native mode only: pktgen's frames over a veth into a generic program panic some kernels.
	t.Run("veth", func(t *testing.T) {
		gen, nut := vethPair(t)
		countAll(t, gen, nut, xdp.Native, 0)
	})
}

// countAll sends 1000 frames of each size, of which so many may come later than a frame behind them.
func countAll(t *testing.T, gen, nut nic, mode xdp.Mode, mayBeLate int) {
	for _, size := range []int{60, 298, 1514} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			const frames = 1000
			e := nut.open(t, newUMEM(t, 4096), mode, 0, 1024)
			s := stream{from: gen.name, to: nut.mac, frames: frames, size: size, rate: 2000}
			if atLeast(t, 6, 7) {
				s.flags = []string{"!SHARED"}
			}
			if err := s.setUp(); err != nil {
				t.Fatal(err)
			}
			tx, rx := gen.counter(t, "tx_packets"), nut.counter(t, "rx_packets")
			done := make(chan error, 1)
			go func() { done <- s.run() }()
			next := make(map[int]uint32)
			seen := make(map[uint32]bool)
			late := 0
			got := e.receive(t, frames, time.Minute, func(q int, f []byte) {
				if len(f) != size || binary.BigEndian.Uint32(f[headers:]) != pktgenMagic {
					t.Fatalf("%d bytes: %x", len(f), f[:min(len(f), 64)])
				}
				number := binary.BigEndian.Uint32(f[headers+4:])
				if seen[number] {
					t.Fatalf("number %d twice", number)
				}
				if number < next[q] {
					if late++; late > mayBeLate {
						t.Fatalf("queue %d: number %d after %d; %d came late", q, number, next[q]-1, late)
					}
				}
				seen[number], next[q] = true, max(next[q], number+1)
			})
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			sent, failed := s.sent(t)
			mustBe(t, "pktgen sent", sent, frames)
			mustBe(t, "pktgen failed", failed, 0)
			counters, err := e.steer.Counters()
			if err != nil {
				t.Fatal(err)
			}
			mustBe(t, "received by the sockets", got, sent)
			mustBe(t, "lost before the sockets", e.lost(t), 0)
			mustBe(t, "counted by the program as ours", int(counters[xdp.TakenUDP]), sent)
			mustBe(t, "counted by the program in all", int(counters.Taken()+counters.Passed()), sent)
			mustBe(t, "sent by the generator's NIC", gen.settle(t, "tx_packets", tx, sent), sent)
			mustBe(t, "received by the NIC", nut.settle(t, "rx_packets", rx, sent), sent)
		})
	}
}

// Frames sent by one NIC's socket are received by the other's, both in one memory, and every chunk comes home.
func TestTransmit(t *testing.T) {
	eachNIC(t, func(t *testing.T, _ nicCase, gen, nut nic) {
		const perKick, rounds, first = 32, 40, 2048
		u := newUMEM(t, 4096)
		to := gen.open(t, u, xdp.Auto, 0, 512)
		from := nut.open(t, u, xdp.Auto, 1024, 64)
		tx := nut.counter(t, "tx_packets")
		sender := from.sockets[len(from.sockets)-1] // the last queue, so the second where there are two
		sizes := []int{60, 298, 1514}
		for round := range rounds {
			batch := make([]xdp.Desc, perKick)
			for i := range batch {
				batch[i] = xdp.Desc{Addr: uint64(first+i) * chunkSize, Len: uint32(sizes[(round+i)%len(sizes)])}
				numbered(u.Frame(batch[i]), nut.mac, gen.mac, uint32(round*perKick+i))
			}
			if n := sender.Transmit(batch); n != perKick {
				t.Fatalf("posted %d of %d", n, perKick)
			}
			home := make(map[uint64]int)
			var done [perKick]uint64
			for until := time.Now().Add(time.Minute); len(home) < perKick; {
				if err := sender.Kick(); err != nil {
					t.Fatal(err)
				}
				for _, a := range done[:sender.Complete(done[:])] {
					home[a]++
				}
				if time.Now().After(until) {
					t.Fatalf("round %d: %d of %d chunks came back, %d not taken", round, len(home), perKick, sender.TxPending())
				}
			}
			want := uint32(round * perKick)
			got := to.receive(t, perKick, time.Minute, func(_ int, f []byte) {
				size := sizes[(round+int(want)%perKick)%len(sizes)]
				if n := binary.BigEndian.Uint32(f[headers:]); n != want || len(f) != size {
					t.Fatalf("frame %d of %d bytes arrived, want %d of %d", n, len(f), want, size)
				}
				want++
			})
			mustBe(t, fmt.Sprintf("round %d", round), got, perKick)
		}
		mustBe(t, "sent by the NIC", nut.settle(t, "tx_packets", tx, perKick*rounds), perKick*rounds)
		counters, err := to.steer.Counters()
		if err != nil {
			t.Fatal(err)
		}
		mustBe(t, "counted by the receiver's program", int(counters[xdp.TakenUDP]), perKick*rounds)
	})
}

// vethPair makes a pair in the machine's own namespace, gone when the test ends.
func vethPair(t *testing.T) (gen, nut nic) {
	t.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "gen"
	pair := netlink.NewVeth(attrs)
	pair.PeerName = "nut"
	if err := netlink.LinkAdd(pair); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pktgen("kpktgend_1", "rem_device_all"); err != nil {
			t.Error(err)
		}
		if err := netlink.LinkDel(pair); err != nil {
			t.Error(err)
		}
	})
	ends := make([]nic, 2)
	for i, name := range []string{"gen", "nut"} {
		x, err := net.InterfaceByName(name)
		if err != nil {
			t.Fatal(err)
		}
		ends[i] = nic{x.Name, x.Index, x.HardwareAddr}
		link, err := netlink.LinkByIndex(x.Index)
		if err != nil {
			t.Fatal(err)
		}
		if err := netlink.LinkSetUp(link); err != nil {
			t.Fatal(err)
		}
	}
	for _, e := range ends {
		e.waitCarrier(t)
	}
	return ends[0], ends[1]
}
