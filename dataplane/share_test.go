package dataplane

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"gradnic/internal/logtest"
)

// TestSharedPayload: copies that share a payload are byte for byte those that do not; a payload posted k times is free
// after its k-th completion and not before, in whatever order completions come over the ports; and at every moment each
// chunk is in one place.
func TestSharedPayload(t *testing.T) {
	for _, elements := range []int{64, 256} {
		t.Run(fmt.Sprint(elements), func(t *testing.T) { sharedPayload(t, elements) })
	}
}

func sharedPayload(t *testing.T, elements int) {
	const workers = 3
	cfg := testConfig()
	cfg.Replicate = ReplicateCopy
	plain, mem := memNIC(t, cfg, workers)
	cfg.Replicate = ReplicateChain
	var ports [workers]*slowPort
	var specs []PortSpec
	for r := range ports {
		ports[r] = &slowPort{MemPort: NewMemPort(fmt.Sprint("s", r))}
		specs = append(specs, ports[r])
	}
	chained := startNIC(t, cfg, specs...)
	for _, n := range []*NIC{plain, chained} {
		install(t, n, JobSpec{Name: "j", Workers: workers, Elements: elements, Members: members(workers, false)})
	}
	l := chained.lanes[0]
	onLane := func(f func()) {
		chained.mu.Lock()
		defer chained.mu.Unlock()
		chained.onLane(l, func(*lane) { f() })
	}
	chunksOf := func(addrs []uint64) (c []uint64) {
		for _, a := range addrs {
			c = append(c, a&^(l.chunk-1))
		}
		return c
	}
	rng := rand.New(rand.NewPCG(3, uint64(elements)))
	posts := map[uint64]int{} // of each chunk, not completed yet
	rounds, most := 0, 0
	for step := range 400 {
		if held := len(ports[0].held()); held < 100 && rng.IntN(3) > 0 {
			for _, r := range rng.Perm(workers) {
				f := request(r, elements, rounds%256, rounds/256%2, uint32(rounds), int32(rounds*(r+1)))
				mustSend(t, ports[r].MemPort, f)
				mustSend(t, mem[r], f)
			}
			rounds++
			for r := range workers {
				got, want := recv(t, ports[r].MemPort), recv(t, mem[r])
				copy(got[36:38], want[36:38]) // the UDP port of whoever came last, here and there
				if !bytes.Equal(got, want) {
					t.Fatalf("round %d, rank %d:\n%x, not\n%x", rounds, r, got, want)
				}
			}
		} else {
			ports[rng.IntN(workers)].complete(rng)
		}
		onLane(func() {
			for i := range l.queues {
				l.reap(&l.queues[i])
			}
		})
		clear(posts)
		for _, p := range ports {
			for _, c := range chunksOf(p.held()) {
				posts[c]++
			}
		}
		onLane(func() {
			shared := 0
			for c, k := range posts {
				most = max(most, k)
				shared += k - 1
				if slices.Contains(l.free, c) {
					t.Errorf("step %d: chunk %#x is free with %d posts to complete", step, c, k)
				}
			}
			if got := int(l.lane[lShared]); got != shared {
				t.Errorf("step %d: %d shared posts, counted %d", step, shared, got)
			}
		})
		if s := check(t, chained); t.Failed() {
			t.Fatalf("%+v", s.Frames)
		}
	}
	if rounds < 100 || most != workers {
		t.Fatalf("%d rounds, at most %d posts of a chunk", rounds, most)
	}
	for _, p := range ports {
		p.complete(rng)
	}
	onLane(func() {
		for i := range l.queues {
			l.reap(&l.queues[i])
		}
	})
	if s := check(t, chained); s.Frames.Transmit != 0 {
		t.Fatalf("all has completed: %+v", s.Frames)
	}
}

// TestSharedOverVeth: chains with a shared payload cross real sockets, also while one member's netdev goes away and comes
// back with posts of shared payloads under way, and no chunk is lost.
func TestSharedOverVeth(t *testing.T) {
	lab := newVethLab(t, 3, 1, false)
	var log logtest.Lines
	cfg := testConfig()
	cfg.Replicate, cfg.Logger = ReplicateChain, log.Logger()
	n := startNIC(t, cfg, lab.ports()...)
	needNative(t, n)
	wires := lab.wires(t)
	install(t, n, JobSpec{Name: "j", Workers: 3, Elements: 256, Slots: 64, Members: members(3, false)})
	all := func(rounds, from int, ranks ...int) {
		t.Helper()
		buf := make([]byte, 2048)
		for i := from; i < from+rounds; i++ {
			for r := range wires {
				if err := wires[r].Send(request(r, 256, i%64, i/64%2, uint32(i), int32(i))); err != nil {
					t.Fatal(err)
				}
			}
			for _, r := range ranks {
				k, err := wires[r].Recv(buf, time.Now().Add(5*time.Second))
				if err != nil || values(buf[:k])[255] != int32(3*i) {
					t.Fatalf("round %d, rank %d: %d bytes, %v", i, r, k, err)
				}
			}
		}
	}
	all(300, 0, 0, 1, 2)
	s := check(t, n)
	if pieces := s.Ports[0].Completed - s.Ports[0].Transmitted; pieces < 250 {
		t.Fatalf("%d pieces completed beside %d frames: the results were not chains", pieces, s.Ports[0].Transmitted)
	}
	// Rank 2's netdev goes in the middle of a flood of results.
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			for r := range wires {
				_ = wires[r].Send(request(r, 256, i%64, i/64%2, uint32(i), 1)) // rank 2's fail while it is away
			}
		}
	}()
	time.Sleep(20 * time.Millisecond)
	lab.delete(t, 2)
	lab.create(t, 2, 1)
	until := time.Now().Add(5 * time.Second)
	for n.Snapshot().Ports[2].Rebuilds == 0 && time.Now().Before(until) {
		time.Sleep(5 * time.Millisecond)
	}
	close(stop)
	<-done
	if p := waitState(t, n, 2, StateUp, ""); p.Rebuilds == 0 {
		t.Fatal("port 2 was not rebuilt")
	}
	waitFor(t, n, func(s *Snapshot) bool { return s.Total.InFlight == 0 && s.Frames.Transmit == 0 })
	check(t, n)
	if bad := log.With("are known"); len(bad) != 0 {
		t.Fatalf("the ledger was wrong: %s", bad)
	}
	if err := n.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	if s := n.Snapshot(); s.Frames.Sum() != s.Frames.Total {
		t.Fatalf("after stop: %+v", s.Frames)
	}
}
