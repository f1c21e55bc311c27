package switchml

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"pgregory.net/rapid"
)

func TestBarrierOpensForAll(t *testing.T) {
	for _, workers := range []int{1, 2, 8, 32} {
		m := newMeetings()
		for round := range 3 {
			errs := make(chan error, workers)
			for range workers {
				go func() { errs <- m.barrier(t.Context(), workers) }()
			}
			for range workers {
				if err := <-errs; err != nil {
					t.Fatalf("%d workers, round %d: %v", workers, round, err)
				}
			}
			if !m.idle() {
				t.Fatalf("%d workers, round %d: something is left", workers, round)
			}
		}
	}
}

// A caller that goes away must not count: otherwise the next round opens too early, or the ranks wedge.
func TestBarrierForgetsWhoWentAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMeetings()
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan error)
		go func() { gone <- m.barrier(ctx, 3) }()
		synctest.Wait()
		cancel()
		if err := <-gone; status.Code(err) != codes.Canceled {
			t.Fatalf("cancelled caller got %v", err)
		}
		if !m.idle() {
			t.Fatal("the cancelled caller is still counted")
		}
		stay := make(chan error, 3)
		for range 2 {
			go func() { stay <- m.barrier(t.Context(), 3) }()
		}
		synctest.Wait()
		select {
		case err := <-stay:
			t.Fatalf("two of three passed: %v", err)
		default:
		}
		go func() { stay <- m.barrier(t.Context(), 3) }()
		for range 3 {
			if err := <-stay; err != nil {
				t.Fatal(err)
			}
		}
	})
}

// Barriers of different sizes are different barriers.
func TestBarriersOfTwoSizes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMeetings()
		two, three := make(chan error, 2), make(chan error, 3)
		go func() { two <- m.barrier(t.Context(), 2) }()
		for range 2 {
			go func() { three <- m.barrier(t.Context(), 3) }()
		}
		synctest.Wait()
		if len(two)+len(three) != 0 {
			t.Fatal("callers of two sizes met")
		}
		go func() { two <- m.barrier(t.Context(), 2) }()
		go func() { three <- m.barrier(t.Context(), 3) }()
		synctest.Wait()
		if len(two) != 2 || len(three) != 3 {
			t.Fatalf("%d of 2 and %d of 3 passed", len(two), len(three))
		}
	})
}

func TestStopSendsWaitersAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMeetings()
		errs := make(chan error, 2)
		go func() { errs <- m.barrier(t.Context(), 2) }()
		go func() {
			_, err := m.broadcast(t.Context(), 1, 2, 0, 0)
			errs <- err
		}()
		synctest.Wait()
		m.close()
		for range 2 {
			if err := <-errs; status.Code(err) != codes.Unavailable {
				t.Errorf("got %v", err)
			}
		}
		if !m.idle() {
			t.Error("something is left")
		}
	})
}

// Whatever the order and the delays, the k-th call of each rank gets the root's k-th value, and nothing is left.
func TestBroadcastMatchesKthCalls(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		workers := rapid.IntRange(1, 8).Draw(r, "workers")
		root := rapid.IntRange(0, workers-1).Draw(r, "root")
		calls := rapid.IntRange(1, 6).Draw(r, "calls")
		seed := rapid.Uint64().Draw(r, "seed")
		m := newMeetings()
		var wg sync.WaitGroup
		errs := make(chan error, workers)
		for rank := range workers {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(seed, uint64(rank)))
				for k := range calls {
					time.Sleep(time.Duration(rng.IntN(50)) * time.Microsecond)
					v, err := m.broadcast(context.Background(), rank, workers, root, uint64(1000*rank+k))
					if want := uint64(1000*root + k); err != nil || v != want {
						errs <- fmt.Errorf("rank %d call %d: %d, %v, want %d", rank, k, v, err, want)
						return
					}
				}
			})
		}
		wg.Wait()
		close(errs)
		for err := range errs {
			r.Fatal(err)
		}
		if !m.idle() {
			r.Fatal("something is left")
		}
	})
}

func TestBroadcastForgetsWhoWentAway(t *testing.T) {
	m := newMeetings()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.broadcast(ctx, 1, 3, 0, 0); !errors.Is(err, status.FromContextError(context.Canceled).Err()) && status.Code(err) != codes.Canceled {
		t.Fatalf("got %v", err)
	}
	if !m.idle() {
		t.Fatal("the caller that went away is still in the round")
	}
}

// withConnection is a call's context on c.
func withConnection(c *connection) context.Context {
	return context.WithValue(context.Background(), connectionKey{}, c)
}

// All ranks are killed in the middle of a Broadcast and start again, in whatever
// order. The public controller would pair the new ranks with the old round.
func TestRestartInTheMiddleOfBroadcast(t *testing.T) {
	for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 0, 2}} {
		m := newMeetings()
		old := &connection{began: 1}
		for _, rank := range []int{0, 1} { // rank 2 never came
			if v, err := m.broadcast(withConnection(old), rank, 3, 0, 111); v != 111 || err != nil {
				t.Fatal(v, err)
			}
		}
		old.endedAt.Store(10)

		var wg sync.WaitGroup
		for _, rank := range order {
			fresh := withConnection(&connection{began: int64(20 + rank)})
			if rank == order[0] {
				// The first of the new life is there before the others.
				started := make(chan struct{})
				wg.Go(func() {
					close(started)
					if v, err := m.broadcast(fresh, rank, 3, 0, 222); v != 222 || err != nil {
						t.Errorf("order %v: rank %d got %d, %v", order, rank, v, err)
					}
				})
				<-started
				time.Sleep(time.Millisecond)
				continue
			}
			wg.Go(func() {
				if v, err := m.broadcast(fresh, rank, 3, 0, 222); v != 222 || err != nil {
					t.Errorf("order %v: rank %d got %d, %v", order, rank, v, err)
				}
			})
		}
		wg.Wait()
		if !m.idle() {
			t.Errorf("order %v: something is left", order)
		}
	}
}

// A root that ended does not take its value from a rank that was there before.
func TestRankOfTheSameLifeGetsTheValue(t *testing.T) {
	m := newMeetings()
	root, slow := &connection{began: 1}, &connection{began: 9}
	if _, err := m.broadcast(withConnection(root), 0, 2, 0, 7); err != nil {
		t.Fatal(err)
	}
	root.endedAt.Store(10)
	if v, err := m.broadcast(withConnection(slow), 1, 2, 0, 0); v != 7 || err != nil {
		t.Fatalf("got %d, %v", v, err)
	}
	if !m.idle() {
		t.Error("something is left")
	}
}

func TestMeetingsRefuse(t *testing.T) {
	m := newMeetings()
	for _, workers := range []int{0, 33, 1 << 31} {
		if err := m.barrier(t.Context(), workers); status.Code(err) != codes.InvalidArgument {
			t.Errorf("barrier of %d: %v", workers, err)
		}
	}
	for _, c := range []struct{ rank, workers, root int }{
		{0, 0, 0}, {0, 33, 0}, {2, 2, 0}, {0, 2, 2}, {1 << 31, 2, 0}, {0, 2, 1 << 31},
	} {
		if _, err := m.broadcast(t.Context(), c.rank, c.workers, c.root, 1); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%+v: %v", c, err)
		}
	}
	// A root that runs away is stopped.
	for k := range maxRounds {
		if _, err := m.broadcast(t.Context(), 0, 2, 0, uint64(k)); err != nil {
			t.Fatal(k, err)
		}
	}
	if _, err := m.broadcast(t.Context(), 0, 2, 0, 1); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("round %d: %v", maxRounds+1, err)
	}
	// And the other rank still gets all of them, in order.
	for k := range maxRounds {
		if v, err := m.broadcast(t.Context(), 1, 2, 0, 0); err != nil || v != uint64(k) {
			t.Fatalf("round %d: %d, %v", k, v, err)
		}
	}
	if !m.idle() {
		t.Error("something is left")
	}
}
