package gen

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// burst is the most frames that a paced queue sends at once.
const burst = 64

// pacer tells how many frames are due. Frame i is due at start + i/rate; a sender that is behind catches up, so that the
// sum is right, in bursts of at most burst.
type pacer struct {
	rate  float64 // frames a second; 0: always due
	total uint64  // frames in all; 0: until the end
	start time.Time
	end   time.Time
}

// due is how many more frames may be sent at now, after sent; done is true when there is nothing more to send.
func (p *pacer) due(now time.Time, sent uint64) (n int, done bool) {
	if p.total > 0 && sent >= p.total {
		return 0, true
	}
	if p.rate == 0 {
		return burst, !now.Before(p.end)
	}
	// Well beyond its time a sender that cannot keep up gives up; the run is INVALID.
	if now.Sub(p.end) > p.end.Sub(p.start)/10 {
		return 0, true
	}
	ready := uint64(now.Sub(p.start).Seconds()*p.rate) + 1
	if ready <= sent {
		return 0, false
	}
	return int(min(ready-sent, p.total-sent, burst)), false
}

// pause waits a little when nothing is due: it sleeps when the next frame is more than 200 us away.
func (p *pacer) pause(now time.Time, sent uint64) {
	if p.rate == 0 {
		return
	}
	next := p.start.Add(time.Duration(float64(sent) / p.rate * 1e9))
	if left := next.Sub(now); left > 200*time.Microsecond {
		time.Sleep(left - 150*time.Microsecond)
	} else {
		unix.Nanosleep(&unix.Timespec{Nsec: 1000}, nil) // some 50 us with the default slack: others may run
	}
}

// Monotonic is CLOCK_MONOTONIC in nanoseconds: the clock of stamps, the same as bpf_ktime_get_ns.
func Monotonic() uint64 {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) != nil {
		return 0
	}
	return uint64(t.Nano())
}

// Pin binds the calling thread, which must be locked, to a CPU, and returns how to undo it.
func Pin(cpu int) (restore func(), err error) {
	var old, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &old); err != nil {
		return nil, fmt.Errorf("read the thread's CPUs: %w", err)
	}
	one.Set(cpu)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return nil, fmt.Errorf("pin the generator to CPU %d: %w", cpu, err)
	}
	return func() { _ = unix.SchedSetaffinity(0, &old) }, nil
}
