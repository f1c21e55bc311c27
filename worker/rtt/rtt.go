// Package rtt is the retransmission timer of the workers: RFC 6298's estimate of the round trip, within bounds.
//
// The estimate holds the wait for the slowest worker, since the network answers when the last has come.
package rtt

import (
	"fmt"
	"time"
)

// Bounds are what a user may say of a timer.
type Bounds struct {
	// First is the timeout as long as nothing was measured; from then on it is within Least and Most.
	First, Least, Most time.Duration
}

// Defaulted gives the bounds with those of or where there is 0, and refuses negative ones and an empty range.
func (b Bounds) Defaulted(or Bounds) (Bounds, error) {
	for _, d := range []struct {
		v    *time.Duration
		or   time.Duration
		name string
	}{{&b.First, or.First, "timeout"}, {&b.Least, or.Least, "minimum timeout"}, {&b.Most, or.Most, "maximum timeout"}} {
		if *d.v == 0 {
			*d.v = d.or
		}
		if *d.v < 0 {
			return b, fmt.Errorf("%s %v is negative", d.name, *d.v)
		}
	}
	if b.Most < b.Least {
		return b, fmt.Errorf("maximum timeout %v is less than the minimum %v", b.Most, b.Least)
	}
	return b, nil
}

// Timer is the estimate, doubled while nothing comes in. All times are nanoseconds of one monotonic clock.
type Timer struct {
	first, least, most int64
	srtt, rttvar       int64
	sampled            bool
	backoff            uint
	lastExpire         int64
	expired            bool // since something came in
}

// NewTimer makes a timer that has measured nothing.
func NewTimer(b Bounds) Timer {
	return Timer{first: int64(b.First), least: int64(b.Least), most: int64(b.Most)}
}

// Timeout is how long a packet waits before it is sent again.
func (t *Timer) Timeout() int64 {
	d := t.first
	if t.sampled {
		d = t.srtt + 4*t.rttvar
	}
	d = max(d, t.least)
	for i := uint(0); i < t.backoff && d < t.most; i++ {
		d *= 2
	}
	return min(d, t.most)
}

// Sampled reports whether a round trip was measured.
func (t *Timer) Sampled() bool { return t.sampled }

// RoundTrip is the smoothed round trip; 0 as long as nothing was measured.
func (t *Timer) RoundTrip() int64 { return t.srtt }

// Probe is how long nothing comes before it is worth a packet or a few to find out why: two round trips, as RFC 8985 has it, and no
// less than a quarter of the least timeout, as a host that is busy is late by that much; as long as nothing was measured, a timeout.
func (t *Timer) Probe() int64 {
	if !t.sampled {
		return t.Timeout()
	}
	return max(2*t.srtt, t.least/4)
}

// Sample takes a measured round trip.
func (t *Timer) Sample(d int64) {
	d = max(d, 0)
	if !t.sampled {
		t.srtt, t.rttvar, t.sampled = d, d/2, true
		return
	}
	t.rttvar = (3*t.rttvar + max(t.srtt-d, d-t.srtt)) / 4
	t.srtt = (7*t.srtt + d) / 8
}

// Expire doubles the timeout, once for all packets that expire together.
func (t *Timer) Expire(now int64) {
	if t.expired && now-t.lastExpire < t.Timeout()/2 {
		return
	}
	t.lastExpire, t.expired = now, true
	if t.Timeout() < t.most {
		t.backoff++
	}
}

// Calm ends the doubling: something came in.
func (t *Timer) Calm() { t.backoff, t.expired = 0, false }
