package shm

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Memory is a mapped memory file: the control page and the arena.
type Memory struct {
	Control []byte
	Arena   []byte
	all     []byte // page-aligned, since mmap made it
}

// Map maps the first size bytes of a file, which must be sealed so that it stays that long.
func Map(fd int, size int) (*Memory, error) {
	b, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes: %w", size, err)
	}
	return &Memory{all: b, Control: b[:ControlBytes:ControlBytes], Arena: b[ControlBytes:]}, nil
}

// Unmap takes the memory away. Nobody may use it, or slices of it, any more.
func (m *Memory) Unmap() error {
	if m.all == nil {
		return nil
	}
	err := unix.Munmap(m.all)
	m.all, m.Control, m.Arena = nil, nil, nil
	return err
}

// word is a 32-bit word of the control page that both sides use.
//
// The mapping starts at a page and offsets are multiples of 4 below ControlBytes, so the word is aligned and inside; the
// mapping outlives its users, who all stop before Unmap.
func (m *Memory) word(offset int) *atomic.Uint32 {
	return (*atomic.Uint32)(unsafe.Pointer(&m.Control[offset]))
}

// Floats is n elements of the arena from a byte offset on.
//
// The caller has checked that they lie in the arena and that the offset is a multiple of 4; the arena starts at a multiple
// of a page's half. Every pattern of bits is a float32. What the other side writes meanwhile can change values, never memory
// safety.
func (m *Memory) Floats(offset, n uint64) []float32 {
	if n == 0 {
		return nil
	}
	_ = m.Arena[offset+4*n-1]
	return unsafe.Slice((*float32)(unsafe.Pointer(&m.Arena[offset])), n)
}

// OffsetOf is where in the arena a slice lies; ok is false when it does not, or not whole.
func (m *Memory) OffsetOf(f []float32) (offset uint64, ok bool) {
	if len(f) == 0 || len(m.Arena) == 0 {
		return 0, false
	}
	first, base := uintptr(unsafe.Pointer(&f[0])), uintptr(unsafe.Pointer(&m.Arena[0]))
	if first < base || uint64(first-base)+4*uint64(len(f)) > uint64(len(m.Arena)) {
		return 0, false
	}
	return uint64(first - base), true
}
