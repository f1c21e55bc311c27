package xdp

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// limits is what a UMEM is admitted against, in bytes.
type limits struct {
	available uint64 // memory that can be had without swapping
	memlock   uint64 // RLIMIT_MEMLOCK, unlimited when lockAny
	lockAny   bool   // CAP_IPC_LOCK: pinned memory is not charged
}

// admitMemory refuses a UMEM that would drive the machine out of memory.
func admitMemory(size uint64, get func(size uint64) (limits, error)) error {
	l, err := get(size)
	if err != nil {
		return fmt.Errorf("umem: %d bytes: %w", size, err)
	}
	if size > l.available {
		return fmt.Errorf("umem: %d bytes: only %d bytes of memory are available: %w", size, l.available, unix.ENOMEM)
	}
	return nil
}

// admitLock refuses a registration that the kernel would refuse: registered pages
// are pinned, cannot be swapped and are charged. Memory without sockets is not.
func admitLock(size uint64, get func(size uint64) (limits, error)) error {
	l, err := get(size)
	if err != nil {
		return fmt.Errorf("umem: %d bytes: %w", size, err)
	}
	if !l.lockAny && size > l.memlock {
		return fmt.Errorf("umem: %d bytes: RLIMIT_MEMLOCK is %d: raise it (ulimit -l, LimitMEMLOCK=) or grant CAP_IPC_LOCK: %w", size, l.memlock, unix.ENOMEM)
	}
	return nil
}

// systemLimits reads the limits of this process. A soft RLIMIT_MEMLOCK that is too
// small is raised to its hard limit, which needs no capability; raising the
// hard limit would need CAP_SYS_RESOURCE and is not tried.
func systemLimits(size uint64) (limits, error) {
	var l limits
	mem, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return l, fmt.Errorf("how much memory is available: %w", err)
	}
	if l.available, err = memAvailable(mem); err != nil {
		return l, err
	}
	have, err := effective()
	if err != nil {
		return l, err
	}
	l.lockAny = have(unix.CAP_IPC_LOCK)
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &r); err != nil {
		return l, fmt.Errorf("getrlimit memlock: %w", err)
	}
	if !l.lockAny && r.Cur < size && r.Cur < r.Max {
		raised := unix.Rlimit{Cur: r.Max, Max: r.Max}
		if unix.Setrlimit(unix.RLIMIT_MEMLOCK, &raised) == nil {
			r = raised
		}
	}
	l.memlock = r.Cur
	return l, nil
}

// memAvailable finds MemAvailable in the text of /proc/meminfo, in bytes.
func memAvailable(meminfo []byte) (uint64, error) {
	sc := bufio.NewScanner(bytes.NewReader(meminfo))
	for sc.Scan() {
		f := bytes.Fields(sc.Bytes())
		if len(f) >= 2 && string(f[0]) == "MemAvailable:" {
			kib, err := strconv.ParseUint(string(f[1]), 10, 53)
			if err != nil {
				return 0, fmt.Errorf("meminfo: MemAvailable: %w", err)
			}
			return kib << 10, nil
		}
	}
	return 0, fmt.Errorf("meminfo: no MemAvailable")
}
