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
