package dataplane

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// cpuTime is the CPU time that the process has used.
func cpuTime(t testing.TB) time.Duration {
	t.Helper()
	var ru unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &ru); err != nil {
		t.Fatal(err)
	}
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}

// idle fails the test when the process never uses less than most of a time. What the runtime does beside the NIC, or does
// late on a busy machine, is not there each time; a lane that does not sleep uses all of it. It returns how often it looked.
func idle(t testing.TB, during, most time.Duration) (looks int) {
	t.Helper()
	var used []time.Duration
	for looks = range 10 {
		before := cpuTime(t)
		time.Sleep(during)
		u := cpuTime(t) - before
		if u <= most {
			return looks + 1
		}
		used = append(used, u)
	}
	t.Errorf("used %v, each time of %v", used, during)
	return looks + 1
}
