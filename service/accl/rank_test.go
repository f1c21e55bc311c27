package accl_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"gradnic/dataplane"
	"gradnic/internal/acclcheck"
	"gradnic/internal/acclcheck/rig"
	"gradnic/service/accl"
	wire "gradnic/wire/accl"
	"gradnic/wire/inet"
	worker "gradnic/worker/accl"
	"gradnic/xdp"
)

// full tries every size where a short run takes some: make accl-full.
var full = flag.Bool("full", false, "try every size")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// peers are the ranks of a communicator in memory.
func peers(n int) (ps []worker.Peer) {
	for i := range n {
		ps = append(ps, worker.Peer{IP: inet.Addr{10, 10, 10, byte(i + 1)}, MAC: inet.MAC{2, 0, 0, 0, 0x55, byte(i + 1)}})
	}
	return ps
}

// start starts a NIC that has the address of a rank, and attaches the rank.
func start(t testing.TB, cfg worker.Config, chunk int, ports ...dataplane.PortSpec) (*dataplane.NIC, *accl.Rank) {
	t.Helper()
	own := cfg.Ranks[cfg.Rank]
	name, longest := "m", wire.FrameLen
	if p, ok := ports[0].(dataplane.XDPPort); ok {
		name, longest = p.Interface, 0 // as its MTU says
	}
	n, err := dataplane.New(dataplane.Config{MAC: own.MAC, IP: own.IP, ChunkSize: chunk, LongestFrame: longest}, ports...)
	if err != nil {
		t.Fatal(err)
	}
	r, err := accl.Attach(n, accl.Config{Config: cfg, Ports: []string{name}})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(r.Close(), n.Stop(context.Background())); err != nil {
			t.Error(err)
		}
		s := n.Snapshot()
		if err := s.Check(); err != nil {
			t.Error(err)
		}
	})
	return n, r
}

// TestFrames: what the NIC puts on the wire for one all-reduce of two ranks is, frame by frame, what a rank of the pure
// engine makes, whose UDP payloads are held against the card's record: headers of the card's network stack included.
func TestFrames(t *testing.T) {
	for _, chunk := range []int{2048, 4096} {
		for _, count := range []int{17, 5000} {
			t.Run(fmt.Sprint(chunk, " ", count), func(t *testing.T) {
				j := acclcheck.New(worker.Call{Collective: worker.AllReduce, Type: worker.Float32, Count: count}, 2, worker.DefaultSegment, 1)
				again := acclcheck.New(worker.Call{Collective: worker.AllReduce, Type: worker.Float32, Count: count}, 2, worker.DefaultSegment, 1)
				cfg := worker.Config{Rank: 0, Ranks: peers(2)}
				port := dataplane.NewMemPort("m")
				_, rank := start(t, cfg, chunk, port)
				other, err := worker.NewResponder(worker.Config{Rank: 1, Ranks: peers(2)}, j.Of(1)...)
				if err != nil {
					t.Fatal(err)
				}
				same, err := worker.NewResponder(cfg, again.Of(0)...)
				if err != nil {
					t.Fatal(err)
				}
				ended := make(chan error, 1)
				go func() { ended <- rank.Do(t.Context(), j.Of(0)[0]) }()
				want := same.Frames(same.Start())
				send := func(frames [][]byte) {
					for _, f := range frames {
						if err := port.Send(f); err != nil {
							t.Fatal(err)
						}
						more, err := same.Frame(f)
						if err != nil {
							t.Fatal(err)
						}
						want = append(want, more...)
					}
				}
				send(other.Frames(other.Start()))
				buf := make([]byte, 10000)
				for n := 0; !other.Done() || n < len(want); n++ {
					k, err := port.Recv(buf, time.Now().Add(5*time.Second))
					if err != nil {
						t.Fatalf("frame %d: %v", n, err)
					}
					got := buf[:k]
					if n >= len(want) || !bytes.Equal(got, want[n]) {
						t.Fatalf("frame %d:\n%x, want\n%x", n, got, want[min(n, len(want)-1)])
					}
					ip := got[14:34]
					if ip[0] != 0x45 || ip[1] != 0 || ip[4]|ip[5] != 0 || ip[6]|ip[7] != 0 || ip[8] != 64 || inet.Checksum(ip) != 0 || got[40]|got[41] != 0 {
						t.Fatalf("frame %d: headers %x", n, got[14:42])
					}
					out, err := other.Frame(got)
					if err != nil {
						t.Fatal(err)
					}
					send(out)
				}
				if err := <-ended; err != nil {
					t.Fatal(err)
				}
				for r := range 2 {
					if _, err := j.Wrong(r); err != nil {
						t.Fatal(err)
					}
				}
			})
		}
	}
}

// TestGolden: the all-reduce that the card's emulator sent, played to a NIC in either role: its frames carry the recorded
// bytes, padding included, and nothing else.
func TestGolden(t *testing.T) {
	record, err := acclcheck.Record("../../wire/accl/testdata/allreduce17-w2.txt")
	if err != nil {
		t.Fatal(err)
	}
	for rank := range 2 {
		t.Run(fmt.Sprint("rank ", rank), func(t *testing.T) {
			ps := peers(2)
			port := dataplane.NewMemPort("m")
			_, r := start(t, worker.Config{Rank: rank, Ranks: ps, CardPadding: true}, 2048, port)
			x := make([]float64, 17)
			for i := range x {
				x[i] = float64(float32(rank+1) + float32(i)/10)
			}
			call := worker.Call{Collective: worker.AllReduce, Type: worker.Float32, Count: 17, Src: acclcheck.Encode(worker.Float32, x), Dst: make([]byte, 68)}
			ended := make(chan error, 1)
			go func() { ended <- r.Do(t.Context(), call) }()
			buf := make([]byte, 5000)
			for _, p := range record {
				from, to, payload := p.From, p.To, p.Payload
				if from == rank {
					k, err := port.Recv(buf, time.Now().Add(5*time.Second))
					if err != nil || !bytes.Equal(buf[wire.PayloadOffset:k], payload) {
						t.Fatalf("%v: sent\n%x, recorded\n%x", err, buf[wire.PayloadOffset:max(k, wire.PayloadOffset)], payload)
					}
					continue
				}
				frame := make([]byte, wire.PayloadOffset+len(payload))
				a := wire.Endpoint{MAC: ps[from].MAC, IP: ps[from].IP, Port: uint16(wire.BasePort + from)}
				b := wire.Endpoint{MAC: ps[to].MAC, IP: ps[to].IP, Port: uint16(wire.BasePort + to)}
				wire.PutFrame(frame, &a, &b, len(payload))
				copy(frame[wire.PayloadOffset:], payload)
				if err := port.Send(frame); err != nil {
					t.Fatal(err)
				}
			}
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
			for i, v := range acclcheck.Decode(worker.Float32, call.Dst) {
				if want := (1 + float32(i)/10) + (2 + float32(i)/10); float32(v) != want {
					t.Errorf("element %d: %v, want %v", i, v, want)
				}
			}
		})
	}
}

// TestOverXDP: ranks in NICs over veth by AF_XDP, alone and among ranks on sockets, do every collective on many sizes,
// equal to the reference. Frames are longer than a chunk.
func TestOverXDP(t *testing.T) {
	for _, c := range []struct {
		name  string
		ranks int
		nic   func(r int) bool
		chunk int
	}{
		{"two NICs", 2, func(int) bool { return true }, 4096},
		{"three, one on a socket, chunks of 2048", 3, func(r int) bool { return r != 1 }, 2048},
	} {
		t.Run(c.name, func(t *testing.T) {
			net := rig.New(t, c.ranks, func(r int) bool { return !c.nic(r) })
			var rs []worker.Rank
			for r := range c.ranks {
				ranks := net.Peers
				if !c.nic(r) {
					rs = append(rs, net.UDP(t, worker.Config{Rank: r, Ranks: net.Peers}))
					continue
				}
				port := dataplane.XDPPort{Interface: rig.Interface, Namespace: net.Spaces[r].Do, Mode: xdp.Native}
				_, k := start(t, worker.Config{Rank: r, Ranks: ranks}, c.chunk, port)
				rs = append(rs, k)
			}
			begin := time.Now()
			done := rig.Sweep(t, rs, worker.DefaultSegment, *full)
			t.Logf("%d collectives in %v", done, time.Since(begin).Round(time.Millisecond))
			long := acclcheck.New(worker.Call{Collective: worker.AllReduce, Type: worker.Float32, Count: 100_000}, c.ranks, worker.DefaultSegment, 1)
			if err := rig.Do(t.Context(), rs, long); err != nil {
				t.Fatal(err)
			}
			for r, k := range rs {
				if s := k.Stats(); s.Faults != ([wire.NumFaults]uint64{}) || s.Sent == 0 || s.Received == 0 {
					t.Errorf("rank %d: %+v", r, s)
				}
			}
		})
	}
}

// TestAccidentsOverXDP: a NIC among three loses one frame of an allreduce, exactly. The rank that misses it names it at
// once or at its deadline; the others name whom they wait for; the frames are accounted for under their reason.
func TestAccidentsOverXDP(t *testing.T) {
	const timeout = 300 * time.Millisecond
	n := rig.New(t, 3, func(int) bool { return false })
	var rs []*accl.Rank
	var nics []*dataplane.NIC
	for r := range 3 {
		nic, k := start(t, worker.Config{Rank: r, Ranks: n.Peers, Timeout: timeout}, 4096,
			dataplane.XDPPort{Interface: rig.Interface, Namespace: n.Spaces[r].Do, Mode: xdp.Native})
		rs, nics = append(rs, k), append(nics, nic)
	}
	if err := nics[2].Impair(rig.Interface, dataplane.Impairment{DropEgress: []uint64{2}}); err != nil {
		t.Fatal(err)
	}
	j := acclcheck.New(worker.Call{Collective: worker.AllReduce, Type: worker.Int64, Count: 2000}, 3, worker.DefaultSegment, 1)
	errs := make(chan error, 3)
	for r := range 3 {
		go func() { errs <- rs[r].Do(t.Context(), j.Of(r)[0]) }()
	}
	lost, late := 0, 0
	for range 3 {
		err := <-errs
		var pe *worker.PeerError
		switch {
		case !errors.As(err, &pe):
			t.Errorf("%v", err)
		case pe.Rank == 0:
			if pe.Peer != 2 {
				t.Errorf("%v", err)
			}
			lost++
		case pe.Why == worker.ErrTimeout && pe.Peer == pe.Rank-1:
			late++
		default:
			t.Errorf("%v", err)
		}
	}
	if lost != 1 || late != 2 {
		t.Errorf("%d ranks name the lost frame, %d a timeout", lost, late)
	}
	for r := range 3 {
		if err := rs[r].Do(t.Context(), j.Of(r)[0]); !errors.Is(err, worker.ErrEnded) {
			t.Errorf("rank %d afterwards: %v", r, err)
		}
	}
}

// TestOvertakenOverXDP: frames overtake each other on their way to one of two receivers of a broadcast. It names that at
// once, and its NIC counts the frames under their reasons; the other one has all elements.
func TestOvertakenOverXDP(t *testing.T) {
	n := rig.New(t, 3, func(int) bool { return false })
	var rs []*accl.Rank
	var nics []*dataplane.NIC
	for r := range 3 {
		nic, k := start(t, worker.Config{Rank: r, Ranks: n.Peers}, 4096,
			dataplane.XDPPort{Interface: rig.Interface, Namespace: n.Spaces[r].Do, Mode: xdp.Native})
		rs, nics = append(rs, k), append(nics, nic)
	}
	if err := nics[0].Impair(rig.Interface, dataplane.Impairment{Reorder: 0.3}); err != nil {
		t.Fatal(err)
	}
	j := acclcheck.New(worker.Call{Collective: worker.Bcast, Type: worker.Float32, Count: 100_000, Root: 2}, 3, worker.DefaultSegment, 1)
	errs := make([]error, 3)
	var g sync.WaitGroup
	for r := range 3 {
		g.Go(func() { errs[r] = rs[r].Do(t.Context(), j.Of(r)[0]) })
	}
	g.Wait()
	var pe *worker.PeerError
	if !errors.As(errs[0], &pe) || pe.Peer != 2 || pe.Why != worker.ErrLost || pe.Fault != wire.Ahead {
		t.Errorf("rank 0: %v", errs[0])
	}
	if errs[1] != nil || errs[2] != nil {
		t.Errorf("rank 1: %v, rank 2: %v", errs[1], errs[2])
	}
	if _, err := j.Wrong(1); err != nil {
		t.Error(err)
	}
	deadline := time.Now().Add(5 * time.Second)
	for {
		drops := nics[0].Snapshot().Total.Drops
		if drops["accl-ahead"] == 1 && drops["accl-out-of-step"] > 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("drops %v", drops)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// TestEnds: calls end when their context does, when the rank is closed and when the NIC stops.
func TestEnds(t *testing.T) {
	call := acclcheck.New(worker.Call{Collective: worker.AllReduce, Type: worker.Int32, Count: 10}, 2, worker.DefaultSegment, 1).Of(0)[0]
	cfg := worker.Config{Rank: 0, Ranks: peers(2), Timeout: time.Minute}
	soon := 30 * time.Millisecond
	for _, c := range []struct {
		name string
		end  func(cancel func(), n *dataplane.NIC, r *accl.Rank)
		want error
	}{
		{"context", func(cancel func(), _ *dataplane.NIC, _ *accl.Rank) { cancel() }, context.Canceled},
		{"closed", func(_ func(), _ *dataplane.NIC, r *accl.Rank) { r.Close() }, net.ErrClosed},
		{"stopped", func(_ func(), n *dataplane.NIC, _ *accl.Rank) { _ = n.Stop(context.Background()) }, worker.ErrTimeout},
	} {
		t.Run(c.name, func(t *testing.T) {
			n, r := start(t, cfg, 2048, dataplane.NewMemPort("m"))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			time.AfterFunc(soon, func() { c.end(cancel, n, r) })
			begin := time.Now()
			if err := r.Do(ctx, call); !errors.Is(err, c.want) || time.Since(begin) > 20*time.Second {
				t.Errorf("after %v: %v", time.Since(begin), err)
			}
			if err := r.Do(t.Context(), call); !errors.Is(err, worker.ErrEnded) {
				t.Errorf("afterwards: %v", err)
			}
		})
	}
}

// TestResolve: ranks whose kernel answers, and one whose NIC does, are found by ARP from an interface without an address,
// under a NIC that runs on it; a rank that is not there is named.
func TestResolve(t *testing.T) {
	n := rig.New(t, 3, func(r int) bool { return r == 1 })
	for _, r := range []int{0, 2} {
		start(t, worker.Config{Rank: r, Ranks: n.Peers}, 4096, dataplane.XDPPort{Interface: rig.Interface, Namespace: n.Spaces[r].Do, Mode: xdp.Native})
	}
	unknown := append([]worker.Peer{}, n.Peers...)
	for i := range unknown {
		unknown[i].MAC = inet.MAC{}
	}
	resolve := func(ps []worker.Peer, d time.Duration) (found []worker.Peer, err error) {
		ctx, cancel := context.WithTimeout(t.Context(), d)
		defer cancel()
		err = n.Spaces[0].Do(func() error {
			found, err = accl.Resolve(ctx, rig.Interface, n.Peers[0], ps)
			return err
		})
		return found, err
	}
	found, err := resolve(unknown, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	for i := 1; i < 3; i++ {
		if found[i].MAC != n.Peers[i].MAC {
			t.Errorf("rank %d is at %v, found at %v", i, n.Peers[i].MAC, found[i].MAC)
		}
	}
	unknown[2].IP[3] = 77
	if _, err := resolve(unknown, 300*time.Millisecond); !errors.Is(err, context.DeadlineExceeded) || !bytes.Contains([]byte(err.Error()), []byte("[10.10.10.77]")) {
		t.Errorf("%v", err)
	}
}
