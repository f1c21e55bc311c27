package switchml

import (
	"context"
	"log/slog"
	"math/bits"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// maxWorkers is the width of the real switch's bitmap.
	maxWorkers = 32
	// maxRounds bounds how far one rank may run ahead of the others in Broadcast.
	maxRounds = 256
)

// meetings is where ranks meet. Callers do not name a session. Until a Broadcast has
// told a connection its session's id, the door and the number of workers are all that
// keeps two sessions apart; from then on its barriers are its session's.
type meetings struct {
	stop chan struct{} // closed when the server stops

	mu       sync.Mutex
	barriers map[meeting]*barrier
	rounds   map[circle][]*round

	logger  *slog.Logger
	patient time.Duration // how long a round is incomplete before the log names who is missing
}

// barrier opens when as many callers wait as there are workers.
type barrier struct {
	came int
	open chan struct{}
}

// meeting is who waits for each other in a barrier.
type meeting struct {
	door    string
	session uint64 // 0: not known
	workers int
}

// circle is a set of ranks that broadcast among themselves.
type circle struct {
	door          string
	workers, root int
}

// round is one Broadcast. The k-th call of a rank belongs to the k-th round: a
// caller joins the oldest round that it is not in yet.
type round struct {
	joined uint32        // ranks, a bit each
	ready  chan struct{} // closed when the root has come
	value  uint64        // valid when ready is closed
	root   *connection   // that the value came by; nil: unknown
	by     [maxWorkers]*connection
}

func newMeetings() *meetings {
	return &meetings{
		stop:     make(chan struct{}),
		barriers: map[meeting]*barrier{}, rounds: map[circle][]*round{},
		logger: slog.New(slog.DiscardHandler), patient: 5 * time.Second,
	}
}

// barrier waits until workers callers wait. A caller whose ctx ends is taken out
// again, so that the ones who stay wait for one more, as they must.
func (m *meetings) barrier(ctx context.Context, workers int) error {
	if workers < 1 || workers > maxWorkers {
		return status.Errorf(codes.InvalidArgument, "barrier: num_workers %d: legal are 1 to %d", workers, maxWorkers)
	}
	c := connectionOf(ctx)
	key := meeting{c.where(), c.in(), workers}
	m.mu.Lock()
	b := m.barriers[key]
	if b == nil {
		b = &barrier{open: make(chan struct{})}
		m.barriers[key] = b
	}
	b.came++
	if b.came == workers {
		delete(m.barriers, key) // the next caller begins the next barrier
		close(b.open)
		m.mu.Unlock()
		return nil
	}
	m.mu.Unlock()
	return m.await(ctx, b.open, func() {
		b.came--
		if b.came == 0 && m.barriers[key] == b {
			delete(m.barriers, key)
		}
	})
}

// await waits until a channel is closed. When that does not happen before ctx ends, or the controller stops, leave takes the caller
// out, with m.mu held.
func (m *meetings) await(ctx context.Context, closed <-chan struct{}, leave func()) (err error) {
	select {
	case <-closed:
		return nil
	case <-ctx.Done():
		err = status.FromContextError(ctx.Err()).Err()
	case <-m.stop:
		err = errStopping
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	select {
	case <-closed: // in this moment: we were counted
		return nil
	default:
	}
	leave()
	return err
}

var errStopping = status.Error(codes.Unavailable, "the controller is stopping")

// broadcast returns root's value of the caller's round. The root does not wait.
//
// Two things end a round early. A caller that waits for the root and goes away
// leaves it. And a round that is not complete although its root's connection has
// ended is the round of a root that died, for a client keeps its connection and
// its root waits in a barrier after this: it is dropped when the root calls again,
// or a rank whose connection began later and who thus belongs to the next life.
func (m *meetings) broadcast(ctx context.Context, rank, workers, root int, value uint64) (uint64, error) {
	switch {
	case workers < 1 || workers > maxWorkers:
		return 0, status.Errorf(codes.InvalidArgument, "broadcast: num_workers %d: legal are 1 to %d", workers, maxWorkers)
	case rank < 0 || rank >= workers:
		return 0, status.Errorf(codes.InvalidArgument, "broadcast: rank %d: %d workers have ranks 0 to %d", rank, workers, workers-1)
	case root < 0 || root >= workers:
		return 0, status.Errorf(codes.InvalidArgument, "broadcast: root %d: %d workers have ranks 0 to %d", root, workers, workers-1)
	}
	key := circle{connectionOf(ctx).where(), workers, root}
	bit := uint32(1) << rank

	m.mu.Lock()
	m.dropOrphans(key, rank == root, connectionOf(ctx))
	var r *round
	for _, old := range m.rounds[key] {
		if old.joined&bit == 0 {
			r = old
			break
		}
		m.warnOfTwins(old.by[rank], connectionOf(ctx), rank, workers)
	}
	if r == nil {
		if len(m.rounds[key]) >= maxRounds {
			m.mu.Unlock()
			return 0, status.Errorf(codes.ResourceExhausted, "broadcast: rank %d is %d calls ahead of the others", rank, maxRounds)
		}
		r = &round{ready: make(chan struct{})}
		m.rounds[key] = append(m.rounds[key], r)
		m.watch(key, r, m.patient)
	}
	r.joined |= bit
	r.by[rank] = connectionOf(ctx)
	if rank == root {
		r.value, r.root = value, connectionOf(ctx)
		close(r.ready)
	}
	if bits.OnesCount32(r.joined) == workers {
		m.drop(key, r) // everyone holds it
	}
	m.mu.Unlock()
	err := m.await(ctx, r.ready, func() {
		r.joined &^= bit
		if r.joined == 0 {
			m.drop(key, r)
		}
	})
	if err != nil {
		return 0, err
	}
	return r.value, nil
}

// dropOrphans removes the rounds that a dead root left half done, as far as the
// caller is not of the same life. m.mu is held.
func (m *meetings) dropOrphans(key circle, rootCalls bool, caller *connection) {
	for i := 0; i < len(m.rounds[key]); {
		r := m.rounds[key][i]
		if r.root.ended() && (rootCalls || caller.beganAfter(r.root)) {
			m.drop(key, r) // nobody waits in it: its value is there
			continue
		}
		i++
	}
}

// drop removes a round. m.mu is held.
func (m *meetings) drop(key circle, gone *round) {
	rounds := m.rounds[key]
	for i, r := range rounds {
		if r == gone {
			rounds = append(rounds[:i:i], rounds[i+1:]...)
			break
		}
	}
	if len(rounds) == 0 {
		delete(m.rounds, key)
		return
	}
	m.rounds[key] = rounds
}

// idle is true when nobody waits and nothing is half done.
func (m *meetings) idle() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.barriers) == 0 && len(m.rounds) == 0
}

// close sends everyone who waits away.
func (m *meetings) close() { close(m.stop) }
