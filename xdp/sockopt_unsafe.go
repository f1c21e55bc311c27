package xdp

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// The wrappers below hand a pointer to a kernel call that neither keeps it nor
// reads past the size given beside it; each pointer is made from a live Go value
// in the call's own expression, as package unsafe's rule 4 asks. All of them go through
// unix.Syscall6, which tells the Go scheduler: a blocked call does not hold up the
// collector.

func setsockoptUmemReg(fd int, r *unix.XDPUmemReg) error {
	return setsockopt(fd, unix.XDP_UMEM_REG, unsafe.Pointer(r), unsafe.Sizeof(*r))
}

func setsockopt(fd, name int, p unsafe.Pointer, size uintptr) error {
	_, _, e := unix.Syscall6(unix.SYS_SETSOCKOPT, uintptr(fd), unix.SOL_XDP, uintptr(name), uintptr(p), size, 0)
	if e != 0 {
		return e
	}
	return nil
}

func getsockopt(fd, name int, p unsafe.Pointer, size uintptr) error {
	n := uint32(size)
	_, _, e := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_XDP, uintptr(name), uintptr(p), uintptr(unsafe.Pointer(&n)), 0)
	if e != 0 {
		return e
	}
	return nil
}

func mmapOffsets(fd int) (unix.XDPMmapOffsets, error) {
	var off unix.XDPMmapOffsets
	err := getsockopt(fd, unix.XDP_MMAP_OFFSETS, unsafe.Pointer(&off), unsafe.Sizeof(off))
	return off, err
}

// socketStatistics reads XDP_STATISTICS. Kernels before 5.9 fill the first three fields only.
func socketStatistics(fd int) (unix.XDPStatistics, error) {
	var st unix.XDPStatistics
	err := getsockopt(fd, unix.XDP_STATISTICS, unsafe.Pointer(&st), unsafe.Sizeof(st))
	return st, err
}

func socketFlags(fd int) (uint32, error) {
	var flags uint32
	err := getsockopt(fd, unix.XDP_OPTIONS, unsafe.Pointer(&flags), unsafe.Sizeof(flags))
	return flags, err
}

// sendWake is the transmit wake-up: sendto of nothing, never blocking.
func sendWake(fd int) unix.Errno {
	_, _, e := unix.Syscall6(unix.SYS_SENDTO, uintptr(fd), 0, 0, unix.MSG_DONTWAIT, 0, 0)
	return e
}

// receiveWake is the receive wake-up: recvfrom of nothing, never blocking.
func receiveWake(fd int) unix.Errno {
	_, _, e := unix.Syscall6(unix.SYS_RECVFROM, uintptr(fd), 0, 0, unix.MSG_DONTWAIT, 0, 0)
	return e
}

// areaAddress is the address that XDP_UMEM_REG is told. The area is mapped
// memory, which Go never moves.
func areaAddress(area []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(area)))) }
