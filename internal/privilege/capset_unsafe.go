package privilege

import (
	"fmt"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// capData is the argument of capset(2), version 3: two words of 32 capabilities each.
type capData struct {
	header unix.CapUserHeader
	data   [2]unix.CapUserData
}

// setAll makes set the permitted and effective capabilities of all threads, and nothing inheritable.
//
// Invariant of the unsafe code: the kernel reads the header and both data words, and writes at most the header's version;
// the structure is on the heap (it is pinned), so that its address stays while every thread makes the call.
func setAll(set Set) error {
	c := &capData{header: unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}}
	for i := range c.data {
		word := uint32(set >> (32 * i))
		c.data[i] = unix.CapUserData{Effective: word, Permitted: word}
	}
	var pin runtime.Pinner
	pin.Pin(c)
	defer pin.Unpin()
	_, _, e := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&c.header)), uintptr(unsafe.Pointer(&c.data[0])), 0)
	return named("capset", e)
}

// Current is the calling thread's permitted capabilities.
func Current() (Set, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return 0, fmt.Errorf("capget: %w", err)
	}
	return Set(data[1].Permitted)<<32 | Set(data[0].Permitted), nil
}
