package bump

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"gradnic/dataplane"
	"gradnic/internal/logtest"
	wire "gradnic/wire/bump"
	"gradnic/wire/inet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bumpNIC is a NIC with a bump between two ports in memory.
type bumpNIC struct {
	*Bump
	nic        *dataplane.NIC
	host, wire *dataplane.MemPort
	stopped    bool
}

func startBump(t *testing.T, o Options, log *slog.Logger, rules ...string) *bumpNIC {
	t.Helper()
	return startBumpOn(t, dataplane.Config{}, o, log, rules...)
}

func startBumpOn(t *testing.T, cfg dataplane.Config, o Options, log *slog.Logger, rules ...string) *bumpNIC {
	t.Helper()
	for _, r := range rules {
		o.Rules = append(o.Rules, mustRule(t, r))
	}
	b := &bumpNIC{host: dataplane.NewMemPort("host"), wire: dataplane.NewMemPort("wire")}
	var err error
	cfg.MAC, cfg.IP, cfg.FramesPerQueue, cfg.Wait = inet.MAC{2, 0x67, 192, 0, 2, 1}, inet.Addr{192, 0, 2, 1}, 512, dataplane.Interrupt
	b.nic, err = dataplane.New(cfg, b.host, b.wire)
	if err != nil {
		t.Fatal(err)
	}
	if b.Bump, err = Serve(b.nic, ServeOptions{Host: "host", Wire: "wire", Engine: o, Logger: log}); err != nil {
		t.Fatal(err)
	}
	if err := b.nic.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.stop(t) })
	return b
}

func (b *bumpNIC) stop(t *testing.T) {
	if b.stopped {
		return
	}
	b.stopped = true
	if err := b.Bump.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	if err := b.nic.Stop(context.Background()); err != nil {
		t.Errorf("stop: %v", err)
	}
	s := b.nic.Snapshot()
	if err := s.Check(); err != nil {
		t.Errorf("after stop: %v", err)
	}
}

// cable takes frames from one port in memory to another until either NIC stops. way may lose, double and hold them.
func cable(wg *sync.WaitGroup, from, to *dataplane.MemPort, way func(frame []byte, send func([]byte))) {
	wg.Add(1)
	go func() {
		defer wg.Done()
		buf := make([]byte, 9100)
		send := func(f []byte) { _ = to.Send(f) } // a NIC that has stopped loses it
		for {
			n, err := from.Recv(buf, time.Now().Add(50*time.Millisecond))
			if errors.Is(err, os.ErrDeadlineExceeded) {
				continue
			}
			if err != nil {
				return
			}
			if way == nil {
				send(buf[:n])
			} else {
				way(buf[:n], send)
			}
		}
	}()
}

// awaitPeer waits for the far end of a bump.
func awaitPeer(t *testing.T, b *bumpNIC, want PeerState) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); ; {
		s := b.Status()
		for _, p := range s.Peers {
			if p.State == want {
				return
			}
		}
		if time.Now().After(end) {
			t.Fatalf("no far end that is %v: %+v", want, s)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// received collects what a host gets, until its NIC stops.
type received struct {
	mu     sync.Mutex
	frames [][]byte
}

func (r *received) from(wg *sync.WaitGroup, p *dataplane.MemPort) {
	wg.Add(1)
	go func() {
		defer wg.Done()
		buf := make([]byte, 9100)
		for {
			n, err := p.Recv(buf, time.Time{})
			if err != nil {
				return
			}
			if f := buf[:n]; f[12] == 8 && f[13] == 6 || tagOf(f) == 0 {
				continue // what made the far ends known
			}
			r.mu.Lock()
			r.frames = append(r.frames, bytes.Clone(buf[:n]))
			r.mu.Unlock()
		}
	}()
}

func (r *received) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.frames)
}

// lossy loses, doubles and reorders frames.
func lossy(seed uint64, loss, double, hold float64) func([]byte, func([]byte)) {
	r := rand.New(rand.NewPCG(seed, 1))
	var held [][]byte
	return func(f []byte, send func([]byte)) {
		if r.Float64() < loss {
			return
		}
		if r.Float64() < hold {
			held = append(held, bytes.Clone(f))
			return
		}
		send(f)
		if r.Float64() < double {
			send(f)
		}
		if len(held) > 3 || r.Float64() < 0.2 {
			for _, h := range held {
				send(h)
			}
			held = held[:0]
		}
	}
}

// TestTwoNICs: frames of several rules over two NICs on lanes, both ways at once, with perfect and with bad cables between.
func TestTwoNICs(t *testing.T) {
	rules := []string{
		"udp dport=9000 offset=17 type=float32 codec=bfp16",
		"udp dport=9001 offset=17 type=float32 order=big codec=fp16",
		"udp dport=9004 offset=17 type=word32 codec=lossless",
		"tcp dport=9005 codec=lossless",
	}
	for _, c := range []struct {
		name               string
		loss, double, hold float64
	}{{"perfect", 0, 0, 0}, {"bad", 0.05, 0.05, 0.1}} {
		t.Run(c.name, func(t *testing.T) {
			var nics [2]*bumpNIC
			var got [2]received
			var wg sync.WaitGroup
			for side := range 2 {
				nics[side] = startBump(t, Options{Hold: time.Duration(side) * 100 * time.Microsecond}, nil, rules...)
			}
			for side := range 2 {
				cable(&wg, nics[side].wire, nics[1-side].wire, lossy(uint64(side), c.loss, c.double, c.hold))
				got[side].from(&wg, nics[side].host)
				if err := nics[side].host.Send(arpFrom(side)); err != nil {
					t.Fatal(err)
				}
			}
			for side := range 2 {
				for end := time.Now().Add(5 * time.Second); ; {
					if err := nics[side].host.Send(datagram(side, 1, 9000, 0, append(make([]byte, 17), make([]byte, 400)...))); err != nil {
						t.Fatal(err)
					}
					if s := nics[side].Status(); len(s.Peers) > 0 && s.Peers[0].State == Present {
						break
					}
					if time.Now().After(end) {
						t.Fatal("no far end")
					}
					time.Sleep(time.Millisecond)
				}
			}
			const frames = 1500
			var sent [2]map[uint64][]byte
			var senders sync.WaitGroup
			for side := range 2 {
				sent[side] = map[uint64][]byte{}
				r := rand.New(rand.NewPCG(uint64(side), 7))
				for i := range frames {
					sent[side][uint64(i+1)] = anyFrame(r, side, uint64(i+1))
				}
				senders.Add(1)
				go func() {
					defer senders.Done()
					for i := range frames {
						// A NIC drops what a port does not take: its rings hold a few hundred frames. On a wire that loses some
						// nobody knows how many are still to come, so there the own NIC's count is what is waited for.
						for c.name == "perfect" && i-got[1-side].count() > 100 {
							time.Sleep(20 * time.Microsecond)
						}
						for c.name != "perfect" && i%50 == 0 && nics[side].Status().Counters.Host.Frames+50 < uint64(i) {
							time.Sleep(20 * time.Microsecond)
						}
						if err := nics[side].host.Send(sent[side][uint64(i+1)]); err != nil {
							t.Error(err)
							return
						}
					}
				}()
			}
			senders.Wait()
			for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
				if c.name == "perfect" && got[0].count() >= frames && got[1].count() >= frames {
					break
				}
				if c.name != "perfect" && nics[0].Status().Counters.Host.Frames > frames && nics[1].Status().Counters.Host.Frames > frames {
					time.Sleep(50 * time.Millisecond)
					break
				}
			}
			for side := range 2 {
				s := nics[side].Status()
				if s.Counters.Compressed.Frames < frames/3 || s.Counters.Restored.Frames == 0 {
					t.Errorf("side %d: %+v", side, s.Counters)
				}
			}
			for side := range 2 {
				nics[side].stop(t)
			}
			wg.Wait()
			for side := range 2 {
				seen := 0
				last := map[[2]byte]uint64{} // by destination port: rules keep the order of a flow
				for _, f := range got[1-side].frames {
					tag := tagOf(f)
					want := sent[side][tag]
					if want == nil {
						t.Fatalf("a frame that nobody sent: %x", f)
					}
					if why := near(want, f, ruleIn(nics[side].engine, want)); why != "" {
						t.Fatalf("frame %d to port %d: %s", tag, binary.BigEndian.Uint16(want[36:]), why)
					}
					seen++
					flow := [2]byte{f[35], f[37]}
					if c.name == "perfect" && tag <= last[flow] {
						t.Fatalf("frame %d came after %d of its flow", tag, last[flow])
					}
					last[flow] = tag
				}
				if c.name == "perfect" && seen != frames {
					t.Errorf("%d of %d frames arrived", seen, frames)
				}
				if seen < frames/2 {
					t.Errorf("%d of %d frames arrived", seen, frames)
				}
			}
		})
	}
}

// TestJumboFrames: frames of several chunks, on both sides of both NICs.
func TestJumboFrames(t *testing.T) {
	var nics [2]*bumpNIC
	var wg sync.WaitGroup
	var got received
	for side := range 2 {
		nics[side] = startBumpOn(t, dataplane.Config{LongestFrame: 9014, ChunkSize: 2048}, Options{HostFrame: 9014, WireFrame: 9014}, nil, gradRule)
	}
	for side := range 2 {
		cable(&wg, nics[side].wire, nics[1-side].wire, nil)
		if err := nics[side].host.Send(arpFrom(side)); err != nil {
			t.Fatal(err)
		}
	}
	got.from(&wg, nics[1].host)
	r := rand.New(rand.NewPCG(31, 32))
	frame := func(i int) []byte {
		payload := append(make([]byte, 8), gradient(r, 2000+r.IntN(200), false)...)
		binary.BigEndian.PutUint64(payload, uint64(i))
		return datagram(0, 1, 9000, uint16(i), payload)
	}
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		if err := nics[0].host.Send(frame(0)); err != nil {
			t.Fatal(err)
		}
		if s := nics[0].Status(); len(s.Peers) > 0 && s.Peers[0].State == Present {
			break
		}
		if time.Now().After(end) {
			t.Fatal("no far end")
		}
	}
	const frames = 300
	sent := map[uint64][]byte{}
	for i := 1; i <= frames; i++ {
		f := frame(i)
		sent[uint64(i)] = f
		for i-got.count() > 20 {
			time.Sleep(20 * time.Microsecond)
		}
		if err := nics[0].host.Send(f); err != nil {
			t.Fatal(err)
		}
	}
	for end := time.Now().Add(5 * time.Second); got.count() < frames && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	c := nics[0].Status().Counters
	for side := range 2 {
		nics[side].stop(t)
	}
	wg.Wait()
	rule := mustRule(t, gradRule)
	if len(got.frames) != frames || c.Compressed.Frames < frames {
		t.Fatalf("%d of %d arrived: %+v", len(got.frames), frames, c)
	}
	for _, f := range got.frames {
		if why := near(sent[tagOf(f)], f, &rule); why != "" {
			t.Fatal(why)
		}
	}
}

// TestCorruptFramesOnTheWire: each is dropped by the NIC under its reason, and the accounts hold.
func TestCorruptFramesOnTheWire(t *testing.T) {
	b := startBump(t, Options{}, nil, gradRule)
	p := newPair(t, gradRule)
	p.meet()
	p.host(0, datagram(0, 1, 9000, 1, append(make([]byte, 8), gradient(rand.New(rand.NewPCG(1, 2)), 100, false)...)))
	good := p.onWire[0][0]
	seal := func(change func(b []byte)) []byte {
		f := bytes.Clone(good)
		change(f)
		wire.Seal(f, &wire.Header{Dst: hostMAC[1], Src: hostMAC[0], Kind: wire.Data, Items: int(f[15]), Boot: 1})
		return f
	}
	for _, c := range []struct {
		reason string
		frame  []byte
	}{
		{"bump-short", good[:20]},
		{"bump-checksum", func() []byte { f := bytes.Clone(good); f[40]++; return f }()},
		{"bump-version", func() []byte { f := bytes.Clone(good); f[14] = 0x31; return f }()},
		{"bump-codec", seal(func(f []byte) { f[43] = 200 })},
		{"bump-payload", seal(func(f []byte) { f[43] = 3 })},
		{"bump-item", seal(func(f []byte) { f[42] |= 0x20 })},
		{"bump-header", seal(func(f []byte) { f[48+8]++ })},
		{"bump-length", seal(func(f []byte) { f[15] = 2 })},
	} {
		if err := b.wire.Send(c.frame); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
			s := b.nic.Snapshot()
			if s.Total.Drops[c.reason] == 1 || c.reason == "bump-length" && b.Status().Counters.Faults[wire.BadLength] == 1 {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("%s: drops %v", c.reason, s.Total.Drops)
			}
		}
	}
	c := b.Status().Counters
	if c.Restored.Frames != 1 { // the one item before the fault of the last
		t.Errorf("%+v", c)
	}
}

// TestLogsFarEnds: a warning when there is none, a line when it comes, and good-bye at the end.
func TestLogsFarEnds(t *testing.T) {
	var log logtest.Lines
	a := startBump(t, Options{HelloEvery: 2 * time.Millisecond, DeadAfter: 50 * time.Millisecond}, slog.New(slog.NewTextHandler(&log, nil)), gradRule)
	frame := datagram(0, 1, 9000, 0, make([]byte, 900))
	talk := func(until string) {
		t.Helper()
		for end := time.Now().Add(10 * time.Second); !strings.Contains(log.String(), until); time.Sleep(2 * time.Millisecond) {
			if err := a.host.Send(frame); err != nil {
				t.Fatal(err)
			}
			if time.Now().After(end) {
				t.Fatalf("the log has no %q:\n%s", until, log.String())
			}
		}
	}
	var wg sync.WaitGroup
	var to *dataplane.MemPort
	var mu sync.Mutex
	cable(&wg, a.wire, nil, func(f []byte, _ func([]byte)) {
		mu.Lock()
		defer mu.Unlock()
		if to != nil {
			_ = to.Send(f) // as a wire would
		}
	})
	plug := func(b *bumpNIC) {
		mu.Lock()
		defer mu.Unlock()
		to = nil
		if b != nil {
			to = b.wire
			cable(&wg, b.wire, a.wire, nil)
		}
	}
	talk("no NIC answers")
	b := startBump(t, Options{}, nil)
	plug(b)
	if err := b.host.Send(arpFrom(1)); err != nil {
		t.Fatal(err)
	}
	talk("a NIC answers")
	awaitPeer(t, a, Present)
	b.stop(t)
	plug(nil)
	talk("goes away")
	b = startBump(t, Options{}, nil)
	plug(b)
	if err := b.host.Send(arpFrom(1)); err != nil {
		t.Fatal(err)
	}
	talk("started again")
	awaitPeer(t, a, Present)
	plug(nil) // cut
	talk("does not answer any more")
	b.stop(t)
	a.stop(t)
	wg.Wait()
}

func ruleIn(e *Engine, f []byte) *Rule { return ruleOf(&pair{e: [2]*Engine{e, e}}, f) }

func TestServeRefused(t *testing.T) {
	n, err := dataplane.New(dataplane.Config{MAC: inet.MAC{2}, IP: inet.Addr{192, 0, 2, 1}}, dataplane.NewMemPort("a"), dataplane.NewMemPort("b"))
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range []ServeOptions{{Host: "x", Wire: "b"}, {Host: "a", Wire: "x"}, {Host: "a", Wire: "a"}, {Host: "a", Wire: "b", Lane: 3}, {Host: "a", Wire: "b", Engine: Options{HostFrame: 1}}} {
		if b, err := Serve(n, o); err == nil {
			t.Errorf("%+v is taken", o)
			_ = b.Close() // what is wrong has been said
		}
	}
}
