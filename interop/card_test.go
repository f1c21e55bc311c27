package interop

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"gradnic/dataplane"
	"gradnic/wire/inet"
	"gradnic/wire/switchml"
	"gradnic/worker"
	"gradnic/worker/native"
)

// hub is the link between workers in this process and PlayCard.
type hub struct {
	up   chan []byte
	down map[inet.MAC]chan []byte
}

func newHub(workers int) *hub {
	h := &hub{up: make(chan []byte, 4096), down: map[inet.MAC]chan []byte{}}
	for r := range workers {
		h.down[DefaultWorker(r).MAC] = make(chan []byte, 4096)
	}
	return h
}

func (h *hub) Send(frame []byte) error {
	if c := h.down[inet.MAC(frame[:6])]; c != nil {
		select {
		case c <- append([]byte(nil), frame...):
		default:
		}
	}
	return nil
}

func (h *hub) Recv(buf []byte, deadline time.Time) (int, error) { return take(h.up, buf, deadline) }

func take(c chan []byte, buf []byte, deadline time.Time) (int, error) {
	select {
	case f := <-c:
		return copy(buf, f), nil
	default:
	}
	t := time.NewTimer(time.Until(deadline))
	defer t.Stop()
	select {
	case f := <-c:
		return copy(buf, f), nil
	case <-t.C:
		return 0, os.ErrDeadlineExceeded
	}
}

// end is a worker's end of the hub. change, if not nil, breaks what it sends; nothing is sent when it returns nil.
type end struct {
	h      *hub
	mac    inet.MAC
	change func([]byte) []byte
}

func (e *end) Send(frame []byte) error {
	f := append([]byte(nil), frame...)
	if e.change != nil {
		f = e.change(f)
	}
	if f != nil {
		e.h.up <- f
	}
	return nil
}

func (e *end) Recv(buf []byte, deadline time.Time) (int, error) {
	return take(e.h.down[e.mac], buf, deadline)
}

// playNative lets two workers of the library reduce while the card plays its phases, and returns what it says of them.
func playNative(t *testing.T, change func([]byte) []byte) *Report {
	t.Helper()
	o := options(t, 16)
	port := dataplane.NewMemPort("card")
	nic, err := dataplane.New(dataplane.Config{MAC: o.NIC.MAC, IP: o.NIC.IP, Wait: dataplane.Interrupt}, port)
	if err != nil {
		t.Fatal(err)
	}
	if err := nic.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer nic.Stop(context.Background())
	job := dataplane.JobSpec{Name: "j", Protocol: dataplane.ProtocolNative, Workers: 2, Elements: 16, Slots: 8, Native: &dataplane.NativeSpec{ID: 1}}
	if err := nic.InstallJob(job); err != nil {
		t.Fatal(err)
	}
	h := newHub(2)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for r := range 2 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			w := DefaultWorker(r)
			e := &end{h: h, mac: w.MAC}
			if r == 0 {
				e.change = change
			}
			x, err := native.Join(ctx, native.Config{Rank: r, NIC: o.NIC.IP, NICMAC: o.NIC.MAC, IP: w.IP, MAC: w.MAC, Link: e})
			if err != nil {
				if ctx.Err() == nil {
					t.Errorf("worker %d: %v", r, err)
				}
				return
			}
			defer x.Close()
			for ctx.Err() == nil {
				v := make([]int32, 16*40)
				for i := range v {
					v[i] = int32(r + i)
				}
				if _, err := native.AllReduce(ctx, x, v, v); err != nil {
					return
				}
				for i := range v {
					if want := int32(2*i + 1); v[i] != want && change == nil {
						t.Errorf("element %d is %d, want %d", i, v[i], want)
						return
					}
				}
			}
		}()
	}
	r, err := PlayCard(ctx, h, port, CardOptions{Native: true, Idle: 2 * time.Second, Name: "workers"})
	cancel()
	wg.Wait()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// The library's workers keep the rules whatever the card does to them.
func TestCardPlaysForNativeWorkers(t *testing.T) {
	r := playNative(t, nil)
	if len(r.Results) != 7 {
		t.Fatalf("%+v", r)
	}
	mustPass(t, r)
}

// A worker that does not say that it sends again, or changes what it sends again, is found out.
func TestCardFindsBrokenWorkers(t *testing.T) {
	flag := func(f []byte) []byte {
		if len(f) > 43 && f[42] == 0x11 {
			f[43] &^= 1
		}
		return f
	}
	r := playNative(t, flag)
	if r.Count(Failed) == 0 || !strings.Contains(r.Results[1].Detail, "rule resend-flag") {
		t.Errorf("%+v", r.Results)
	}
	changed := func(f []byte) []byte {
		if len(f) > 80 && f[42] == 0x11 && f[43]&1 == 1 {
			f[80] ^= 1
		}
		return f
	}
	r = playNative(t, changed)
	if r.Count(Failed) == 0 || !strings.Contains(r.Results[1].Detail, "rule resend-same") {
		t.Errorf("%+v", r.Results)
	}
}

// naive is a SwitchML worker by hand: one slot, both sets in turn.
func naive(ctx context.Context, e *end, r int, o *Options, again time.Duration, wait bool) {
	w := DefaultWorker(r)
	buf := make([]byte, 2000)
	for k := 0; ctx.Err() == nil; k++ {
		f := make([]byte, switchml.FrameLen(64))
		q := switchml.Request{Worker: switchml.Endpoint(w), Switch: switchml.Endpoint{MAC: o.NIC.MAC, IP: o.NIC.IP, Port: switchml.PortBase}, Elements: 64, PoolIndex: switchml.PoolIndexOf(k, 3)}
		binary.LittleEndian.PutUint32(q.TSI[:], uint32(k))
		switchml.PutRequest(f, q)
		for done := false; !done && ctx.Err() == nil; {
			_ = e.Send(f)
			for until := time.Now().Add(again); ctx.Err() == nil; {
				n, err := e.Recv(buf, time.Now().Add(5*time.Millisecond))
				if err != nil && time.Now().Before(until) {
					continue
				}
				if err != nil {
					done = !wait // goes on without the result
					break
				}
				if n > 48 && buf[44] == f[44] && buf[45] == f[45] {
					done = true
					break
				}
			}
		}
	}
}

func playNaive(t *testing.T, again time.Duration, wait bool) *Report {
	t.Helper()
	o := options(t, 64)
	s := load(t, "switchml")
	m, err := OpenMem(context.Background(), &o, s)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	h := newHub(2)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for r := range 2 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			naive(ctx, &end{h: h, mac: DefaultWorker(r).MAC}, r, &o, again, wait || r == 1)
		}()
	}
	r, err := PlayCard(ctx, h, m.port, CardOptions{Idle: time.Second, Name: "workers"})
	cancel()
	wg.Wait()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// SwitchML workers: one that waits and sends again passes; one that goes on without the result does not; one that never
// sends again is stuck after the first loss.
func TestCardPlaysForSwitchMLWorkers(t *testing.T) {
	t.Parallel()
	mustPass(t, playNaive(t, 40*time.Millisecond, true))
	r := playNaive(t, 15*time.Millisecond, false)
	if r.Count(Failed) == 0 {
		t.Errorf("a worker that does not wait: %+v", r.Results)
	}
	r = playNaive(t, time.Hour, true)
	if len(r.Results) != 7 || r.Results[0].Verdict != Passed || r.Results[1].Verdict != Failed || !strings.Contains(r.Results[1].Detail, "wait for their results") || r.Results[2].Verdict != Unsupported {
		t.Errorf("a worker that never sends again: %+v", r.Results)
	}
}

// Workers are idle for as long as somebody looked: a process that did not run has not seen that they were silent.
func TestCardCountsSilenceByLooks(t *testing.T) {
	c := cardRun{o: CardOptions{Idle: 8 * time.Second}}
	at := func(s float64) time.Time { return time.Unix(1000, 0).Add(time.Duration(s * float64(time.Second))) }
	if c.still(at(0)) || c.still(at(100)) {
		t.Error("idle before anything came")
	}
	c.last = at(100)
	for _, step := range []struct {
		now  float64
		want bool
	}{{100.5, false}, {101.5, false}, {500, false}, {500.5, false}, {501.5, false}, {502.5, false}, {503.5, false}, {504.5, false}, {505.4, false}, {505.6, true}} {
		if got := c.still(at(step.now)); got != step.want {
			t.Errorf("after %v s: idle %v", step.now-100, got)
		}
	}
	c.last = at(505.7)
	if c.still(at(506)) {
		t.Error("idle when something new had come")
	}
}

// With nobody there, nothing is said about anybody.
func TestCardAlone(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	h, n := newHub(0), newHub(0)
	r, err := PlayCard(ctx, h, n, CardOptions{})
	if err != nil || r.Count(Unsupported) != 7 {
		t.Errorf("%v %+v", err, r)
	}
}

// Over a veth, for workers with sockets of their kernel: what the command line does.
func TestRunCard(t *testing.T) {
	c := newCable(t, 1500)
	if err := c.addresses(); err != nil {
		t.Fatal(err)
	}
	o := options(t, 64)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	worked := make(chan error, 2)
	run := CardRun{Interface: "card", Protocol: "native", MAC: o.NIC.MAC, IP: o.NIC.IP, Workers: 2, Elements: 64, Slots: 8, Idle: 2 * time.Second}
	run.Ready = func() error {
		for r := range 2 {
			go func() {
				worked <- c.kit.Do(func() error {
					x, err := native.Join(ctx, native.Config{Rank: r, NIC: o.NIC.IP, IP: inet.Addr{10, 50, 0, byte(r + 1)}})
					if err != nil {
						return err
					}
					defer x.Close()
					v := make([]int32, 64*200)
					for range 20 {
						if _, err := native.AllReduce(ctx, x, v, v); err != nil {
							break // the card is gone when its phases are over
						}
					}
					return nil
				})
			}()
		}
		return nil
	}
	var report *Report
	err := c.card.Do(func() (err error) { report, err = RunCard(ctx, run); return err })
	cancel()
	for range 2 {
		if err := <-worked; err != nil {
			t.Error(err)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	mustPass(t, report)
	if _, err := RunCard(ctx, CardRun{Protocol: "accl"}); err == nil {
		t.Error("protocol accl")
	}
	if _, err := RunCard(ctx, CardRun{Protocol: "switchml"}); err == nil {
		t.Error("no controller")
	}
}

// SwitchML's own way: workers register at the controller, and are started again and again. A session after another begins
// with the same sets and the same contents, and is no resend of the one before.
func TestRunCardSwitchML(t *testing.T) {
	t.Parallel()
	c := newCable(t, 1500)
	if err := c.addresses(); err != nil {
		t.Fatal(err)
	}
	o := options(t, 64)
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	socket := filepath.Join(t.TempDir(), "controller")
	run := CardRun{Interface: "card", Protocol: "switchml", MAC: o.NIC.MAC, IP: o.NIC.IP, Controller: "unix:" + socket}
	sessions := 0
	reduce := func(ctx context.Context, r int) error {
		x, err := worker.Join(ctx, worker.Config{Rank: r, Workers: 2, Controller: "unix://" + socket, IP: inet.Addr{10, 50, 0, byte(r + 1)}, Elements: 64, Outstanding: 16})
		if err != nil {
			return err
		}
		v := make([]int32, 64*16) // each slot once
		for i := range v {
			v[i] = int32(i)
		}
		_, err = x.AllReduceInt32(ctx, v, v)
		for i := range v {
			if err == nil && v[i] != int32(2*i) {
				err = fmt.Errorf("rank %d: element %d is %d", r, i, v[i])
			}
		}
		return errors.Join(err, x.Close())
	}
	over, stop := context.WithCancel(ctx) // the card has gone
	worked := make(chan error, 1)
	run.Ready = func() error {
		go func() {
			for over.Err() == nil {
				ended := make(chan error, 2)
				for r := range 2 {
					go func() { ended <- c.kit.Do(func() error { return reduce(over, r) }) }()
				}
				if err := errors.Join(<-ended, <-ended); err != nil && over.Err() == nil {
					worked <- err
					return
				}
				sessions++
			}
			worked <- nil
		}()
		return nil
	}
	var report *Report
	err := c.card.Do(func() (err error) { report, err = RunCard(ctx, run); return err })
	stop()
	if err := errors.Join(err, <-worked); err != nil {
		t.Fatal(err)
	}
	mustPass(t, report)
	if fresh := 6*64 + 32; sessions < fresh/32-1 { // the last one is cut off
		t.Errorf("%d packets in %d sessions", fresh, sessions)
	}
	var matrix, tap, junit bytes.Buffer
	if err := errors.Join(Text(&matrix, report), TAP(&tap, report), JUnit(&junit, report)); err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{matrix.String(), tap.String(), junit.String()} {
		if strings.Contains(s, "elements") || strings.Contains(s, "worker/0") || !strings.Contains(s, "all-at-once") {
			t.Errorf("a size that nobody gave, or a phase is missing:\n%s", s)
		}
	}
}

// addresses gives the kit's end the addresses of two workers.
func (c cable) addresses() error {
	nl := c.kit.Netlink()
	link, err := nl.LinkByName("kit")
	if err != nil {
		return err
	}
	for r := range 2 {
		a, err := netlink.ParseAddr(fmt.Sprintf("10.50.0.%d/24", r+1))
		if err != nil {
			return err
		}
		if err := nl.AddrAdd(link, a); err != nil {
			return err
		}
	}
	return nil
}
