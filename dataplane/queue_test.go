package dataplane

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// brokenPort is a port whose kernel refuses: Kick fails while broken is set, or takes nothing while stuck is set.
type brokenPort struct {
	*MemPort
	mu            sync.Mutex
	broken, stuck error
	kicks         int
}

func (p *brokenPort) open(e *environment) (*openPort, error) {
	o, err := p.MemPort.open(e)
	if err == nil {
		for i, q := range o.queues {
			o.queues[i] = &brokenQueue{queue: q, port: p}
		}
	}
	return o, err
}

func (p *brokenPort) set(broken, stuck error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.broken, p.stuck = broken, stuck
}

// brokenQueue holds back what was posted until a kick succeeds.
type brokenQueue struct {
	queue
	port   *brokenPort
	posted []Desc
}

func (q *brokenQueue) Transmit(d []Desc) int {
	room := 128 - len(q.posted)
	n := min(room, len(d))
	q.posted = append(q.posted, d[:n]...)
	return n
}

func (q *brokenQueue) Kick() error {
	q.port.mu.Lock()
	defer q.port.mu.Unlock()
	q.port.kicks++
	if q.port.broken != nil || q.port.stuck != nil {
		return q.port.broken
	}
	n := q.queue.Transmit(q.posted)
	q.posted = q.posted[:copy(q.posted, q.posted[n:])]
	return q.queue.Kick()
}

func (q *brokenQueue) TxPending() int { return len(q.posted) }

// TestBrokenTransmit: a port whose kicks fail (netdev gone, down) loses its own frames under a reason once its ring is
// full; the other port goes on; the lane does not spin; when the port works again so does everything.
func TestBrokenTransmit(t *testing.T) {
	for name, c := range map[string]struct {
		broken, stuck error
		reason        string
	}{
		"ENXIO":  {broken: unix.ENXIO, reason: "port-broken"},
		"ENOBUF": {stuck: unix.ENOBUFS, reason: "tx-full"},
	} {
		t.Run(name, func(t *testing.T) {
			good, bad := NewMemPort("good"), &brokenPort{MemPort: NewMemPort("bad")}
			n := startNIC(t, testConfig(), good, bad)
			install(t, n, JobSpec{Name: "j", Workers: 2, Elements: 64, Members: members(2, false)})
			bad.set(c.broken, c.stuck)
			round := func(i int) {
				mustSend(t, bad.MemPort, request(1, 64, i, 0, uint32(i), 1))
				mustSend(t, good, request(0, 64, i, 0, uint32(i), 1))
				if v := values(recv(t, good)); v[0] != 2 {
					t.Fatalf("round %d: %d", i, v[0])
				}
			}
			for i := range 300 {
				round(i)
			}
			s := check(t, n)
			if got := s.Ports[1].ReplicaDrops[c.reason]; got != 300-128 {
				t.Fatalf("%d dropped as %s: %+v", got, c.reason, s.Ports[1])
			}
			bad.mu.Lock()
			before := bad.kicks
			bad.mu.Unlock()
			time.Sleep(50 * time.Millisecond)
			bad.mu.Lock()
			kicks := bad.kicks - before
			bad.mu.Unlock()
			if kicks == 0 || kicks > 100 {
				t.Fatalf("%d kicks in 50 ms", kicks)
			}
			bad.set(nil, nil)
			for i := range 128 {
				if g := recv(t, bad.MemPort); g[44] != byte(i) {
					t.Fatalf("frame %d: result %d", i, g[44])
				}
			}
			round(400)
			recv(t, bad.MemPort)
			check(t, n)
		})
	}
}

// TestChecksAlwaysWithOneLane: a single lane publishes its counters together, so the promises hold at any moment of
// running traffic.
func TestChecksAlwaysWithOneLane(t *testing.T) {
	n, mem := memNIC(t, testConfig(), 2)
	install(t, n, JobSpec{Name: "j", Workers: 2, Elements: 64, Members: members(2, false)})
	if err := n.Impair("m1", Impairment{IngressLoss: 0.1, EgressLoss: 0.1, Duplicate: 0.2, Reorder: 0.2}); err != nil {
		t.Fatal(err)
	}
	quit := make(chan struct{})
	var wg sync.WaitGroup
	for r := range 2 {
		stop := drainWire(mem[r])
		defer stop()
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(r), 1))
			for {
				select {
				case <-quit:
					return
				default:
				}
				if err := mem[r].Send(request(rng.IntN(3), 64, rng.IntN(600), rng.IntN(2), 0, 1)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	var s Snapshot
	for begin := time.Now(); time.Since(begin) < 300*time.Millisecond; {
		s = n.Snapshot()
		if err := s.Check(); err != nil {
			t.Error(err)
			break
		}
	}
	close(quit)
	wg.Wait()
	if s.Total.Contributed == 0 {
		t.Fatalf("%+v", s.Total)
	}
}

// TestFramesArePlacedOnce follows every chunk through random traffic: afterwards each is in exactly one place, and those
// in the free stacks are chunk multiples of their own lane.
func TestFramesArePlacedOnce(t *testing.T) {
	for _, lanes := range []int{1, 3} {
		cfg := testConfig()
		cfg.Lanes = lanes
		mem := []*MemPort{NewMemPort("a"), NewMemPort("b")}
		n, err := New(cfg, mem[0], mem[1])
		if err != nil {
			t.Fatal(err)
		}
		install(t, n, JobSpec{Name: "j", Workers: 2, Elements: 64, Slots: 31, Members: members(2, true)})
		if err := n.Start(context.Background()); err != nil {
			t.Fatal(err)
		}
		if err := n.Impair("a", Impairment{Duplicate: 0.1, Reorder: 0.1, EgressLoss: 0.1}); err != nil {
			t.Fatal(err)
		}
		if err := n.SetFunction("b", Function{Kind: Forward, To: "a"}); err != nil {
			t.Fatal(err)
		}
		stop := []func() uint64{drainWire(mem[0]), drainWire(mem[1])}
		rng := rand.New(rand.NewPCG(3, 3))
		for range 20000 {
			mustSend(t, mem[rng.IntN(2)], request(rng.IntN(2), 64, rng.IntN(32), rng.IntN(2), 0, 1))
		}
		waitFor(t, n, func(s *Snapshot) bool { return s.Total.Received == 20000 && s.Total.InFlight == 0 })
		for _, f := range stop {
			f()
		}
		n.mu.Lock()
		where := map[uint64]string{}
		place := func(addr uint64, what string) {
			addr &^= uint64(n.cfg.ChunkSize) - 1
			if p, ok := where[addr]; ok {
				t.Errorf("chunk %#x is %s and %s", addr, p, what)
			}
			where[addr] = what
		}
		n.onLanes(func(l *lane) {}) // whatever was taken home is home
		var mu sync.Mutex
		n.onLanes(func(l *lane) {
			mu.Lock()
			defer mu.Unlock()
			for _, a := range l.free {
				if a%l.chunk != 0 || int(a/l.share) != l.id {
					t.Errorf("lane %d has %#x free", l.id, a)
				}
				place(a, "free")
			}
			for i := range l.queues {
				q := l.queues[i].queue.(*memQueue)
				for range q.fill.len() {
					var a [1]uint64
					q.fill.pop(a[:])
					place(a[0], "filled")
				}
				for range q.done.len() {
					var a [1]uint64
					q.done.pop(a[:])
					place(a[0], "sent")
				}
				for range q.tx.len() {
					var d [1]Desc
					q.tx.pop(d[:])
					place(d[0].Addr, "posted")
				}
			}
			for i := range l.peers {
				if i == l.id {
					continue
				}
				for range l.peers[i].home.len() {
					var a [1]uint64
					l.peers[i].home.pop(a[:])
					place(a[0], "going home")
				}
			}
		})
		total := n.lanes[0].chunks * lanes
		n.mu.Unlock()
		if len(where) != total {
			t.Errorf("%d lanes: %d of %d chunks found", lanes, len(where), total)
		}
		// The rings were emptied behind the NIC's back: it is stopped, and not checked.
		if err := n.Stop(context.Background()); err != nil && !errors.Is(err, ErrStopped) {
			t.Fatal(err)
		}
	}
}
