package dataplane

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"gradnic/internal/logtest"
	"gradnic/internal/netlab"
	"gradnic/internal/netlab/netlabtest"
	"gradnic/wire/inet"
	"gradnic/wire/native"
	"gradnic/wire/switchml"
	"gradnic/xdp"
)

// udpFrame is a UDP datagram to the NIC's aggregation port in a frame of this size, at least 60; each word of its payload
// differs from the others.
func udpFrame(size int, number uint32) []byte {
	f := make([]byte, size)
	copy(f, nicMAC[:])
	m := workerMAC(0)
	copy(f[6:], m[:])
	binary.BigEndian.PutUint16(f[12:], inet.EtherTypeIPv4)
	f[14] = 0x45
	binary.BigEndian.PutUint16(f[16:], uint16(size-14))
	f[22], f[23] = 64, inet.ProtoUDP
	ip := workerIP(0)
	copy(f[26:], ip[:])
	copy(f[30:], nicIP[:])
	binary.BigEndian.PutUint16(f[24:], inet.Checksum(f[14:34]))
	binary.BigEndian.PutUint16(f[34:], 4000)
	binary.BigEndian.PutUint16(f[36:], switchml.PortBase)
	binary.BigEndian.PutUint16(f[38:], uint16(size-34))
	for o := 42; o+4 <= size; o += 4 {
		binary.BigEndian.PutUint32(f[o:], number*2654435761+uint32(o))
	}
	return f
}

// swapped is a frame as reflect sends it.
func swapped(f []byte) []byte {
	g := slices.Clone(f)
	copy(g[0:6], f[6:12])
	copy(g[6:12], f[0:6])
	return g
}

func jumboConfig(chunk, lanes int) Config {
	c := testConfig()
	c.ChunkSize, c.Lanes, c.LongestFrame = chunk, lanes, 9014
	return c
}

// TestJumboReflected: frames of every size pass a NIC whole and come back byte for byte, whatever the chunk size, between
// small ones, and every chunk is accounted for.
func TestJumboReflected(t *testing.T) {
	for _, chunk := range []int{2048, 4096} {
		for _, lanes := range []int{1, 3} {
			t.Run(fmt.Sprintf("chunk %d, %d lanes", chunk, lanes), func(t *testing.T) {
				n, mem := memNIC(t, jumboConfig(chunk, lanes), 1)
				if err := n.SetFunction("m0", Function{Kind: Reflect}); err != nil {
					t.Fatal(err)
				}
				rng := rand.New(rand.NewPCG(1, uint64(chunk)))
				buf := make([]byte, 10000)
				for i := range 2000 {
					size := 60 + rng.IntN(9014-59)
					if i%3 == 0 {
						size = 60 + rng.IntN(400)
					}
					f := udpFrame(size, uint32(i))
					mustSend(t, mem[0], f)
					k, err := mem[0].Recv(buf, time.Now().Add(5*time.Second))
					if err != nil || !bytes.Equal(buf[:k], swapped(f)) {
						t.Fatalf("frame %d of %d bytes: %d came back, %v", i, size, k, err)
					}
				}
				s := check(t, n)
				if s.Total.Received != 2000 || s.Total.Passed != 2000 || s.Total.Transmitted != 2000 {
					t.Fatalf("%+v", s.Total)
				}
				if err := mem[0].Send(make([]byte, 9015)); err == nil {
					t.Fatal("a frame longer than the longest was taken")
				}
			})
		}
	}
}

// TestJumboBursts fills the rings with chains, so that they are cut by batches and by full transmit rings; what comes
// back is whole, and losses have a reason.
func TestJumboBursts(t *testing.T) {
	n, mem := memNIC(t, jumboConfig(2048, 1), 2)
	if err := n.SetFunction("m0", Function{Kind: Forward, To: "m1"}); err != nil {
		t.Fatal(err)
	}
	sizes := []int{9014, 60, 4000, 1792, 1793, 9014, 9013, 3584, 3585}
	const frames = 600
	sent := map[uint32][]byte{}
	for i := range uint32(frames) {
		f := udpFrame(sizes[int(i)%len(sizes)], i)
		sent[binary.BigEndian.Uint32(f[42:])] = f
		mustSend(t, mem[0], f) // waits for the NIC, not for the receiver
	}
	s := waitReceived(t, n, frames)
	got := uint64(0)
	buf := make([]byte, 10000)
	for {
		k, err := mem[1].Recv(buf, time.Now().Add(50*time.Millisecond))
		if err != nil {
			break
		}
		got++
		f := sent[binary.BigEndian.Uint32(buf[42:])]
		if !bytes.Equal(f, buf[:k]) {
			t.Fatalf("a frame of %d bytes came as %d", len(f), k)
		}
	}
	s = check(t, n)
	if got == 0 || got+s.Total.Drops["tx-full"] != frames || s.Total.Dropped() != s.Total.Drops["tx-full"] {
		t.Fatalf("%d came: %+v", got, s.Total)
	}
}

// TestJumboImpaired: chains that are lost, doubled and delayed stay whole, and the ledger holds.
func TestJumboImpaired(t *testing.T) {
	n, mem := memNIC(t, jumboConfig(4096, 1), 1)
	if err := n.SetFunction("m0", Function{Kind: Reflect}); err != nil {
		t.Fatal(err)
	}
	if err := n.Impair("m0", Impairment{IngressLoss: 0.1, EgressLoss: 0.1, Duplicate: 0.3, Reorder: 0.3}); err != nil {
		t.Fatal(err)
	}
	quit, done := make(chan struct{}), make(chan error, 1)
	go func() {
		buf := make([]byte, 10000)
		for {
			k, err := mem[0].Recv(buf, time.Now().Add(time.Millisecond))
			if err == nil && !bytes.Equal(buf[:k], swapped(udpFrame(k, (binary.BigEndian.Uint32(buf[42:])-42)*244002641))) {
				done <- fmt.Errorf("a frame of %d bytes is not as it was sent", k)
				return
			}
			select {
			case <-quit:
				done <- nil
				return
			default:
			}
		}
	}()
	for i := range uint32(1500) {
		mustSend(t, mem[0], udpFrame(3000+int(i*37)%6014, i))
	}
	s := waitReceived(t, n, 1500)
	if err := n.Impair("m0", Impairment{}); err != nil {
		t.Fatal(err)
	}
	close(quit)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	s = check(t, n)
	if s.Total.Injected == 0 || s.Total.Drops["impaired-ingress"] == 0 || s.Total.InFlight != 0 || s.Frames.Held != 0 {
		t.Fatalf("%+v %+v", s.Total, s.Frames)
	}
}

// TestJumboEcho: an echo request of several chunks is answered whole.
func TestJumboEcho(t *testing.T) {
	for _, chunk := range []int{2048, 4096} {
		n, mem := memNIC(t, jumboConfig(chunk, 1), 1)
		f := udpFrame(9014, 7)
		f[23] = inet.ProtoICMP
		copy(f[24:], []byte{0, 0})
		binary.BigEndian.PutUint16(f[24:], inet.Checksum(f[14:34]))
		copy(f[34:], []byte{inet.ICMPEchoRequest, 0, 0, 0})
		binary.BigEndian.PutUint16(f[36:], inet.Checksum(f[34:]))
		mustSend(t, mem[0], f)
		buf := make([]byte, 10000)
		k, err := mem[0].Recv(buf, time.Now().Add(5*time.Second))
		if err != nil || k != len(f) || buf[34] != inet.ICMPEchoReply || inet.Checksum(buf[34:k]) != 0 || !bytes.Equal(buf[38:k], f[38:]) {
			t.Fatalf("%d bytes, %v: %x", k, err, buf[:60])
		}
		if s := check(t, n); s.Total.Answered != 1 {
			t.Fatalf("%+v", s.Total)
		}
	}
}

// TestJoin: however descriptors are cut into batches, the same frames come out; chains of too many pieces are dropped as a
// whole; no chunk is lost.
func TestJoin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const chunks = 400
		l := &lane{chunk: 2048, share: 2048 * chunks, shift: 11, counts: make([]portCounts, 1), chains: newChains(9014)}
		l.free = make([]uint64, 0, chunks)
		l.cfg = &Config{}
		var raw []Desc
		var want [][]Desc
		tooLong := uint64(0)
		for len(raw) < chunks-40 {
			n := rapid.IntRange(1, xdp.MaxPieces+2).Draw(t, "pieces")
			if rapid.Bool().Draw(t, "single") {
				n = 1
			}
			at := len(raw)
			for k := range n {
				raw = append(raw, Desc{Addr: uint64(at+k) << 11, Len: 100, Options: xdp.PacketContinues})
			}
			raw[len(raw)-1].Options = 0
			if n > xdp.MaxPieces {
				tooLong++
			} else {
				want = append(want, raw[at:at+n])
			}
		}
		var j joining
		var got [][]Desc
		frames := 0
		for rest := raw; len(rest) > 0; {
			n := min(rapid.IntRange(1, BatchSize).Draw(t, "batch"), len(rest))
			l.begin()
			frames += l.joinChains(&j, 0, rest[:n])
			rest = rest[n:]
			for i := range l.batch.n {
				got = append(got, append([]Desc{l.batch.desc[i]}, l.batch.tail(i)...))
				l.freeFrame(i)
			}
		}
		if !slices.EqualFunc(got, want, slices.Equal) {
			t.Fatalf("%d frames, want %d", len(got), len(want))
		}
		if frames != len(want)+int(tooLong) || l.counts[0][cDrops+int(Chained)] != tooLong || l.pieces != 0 || j.n != 0 {
			t.Fatalf("%d frames, %d dropped of %d, %d pieces left", frames, l.counts[0][cDrops+int(Chained)], tooLong, l.pieces)
		}
		slices.Sort(l.free)
		if len(l.free) != len(raw) || len(slices.Compact(l.free)) != len(raw) {
			t.Fatalf("%d chunks came back of %d", len(l.free), len(raw))
		}
	})
}

// TestMTUs is the matrix of MTUs and frames over veth: whole, or refused at the start; never cut.
func TestMTUs(t *testing.T) {
	for _, chunk := range []int{2048, 4096} {
		for _, mtu := range []int{1500, 3498, 3520, 9000} {
			t.Run(fmt.Sprintf("chunk %d, MTU %d", chunk, mtu), func(t *testing.T) {
				lab := netlabtest.New(t, "mtu")
				nic, peer := netlabtest.Namespace(t, lab, "nic"), netlabtest.Namespace(t, lab, "peer")
				netlabtest.Veth(t, lab, netlab.End{NS: nic, Name: "p0", MTU: mtu}, netlab.End{NS: peer, Name: "w", MTU: mtu})
				cfg := testConfig()
				cfg.ChunkSize = chunk
				n := startNIC(t, cfg, XDPPort{Interface: "p0", Namespace: nic.Do})
				needNative(t, n)
				if err := n.SetFunction("p0", Function{Kind: Reflect}); err != nil {
					t.Fatal(err)
				}
				if one := mtu <= 3498 && mtu+14 <= chunk-xdp.KernelHeadroom; n.multi == one {
					t.Fatalf("multi-buffer %t", n.multi)
				}
				w := openRaw(t, peer, "w")
				buf := make([]byte, 10000)
				sent := uint64(0)
				for i, size := range []int{60, 1514, 2048, 3000, 3512, 3534, 4110, 9014} {
					f := udpFrame(size, uint32(i))
					err := w.Send(f)
					if size > mtu+14 {
						if err == nil {
							t.Fatalf("the kernel sent %d bytes over an MTU of %d", size, mtu)
						}
						continue
					}
					if err != nil {
						t.Fatal(err)
					}
					sent++
					k, err := w.Recv(buf, time.Now().Add(5*time.Second))
					if err != nil || !bytes.Equal(buf[:k], swapped(f)) {
						t.Fatalf("frame of %d bytes: %d came back, %v", size, k, err)
					}
				}
				if s := check(t, n); s.Total.Received != sent || s.Total.Passed != sent || s.Ports[0].Kernel.TxInvalid != 0 {
					t.Fatalf("%d sent: %+v", sent, s.Total)
				}
			})
		}
	}
}

// TestMTURefused: a NIC that is told a longest frame refuses a netdev that makes longer ones, and says what would do.
func TestMTURefused(t *testing.T) {
	lab := netlabtest.New(t, "mtu")
	nic, peer := netlabtest.Namespace(t, lab, "nic"), netlabtest.Namespace(t, lab, "peer")
	netlabtest.Veth(t, lab, netlab.End{NS: nic, Name: "p0", MTU: 9000}, netlab.End{NS: peer, Name: "w", MTU: 9000})
	cfg := testConfig()
	cfg.LongestFrame = 1514
	n, err := New(cfg, XDPPort{Interface: "p0", Namespace: nic.Do})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Start(context.Background()); err == nil || !bytes.Contains([]byte(err.Error()), []byte("frames of 9014 bytes, the longest is to be 1792 (ip link set p0 mtu 1778")) {
		t.Fatalf("start: %v", err)
	}
	if id := linkProgram(t, nic, "p0"); id != 0 {
		t.Fatalf("program %d is left", id)
	}
	if _, err := New(Config{MAC: nicMAC, IP: nicIP, LongestFrame: 1 << 20}, NewMemPort("m")); err == nil {
		t.Fatal("a longest frame of 1 MiB")
	}
}

// TestJumboNative: a native job whose messages take several chunks: sums, duplicates, and the stored result for a worker
// that asks again are right, with one lane and with three, which hand chains over.
func TestJumboNative(t *testing.T) {
	const workers, slots, elements = 3, 8, 2200
	for _, chunk := range []int{2048, 4096} {
		for _, lanes := range []int{1, 3} {
			t.Run(fmt.Sprintf("chunk %d, %d lanes", chunk, lanes), func(t *testing.T) {
				n, ws := nativeJob(t, jumboConfig(chunk, lanes), JobSpec{Workers: workers, Slots: slots, Elements: elements})
				values := func(r, slot, round int) (b []byte, sum []byte) {
					for e := range elements {
						b = binary.LittleEndian.AppendUint32(b, uint32(e*1000+slot*7+round+r))
						sum = binary.LittleEndian.AppendUint32(sum, uint32(3*(e*1000+slot*7+round)+3))
					}
					return b, sum
				}
				message := func(r, slot, round int) []byte {
					b, _ := values(r, slot, round)
					return ws[r].frame(native.Header{Kind: native.Contribution, Epoch: ws[r].epoch, Slot: uint32(slot), Round: uint32(round), Elements: elements}, b)
				}
				duplicates := uint64(0)
				for round := range 4 {
					for slot := range slots {
						for r := range ws {
							mustSend(t, ws[r].port, message(r, slot, round))
							if r == 0 && slot%3 == 0 {
								mustSend(t, ws[r].port, message(r, slot, round)) // counts once
								duplicates++
								waitFor(t, n, func(s *Snapshot) bool { return s.Total.Duplicates == duplicates })
							}
						}
						_, want := values(0, slot, round)
						for _, w := range ws {
							w.result(want, 0)
						}
						if slot%4 == 1 {
							mustSend(t, ws[1].port, message(1, slot, round))
							ws[1].result(want, native.FlagResend)
							duplicates++
						}
					}
				}
				s := check(t, n)
				if s.Total.Contributed != 4*slots*workers || s.Total.Results != 4*slots || s.Total.Dropped() != 0 || s.Frames.Held != 0 {
					t.Fatalf("%+v", s.Total)
				}
				if lanes > 1 && s.Lanes[0].HandedOut+s.Lanes[1].HandedOut+s.Lanes[2].HandedOut == 0 {
					t.Fatal("nothing was handed over")
				}
			})
		}
	}
}

// TestJumboBeforeStart: a job with large messages is installed before the start, as after a restart, where the netdev's MTU
// is large enough, and refused where it is not.
func TestJumboBeforeStart(t *testing.T) {
	lab := netlabtest.New(t, "mtu")
	nic, peer := netlabtest.Namespace(t, lab, "nic"), netlabtest.Namespace(t, lab, "peer")
	netlabtest.Veth(t, lab, netlab.End{NS: nic, Name: "p0", MTU: 9000}, netlab.End{NS: peer, Name: "w0", MTU: 9000})
	netlabtest.Veth(t, lab, netlab.End{NS: nic, Name: "p1"}, netlab.End{NS: peer, Name: "w1"})
	for name, ok := range map[string]bool{"p0": true, "p1": false} {
		n, err := New(testConfig(), XDPPort{Interface: name, Namespace: nic.Do})
		if err != nil {
			t.Fatal(err)
		}
		err = n.InstallJob(JobSpec{Name: "j", Protocol: ProtocolNative, Workers: 2, Elements: 2000, Slots: 4})
		if (err == nil) != ok {
			t.Errorf("%s: %v", name, err)
		}
		if err := errors.Join(n.Start(context.Background()), n.Stop(context.Background())); err != nil {
			t.Error(err)
		}
	}
}

// TestJumboRebuild: a netdev of MTU 9000 is made again under chains; it heals, and no chunk is lost.
func TestJumboRebuild(t *testing.T) {
	l := &vethLab{Lab: netlabtest.New(t, "dp")}
	l.nic = netlabtest.Namespace(t, l.Lab, "nic")
	l.workers = []*netlab.NS{netlabtest.Namespace(t, l.Lab, "w0")}
	create := func() *rawEnd {
		netlabtest.Veth(t, l.Lab, netlab.End{NS: l.workers[0], Name: "w", MTU: 9000}, netlab.End{NS: l.nic, Name: "p0", MTU: 9000})
		return openRaw(t, l.workers[0], "w")
	}
	w := create()
	var log logtest.Lines
	cfg := testConfig()
	cfg.ChunkSize, cfg.Logger = 4096, log.Logger()
	n := startNIC(t, cfg, l.ports()...)
	if err := n.SetFunction("p0", Function{Kind: Reflect}); err != nil {
		t.Fatal(err)
	}
	before := check(t, n).Frames
	works := func() {
		t.Helper()
		buf := make([]byte, 10000)
		f := udpFrame(9014, 5)
		for deadline := newDeadline(t, healWithin); ; {
			if err := w.Send(f); err == nil {
				if k, err := w.Recv(buf, time.Now().Add(50*time.Millisecond)); err == nil && bytes.Equal(buf[:k], swapped(f)) {
					return
				}
			}
			if deadline.ended() {
				t.Fatalf("not within %v", deadline.limit)
			}
		}
	}
	for range 3 {
		works()
		stop := flood(w, [][]byte{udpFrame(9014, 1), udpFrame(60, 2), udpFrame(5000, 3)})
		time.Sleep(5 * time.Millisecond)
		l.delete(t, 0)
		stop()
		waitState(t, n, 0, StateDown, "does not exist")
		if s := check(t, n); s.Frames.Free != s.Frames.Total {
			t.Fatalf("%+v", s.Frames)
		}
		w = create()
		works()
	}
	waitFor(t, n, func(s *Snapshot) bool { return s.Frames.Transmit == 0 })
	if s := check(t, n); s.Frames != before {
		t.Fatalf("%+v, were %+v", s.Frames, before)
	}
	if bad := log.With("are known"); len(bad) != 0 {
		t.Fatalf("the ledger was wrong: %s", bad)
	}
}
