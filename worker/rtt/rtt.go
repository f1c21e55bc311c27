package worker

import "time"

// rto is the retransmission timer: RFC 6298's estimate of the round trip within
// [min, max], doubled while nothing comes in.
//
// The estimate holds the wait for the slowest worker, since the switch answers
// when the last has come. It starts over for nothing: jobs of one session
// resemble each other.
type rto struct {
	min, max     int64
	initial      int64 // until the first sample
	srtt, rttvar int64
	sampled      bool
	backoff      uint
	lastExpire   int64
	expiredOnce  bool
}

func newRTO(initial, lo, hi time.Duration) rto {
	return rto{initial: int64(initial), min: int64(lo), max: int64(hi)}
}

// timeout is how long a packet waits before it is sent again, in nanoseconds.
func (r *rto) timeout() int64 {
	t := r.initial
	if r.sampled {
		t = r.srtt + 4*r.rttvar
	}
	t = max(t, r.min)
	for i := uint(0); i < r.backoff && t < r.max; i++ {
		t *= 2
	}
	return min(t, r.max)
}

// sample takes a measured round trip.
func (r *rto) sample(rtt int64) {
	rtt = max(rtt, 0)
	if !r.sampled {
		r.srtt, r.rttvar, r.sampled = rtt, rtt/2, true
		return
	}
	r.rttvar = (3*r.rttvar + abs(r.srtt-rtt)) / 4
	r.srtt = (7*r.srtt + rtt) / 8
}

func abs(x int64) int64 {
	if x < 0 {
		return -x
	}
	return x
}

// expire doubles the timeout, once for all packets that expire together.
func (r *rto) expire(now int64) {
	if r.expiredOnce && now-r.lastExpire < r.timeout()/2 {
		return
	}
	r.lastExpire, r.expiredOnce = now, true
	if r.timeout() < r.max {
		r.backoff++
	}
}

// calm ends the doubling: something came in.
func (r *rto) calm() { r.backoff, r.expiredOnce = 0, false }
