package dataplane

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf/link"
	"github.com/safchain/ethtool"

	"gradnic/internal/logtest"
	"gradnic/internal/netlab"
	"gradnic/internal/netlab/netlabtest"
	"gradnic/xdp"
)

// healWithin is how soon a port must heal.
const healWithin = 2 * time.Second

// waitState waits at most that long; see deadline.
func waitState(t testing.TB, n *NIC, port int, state PortState, why string) PortSnapshot {
	t.Helper()
	deadline := newDeadline(t, healWithin)
	for {
		p := n.Snapshot().Ports[port]
		if p.State == state && strings.Contains(p.Why, why) {
			return p
		}
		if deadline.ended() {
			t.Fatalf("port %s is %s (%s) after %v, not %s (%s)", p.Name, p.State, p.Why, deadline.limit, state, why)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// waitWorks sends until a result comes, for at most healWithin, and returns how long it took.
func waitWorks(t testing.TB, w wire, rank int) time.Duration {
	t.Helper()
	begin, deadline := time.Now(), newDeadline(t, healWithin)
	buf := make([]byte, 2048)
	for i := 0; ; i++ {
		if w.Send(request(rank, 64, i%64, i/64%2, 0, 7)) == nil {
			if k, err := w.Recv(buf, time.Now().Add(50*time.Millisecond)); err == nil && values(buf[:k])[0] == 7 {
				return time.Since(begin)
			}
		}
		if deadline.ended() {
			t.Fatalf("the port does not work again after %v", deadline.limit)
		}
	}
}

func healLab(t *testing.T, workers, queues, lanes int) (*vethLab, *NIC, *logtest.Lines) {
	t.Helper()
	l := newVethLab(t, workers, queues, false)
	var log logtest.Lines
	cfg := testConfig()
	cfg.Lanes, cfg.Logger = lanes, log.Logger()
	n := startNIC(t, cfg, l.ports()...)
	for r := range workers {
		install(t, n, JobSpec{Name: fmt.Sprint("j", r), Workers: 1, Elements: 64, Members: []WorkerSpec{{MAC: workerMAC(r), IP: workerIP(r), Port: -1}}})
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log:\n%s", log.String())
		}
	})
	return l, n, &log
}

// delete takes port r of the lab away; create makes it again, under the same names.
func (l *vethLab) delete(t testing.TB, r int) {
	t.Helper()
	link, err := l.nic.Netlink().LinkByName(fmt.Sprintf("p%d", r))
	if err != nil {
		t.Fatal(err)
	}
	if err := l.nic.Netlink().LinkDel(link); err != nil {
		t.Fatal(err)
	}
}

func (l *vethLab) create(t testing.TB, r, queues int) {
	t.Helper()
	netlabtest.Veth(t, l.Lab,
		netlab.End{NS: l.workers[r], Name: "w", MAC: workerMAC(r).String(), Queues: queues},
		netlab.End{NS: l.nic, Name: fmt.Sprintf("p%d", r), Queues: queues})
}

// TestHealLinkDown: the state follows the link, and the way is open again within 2 s.
func TestHealLinkDown(t *testing.T) {
	l, n, log := healLab(t, 1, 1, 1)
	w := l.wires(t)[0]
	waitState(t, n, 0, StateUp, "")
	for round := range 3 {
		link, err := l.nic.Netlink().LinkByName("p0")
		if err != nil {
			t.Fatal(err)
		}
		if err := l.nic.Netlink().LinkSetDown(link); err != nil {
			t.Fatal(err)
		}
		waitState(t, n, 0, StateDown, "p0 is down")
		if err := l.nic.Netlink().LinkSetUp(link); err != nil {
			t.Fatal(err)
		}
		waitWorks(t, w, 0)
		waitState(t, n, 0, StateUp, "")
		if got := len(log.With("port down", "p0")); got != round+1 {
			t.Fatalf("round %d: %d lines say that it is down", round, got)
		}
	}
	peer, err := l.workers[0].Netlink().LinkByName("w")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.workers[0].Netlink().LinkSetDown(peer); err != nil {
		t.Fatal(err)
	}
	waitState(t, n, 0, StateDown, "no carrier")
	if p := n.Snapshot().Ports[0]; p.Rebuilds != 0 {
		t.Fatalf("%d rebuilds for a link that was only down", p.Rebuilds)
	}
	check(t, n)
}

// TestHealRecreated: a netdev that is deleted under traffic and made again is taken into use again within 2 s, ten times;
// the other port goes on all the while, every frame is accounted for, and the counters go on from where they were.
func TestHealRecreated(t *testing.T) {
	for _, lanes := range []int{1, 2} {
		t.Run(fmt.Sprint(lanes, " lanes"), func(t *testing.T) {
			l, n, log := healLab(t, 2, lanes, lanes)
			other := openRaw(t, l.workers[1], "w")
			frames := make([][]byte, 64)
			for i := range frames {
				frames[i] = request(0, 64, i, 0, uint32(i), 7)
			}
			var received uint64
			for round := range 5 {
				w := openRaw(t, l.workers[0], "w")
				waitWorks(t, w, 0)
				stop := flood(w, frames)
				time.Sleep(5 * time.Millisecond)
				l.delete(t, 0)
				stop()
				waitState(t, n, 0, StateDown, "p0 does not exist")
				waitWorks(t, other, 1)
				s := check(t, n)
				if s.Ports[0].Received < received || s.Ports[0].Queues != 0 {
					t.Fatalf("round %d: %+v", round, s.Ports[0])
				}
				received = s.Ports[0].Received
				l.create(t, 0, lanes)
				w = openRaw(t, l.workers[0], "w")
				took := waitWorks(t, w, 0)
				p := waitState(t, n, 0, StateUp, "")
				if p.Rebuilds != uint64(round+1) || p.Queues != lanes || p.Mode != "native" {
					t.Fatalf("round %d: %+v", round, p)
				}
				t.Logf("works again after %v", took)
				if s := check(t, n); s.Ports[0].Steering["taken-udp"] < received {
					t.Fatalf("the steering program's counters went back: %v, %d were received", s.Ports[0].Steering, received)
				}
			}
			if bad := log.With("are known"); len(bad) != 0 {
				t.Fatalf("the ledger was wrong: %s", bad)
			}
			if bad := log.With("port up", "but="); len(bad) != 0 {
				t.Fatalf("nothing is wrong with the new netdev: %s", bad)
			}
		})
	}
}

// TestHealFrames: after many rebuilds under load there are as many free chunks as at first.
func TestHealFrames(t *testing.T) {
	l, n, log := healLab(t, 1, 1, 1)
	before := check(t, n).Frames
	for range 5 {
		l.delete(t, 0)
		waitState(t, n, 0, StateDown, "does not exist")
		s := check(t, n)
		if s.Frames.Free != s.Frames.Total {
			t.Fatalf("without a socket all frames are free: %+v", s.Frames)
		}
		l.create(t, 0, 1)
		waitState(t, n, 0, StateUp, "")
		if s := check(t, n); s.Frames != before {
			t.Fatalf("%+v, were %+v", s.Frames, before)
		}
	}
	if bad := log.With("are known"); len(bad) != 0 {
		t.Fatalf("the ledger was wrong: %s", bad)
	}
}

// takeQueues takes queues away. The kernel lets go of a closed socket's queue a moment late.
func takeQueues(ns *netlab.NS, iface string, n uint32) error {
	var err error
	for until := time.Now().Add(20 * time.Second); time.Now().Before(until); time.Sleep(5 * time.Millisecond) {
		if err = setChannels(ns, iface, n); err == nil {
			return nil
		}
	}
	return err
}

func setChannels(ns *netlab.NS, iface string, n uint32) error {
	return ns.Do(func() error {
		e, err := ethtool.NewEthtool()
		if err != nil {
			return err
		}
		defer e.Close()
		c, err := e.GetChannels(iface)
		if err != nil {
			return err
		}
		c.RxCount, c.TxCount = n, n
		_, err = e.SetChannels(iface, c)
		return err
	})
}

// TestHealQueues: a netdev that gets more queues underneath has all of them served within 2 s, from the memory that there
// is; where the memory does not do, the port says so in one line, and works again with fewer.
func TestHealQueues(t *testing.T) {
	l := newVethLab(t, 1, 4, false)
	for ns, iface := range map[*netlab.NS]string{l.nic: "p0", l.workers[0]: "w"} {
		if err := setChannels(ns, iface, 1); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		frames int
		ok     bool
	}{{512, true}, {128, false}} {
		t.Run(fmt.Sprint(c.frames), func(t *testing.T) {
			var log logtest.Lines
			cfg := testConfig()
			cfg.FramesPerQueue, cfg.Logger = c.frames, log.Logger()
			n := startNIC(t, cfg, l.ports()...)
			install(t, n, JobSpec{Name: "j", Workers: 1, Elements: 64, Members: members(1, true)})
			w := openRaw(t, l.workers[0], "w")
			waitWorks(t, w, 0)
			if got := n.Snapshot().Ports[0].Queues; got != 1 {
				t.Fatalf("%d queues", got)
			}
			if err := setChannels(l.nic, "p0", 4); err != nil {
				t.Fatal(err)
			}
			if c.ok {
				waitFor(t, n, func(s *Snapshot) bool { return s.Ports[0].Queues == 4 })
				waitState(t, n, 0, StateUp, "")
				waitWorks(t, w, 0)
			} else {
				waitState(t, n, 0, StateBroken, "4 queues: there are frames for 32 a queue")
				time.Sleep(2 * healRetry)
				if got := log.With("port broken"); len(got) != 1 {
					t.Fatalf("%d lines: %s", len(got), got)
				}
			}
			s := check(t, n)
			if c.ok != (s.Frames.Fill > 0) {
				t.Fatalf("%+v", s.Frames)
			}
			// The kernel refuses to take queues from under sockets, so there are none.
			if c.ok {
				if err := setChannels(l.nic, "p0", 1); err == nil {
					t.Fatal("the kernel took queues away from under their sockets")
				}
			} else {
				if err := takeQueues(l.nic, "p0", 1); err != nil {
					t.Fatal(err)
				}
				waitState(t, n, 0, StateUp, "")
				waitWorks(t, w, 0)
			}
			if err := n.Stop(context.Background()); err != nil {
				t.Fatal(err)
			}
			if err := takeQueues(l.nic, "p0", 1); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestHealBroken: a netdev that comes back with fewer queues than there are lanes stays broken, says why, and heals when
// it comes back with enough.
func TestHealBroken(t *testing.T) {
	l, n, _ := healLab(t, 1, 2, 2)
	l.delete(t, 0)
	waitState(t, n, 0, StateDown, "does not exist")
	l.create(t, 0, 1)
	waitState(t, n, 0, StateBroken, "1 queues for 2 lanes")
	l.delete(t, 0)
	waitState(t, n, 0, StateDown, "does not exist")
	l.create(t, 0, 2)
	waitState(t, n, 0, StateUp, "")
	waitWorks(t, openRaw(t, l.workers[0], "w"), 0)
	check(t, n)
}

// TestHealRenamed: a netdev that got another name is looked for, and where it went is said, until it has its name again.
func TestHealRenamed(t *testing.T) {
	l, n, _ := healLab(t, 1, 1, 1)
	nl := l.nic.Netlink()
	link, err := nl.LinkByName("p0")
	if err != nil {
		t.Fatal(err)
	}
	rename := func(name string) {
		t.Helper()
		if err := errors.Join(nl.LinkSetDown(link), nl.LinkSetName(link, name), nl.LinkSetUp(link)); err != nil {
			t.Fatal(err)
		}
	}
	rename("other0")
	waitState(t, n, 0, StateDown, "interface p0 does not exist: it is called other0 now")
	rename("p0")
	waitState(t, n, 0, StateUp, "")
	waitWorks(t, openRaw(t, l.workers[0], "w"), 0)
	check(t, n)
}

// TestHealProgram: a netdev that comes back with somebody else's program stays broken by that program's name until it goes;
// the NIC's own program, taken away by force, comes back.
func TestHealProgram(t *testing.T) {
	l, n, log := healLab(t, 1, 1, 1)
	nl := l.nic.Netlink()
	w := openRaw(t, l.workers[0], "w")
	waitWorks(t, w, 0)

	it := new(link.Iterator)
	own := linkProgram(t, l.nic, "p0")
	detached := false
	for it.Next() && !detached {
		if info, err := it.Link.Info(); err == nil && uint32(info.Program) == own {
			detached = true
			if err := it.Link.(interface{ Detach() error }).Detach(); err != nil {
				t.Fatal(err)
			}
		}
	}
	it.Close()
	if !detached {
		t.Fatal("the NIC's program has no link")
	}
	waitFor(t, n, func(s *Snapshot) bool { return s.Ports[0].Rebuilds > 0 })
	waitState(t, n, 0, StateUp, "")
	waitWorks(t, w, 0)

	l.delete(t, 0)
	waitState(t, n, 0, StateDown, "does not exist")
	netlabtest.Veth(t, l.Lab, netlab.End{NS: l.workers[0], Name: "w", MAC: workerMAC(0).String()}, netlab.End{NS: l.nic, Name: "x0"})
	x, err := nl.LinkByName("x0")
	if err != nil {
		t.Fatal(err)
	}
	var other *xdp.Steering
	if err := l.nic.Do(func() (err error) {
		other, err = xdp.Attach(xdp.AttachOptions{IfIndex: x.Attrs().Index})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{nl.LinkSetDown(x), nl.LinkSetName(x, "p0"), nl.LinkSetUp(x)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	p := waitState(t, n, 0, StateBroken, "XDP program")
	if !strings.Contains(p.Why, fmt.Sprintf("id %d", other.ProgramID())) {
		t.Errorf("the program is not named: %s", p.Why)
	}
	time.Sleep(2 * healRetry)
	if got := log.With("port broken"); len(got) != 1 {
		t.Errorf("%d lines: %s", len(got), got)
	}
	if id := linkProgram(t, l.nic, "p0"); id != other.ProgramID() {
		t.Fatalf("somebody else's program was replaced by %d", id)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	waitState(t, n, 0, StateUp, "")
	waitWorks(t, openRaw(t, l.workers[0], "w"), 0)
	check(t, n)
}

// TestHealStop: stopping in the middle of a rebuild neither hangs nor leaves anything.
func TestHealStop(t *testing.T) {
	l := newVethLab(t, 1, 1, false)
	for i := range 5 {
		cfg := testConfig()
		n, err := New(cfg, l.ports()...)
		if err != nil {
			t.Fatal(err)
		}
		if err := n.Start(context.Background()); err != nil {
			t.Fatal(err)
		}
		l.delete(t, 0)
		l.create(t, 0, 1)
		time.Sleep(time.Duration(i) * 60 * time.Millisecond)
		begin := time.Now()
		if err := n.Stop(context.Background()); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(begin); newDeadline(t, healWithin).exceeded(d) {
			t.Fatalf("stopping took %v", d)
		}
		if s := n.Snapshot(); s.Check() != nil {
			t.Fatal(s.Check())
		}
		if id := linkProgram(t, l.nic, "p0"); id != 0 {
			t.Fatalf("program %d is left", id)
		}
	}
}
