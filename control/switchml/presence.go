package switchml

import (
	"math/bits"
	"slices"
	"time"
)

// nagEvery is how often the log names who is still missing.
const nagEvery = time.Minute

// here are the ranks that wait for the others: they have come to a round that is not complete, and live. The protocol's
// barriers are anonymous; its clients begin with a Broadcast, which is not.
func (r *round) here() (ranks []int) {
	for set := r.joined; set != 0; set &= set - 1 {
		if rank := bits.TrailingZeros32(set); !r.by[rank].ended() {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// absent are the other ranks of the circle.
func (c circle) absent(here []int) (ranks []int) {
	for rank := range c.workers {
		if !slices.Contains(here, rank) {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// watch names in the log who is missing, as long as somebody waits for them. m.mu is held.
func (m *meetings) watch(key circle, r *round, after time.Duration) {
	time.AfterFunc(after, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		select {
		case <-m.stop:
			return
		default:
		}
		here := r.here()
		if !slices.Contains(m.rounds[key], r) || len(here) == 0 {
			return
		}
		m.logger.Warn("workers have not come", "missing", key.absent(here), "waiting", here, "workers", key.workers)
		m.watch(key, r, nagEvery)
	})
}

// warnOfTwins says that two workers have the same rank: the protocol cannot refuse one, and neither will get on.
func (m *meetings) warnOfTwins(first, second *connection, rank, workers int) {
	if first != nil && second != nil && first != second && !first.ended() {
		m.logger.Warn("two workers say that they have the same rank: stop one of them", "rank", rank, "workers", workers)
	}
}

// present are the ranks of a job of this controller that have come, and wait for others.
func (s *Server) present(job string, workers int) []int {
	door, ok := s.sessions.doorFor(job)
	if !ok {
		return nil
	}
	s.meetings.mu.Lock()
	defer s.meetings.mu.Unlock()
	for _, r := range s.meetings.rounds[circle{door: door, workers: workers}] {
		if here := r.here(); len(here) > 0 {
			return here
		}
	}
	return nil
}
