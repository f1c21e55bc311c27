package dataplane

import (
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// pin binds the calling thread to one CPU.
func pin(cpu int) error {
	var set unix.CPUSet
	set.Set(cpu)
	return unix.SchedSetaffinity(0, &set)
}

// checkCPUs tries whether lanes can be pinned as asked, on threads that end with the try.
func (n *NIC) checkCPUs() error {
	for _, l := range n.lanes {
		if l.cpu < 0 {
			continue
		}
		tried := make(chan error)
		go func() {
			runtime.LockOSThread() // and never unlocked
			tried <- pin(l.cpu)
		}()
		if err := <-tried; errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("lane %d: CPU %d does not exist, is offline, or is not for this process (see nproc, and taskset -p): name another", l.id, l.cpu)
		} else if err != nil {
			return fmt.Errorf("lane %d: pin to CPU %d: %w", l.id, l.cpu, err)
		}
	}
	return nil
}
