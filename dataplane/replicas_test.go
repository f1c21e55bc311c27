package dataplane

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"gradnic/wire/inet"
	"gradnic/wire/switchml"
)

// slowPort is a port whose kernel keeps what it has sent: completions come when they are let out, in the order that the
// test wants. The frame itself is on the wire at once.
type slowPort struct {
	*MemPort
	mu   sync.Mutex
	kept []uint64 // sent, not to be completed yet
	let  []uint64 // to be completed
}

func (p *slowPort) open(e *environment) (*openPort, error) {
	o, err := p.MemPort.open(e)
	if err == nil {
		for i, q := range o.queues {
			o.queues[i] = &slowQueue{queue: q, port: p}
		}
	}
	return o, err
}

type slowQueue struct {
	queue
	port *slowPort
}

func (q *slowQueue) Complete(out []uint64) int {
	q.port.mu.Lock()
	defer q.port.mu.Unlock()
	q.port.kept = append(q.port.kept, out[:q.queue.Complete(out)]...)
	n := copy(out, q.port.let)
	q.port.let = q.port.let[:copy(q.port.let, q.port.let[n:])]
	return n
}

func (q *slowQueue) Pending() bool {
	q.port.mu.Lock()
	defer q.port.mu.Unlock()
	return q.queue.Pending() || len(q.port.let) > 0
}

// held is what the port keeps.
func (p *slowPort) held() []uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.kept)
}

// complete lets out all that is kept, shuffled.
func (p *slowPort) complete(rng *rand.Rand) {
	p.mu.Lock()
	defer p.mu.Unlock()
	rng.Shuffle(len(p.kept), func(i, j int) { p.kept[i], p.kept[j] = p.kept[j], p.kept[i] })
	p.let, p.kept = append(p.let, p.kept...), p.kept[:0]
}

// onesSum is the Internet checksum's sum over b, 0xffff when b contains its right checksum.
func onesSum(b []byte) uint16 {
	var s uint32
	for i := 0; i+1 < len(b); i += 2 {
		s += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return uint16(s)
}

// Case: one result to three members. Each copy has its own addresses and a right checksum over them, and nothing else
// differs; a copy's frame is free after its own completion and not before, in whatever order completions come over the
// ports; and a member whose egress is full holds up neither the others nor their frames.
func TestThreeCopiesOfOneResult(t *testing.T) {
	cfg := testConfig()
	ports := [3]*slowPort{}
	var specs []PortSpec
	for i, name := range []string{"a", "b", "c"} {
		ports[i] = &slowPort{MemPort: NewMemPort(name)}
		specs = append(specs, ports[i])
	}
	n := startNIC(t, cfg, specs...)
	install(t, n, JobSpec{Name: "j", Workers: 3, Elements: 64, Members: members(3, false)})
	half := cfg.FramesPerQueue / 2
	rng := rand.New(rand.NewPCG(15, 15))
	at := 0
	// round sends a result to all, and returns the copies of those that are read.
	round := func(readers ...int) (copies [3][]byte) {
		t.Helper()
		for _, r := range rng.Perm(3) {
			mustSend(t, ports[r].MemPort, request(r, 64, at%256, at/256%2, uint32(at), int32(at+r)))
		}
		for _, r := range readers {
			copies[r] = recv(t, ports[r].MemPort)
			if v := values(copies[r]); v[0] != int32(3*at+3) || v[63] != v[0] {
				t.Fatalf("round %d: rank %d has %d", at, r, v[0])
			}
		}
		at++
		return copies
	}

	copies := round(0, 1, 2)
	for r, c := range copies {
		eth := c[:14]
		if inet.MAC(eth[:6]) != workerMAC(r) || inet.MAC(eth[6:12]) != nicMAC || inet.Addr(c[26:30]) != nicIP || inet.Addr(c[30:34]) != workerIP(r) {
			t.Errorf("rank %d: addresses %x", r, c[:34])
		}
		if s := onesSum(c[14:34]); s != 0xffff {
			t.Errorf("rank %d: IPv4 checksum off: sum %#x", r, s)
		}
		if u := binary.BigEndian.Uint16(c[40:]); u != 0 { // none, as RFC 768 has it
			pseudo := append(append([]byte{}, c[26:34]...), 0, 17, c[38], c[39])
			if s := onesSum(append(pseudo, c[34:]...)); s != 0xffff {
				t.Errorf("rank %d: UDP checksum %#x off: sum %#x", r, u, s)
			}
		}
		if !bytes.Equal(c[34:], copies[0][34:]) {
			t.Errorf("rank %d: payload differs", r)
		}
	}
	if len(copies[0]) != switchml.FrameLen(64) {
		t.Errorf("%d bytes", len(copies[0]))
	}

	// reap has the lane take back what the ports let it have.
	reap := func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.onLanes(func(l *lane) {
			for i := range l.queues {
				l.reap(&l.queues[i])
			}
		})
	}
	reap()
	for _, p := range ports {
		p.complete(rng)
	}
	reap()
	for range 40 {
		k := 1 + rng.IntN(half-1)
		for range k {
			round(0, 1, 2)
		}
		reap()
		// Nothing has completed: each copy is in a frame of its own, and none of them is free.
		held := map[uint64]int{}
		for r, p := range ports {
			kept := p.held()
			if len(kept) != k {
				t.Fatalf("port %d keeps %d of %d copies", r, len(kept), k)
			}
			for _, addr := range kept {
				held[addr]++
			}
		}
		var free map[uint64]bool
		look := func() {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.onLanes(func(l *lane) {
				free = map[uint64]bool{}
				for _, addr := range l.free {
					free[addr] = true
				}
			})
		}
		look()
		for addr, times := range held {
			if times != 1 || free[addr] {
				t.Fatalf("chunk %#x is under %d copies, free: %t", addr, times, free[addr])
			}
		}
		// Ports complete in any order, a port's frames in any order: each completion frees its frame and no other.
		left := 3 * k
		for _, r := range rng.Perm(3) {
			mine := ports[r].held()
			ports[r].complete(rng)
			reap()
			left -= k
			look()
			for _, addr := range mine {
				if !free[addr] {
					t.Fatalf("chunk %#x has completed and is not free", addr)
				}
				delete(held, addr)
			}
			if len(held) != left {
				t.Fatalf("%d copies are left, want %d", len(held), left)
			}
			for addr := range held {
				if free[addr] {
					t.Fatalf("chunk %#x is free before its completion", addr)
				}
			}
		}
		check(t, n)
	}

	// Rank 2 is not read and completes nothing: its own results are lost once its queue is full, the others get all.
	before := check(t, n)
	const rounds = 600
	for range rounds {
		round(0, 1)
		for _, p := range ports[:2] {
			p.complete(rng)
		}
	}
	s := check(t, n)
	lost := s.Ports[2].ReplicaDrops["tx-full"] - before.Ports[2].ReplicaDrops["tx-full"]
	if lost < uint64(rounds-half) || lost > rounds {
		t.Errorf("rank 2 lost %d of %d", lost, rounds)
	}
	for r := range 2 {
		if got := s.Ports[r].Transmitted - before.Ports[r].Transmitted; got != rounds || len(s.Ports[r].ReplicaDrops) != 0 && s.Ports[r].ReplicaDrops["tx-full"] != 0 {
			t.Errorf("rank %d: %d of %d results, lost %v", r, got, rounds, s.Ports[r].ReplicaDrops)
		}
	}
	for range rounds - int(lost) {
		recv(t, ports[2].MemPort)
	}
	reap()
	for _, p := range ports {
		p.complete(rng)
	}
	reap()
	if s := check(t, n); s.Total.Completed != s.Total.Transmitted {
		t.Errorf("%d of %d completed", s.Total.Completed, s.Total.Transmitted)
	}
}
