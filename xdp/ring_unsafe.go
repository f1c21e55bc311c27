package xdp

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

const ringNeedWakeup = unix.XDP_RING_NEED_WAKEUP

// ringMap is one ring as mapped from a socket. The memory is the kernel's, outside
// Go's heap: the collector neither moves nor frees it.
type ringMap struct {
	mem   []byte
	prod  *uint32
	cons  *uint32
	flags *uint32
	desc  unsafe.Pointer
	n     uint32
}

// mapRing maps the ring at a page offset of a socket. entrySize is 8 (addresses)
// or 16 (descriptors).
//
// Invariant of the unsafe code: off comes from XDP_MMAP_OFFSETS of the same socket,
// the mapping is off.Desc + entries*entrySize bytes long, so every pointer made
// here lies inside mem, and the kernel aligns each of them to a cache line. The
// pointers are dropped (Socket.forgetRings) before mem is unmapped.
func mapRing(fd int, pageOffset int64, off unix.XDPRingOffset, entries, entrySize uint32) (ringMap, error) {
	size := int(off.Desc) + int(entries)*int(entrySize)
	mem, err := unix.Mmap(fd, pageOffset, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return ringMap{}, fmt.Errorf("mmap ring of %d entries (%d bytes): %w", entries, size, err)
	}
	return ringMap{
		mem:   mem,
		prod:  (*uint32)(unsafe.Pointer(&mem[off.Producer])),
		cons:  (*uint32)(unsafe.Pointer(&mem[off.Consumer])),
		flags: (*uint32)(unsafe.Pointer(&mem[off.Flags])),
		desc:  unsafe.Pointer(&mem[off.Desc]),
		n:     entries,
	}, nil
}

// addrs views the entries as addresses; the ring was mapped with entrySize 8.
func (m ringMap) addrs() []uint64 { return unsafe.Slice((*uint64)(m.desc), m.n) }

// descs views the entries as descriptors; the ring was mapped with entrySize 16.
func (m ringMap) descs() []Desc { return unsafe.Slice((*Desc)(m.desc), m.n) }

func (m ringMap) producer() producer {
	p := producer{prod: m.prod, cons: m.cons, flags: m.flags, size: m.n}
	p.next = *m.prod
	p.limit = *m.cons + p.size
	return p
}

func (m ringMap) consumer() consumer {
	c := consumer{prod: m.prod, cons: m.cons, size: m.n}
	c.next = *m.cons
	c.limit = c.next
	return c
}

// The layout of Desc is the kernel's: 16 bytes, no padding.
var _ [16]byte = [unsafe.Sizeof(Desc{})]byte{}
