package host

import (
	"errors"
	"fmt"
	"slices"
)

// ErrNoRoom says that the arena has no piece of that size free.
var ErrNoRoom = errors.New("host: no such piece of the arena is free")

// arena deals out the shared memory: first fit, in units of a cache line.
type arena struct {
	size uint64
	free []span            // by offset, none touches the next
	used map[uint64]uint64 // bytes by offset
}

type span struct{ at, bytes uint64 }

const lineBytes = 64

func newArena(size uint64) *arena {
	return &arena{size: size, free: []span{{0, size}}, used: map[uint64]uint64{}}
}

// take returns the offset of so many bytes.
func (a *arena) take(bytes uint64) (at uint64, err error) {
	bytes = max(lineBytes, (bytes+lineBytes-1)&^(lineBytes-1))
	for i := range a.free {
		s := &a.free[i]
		if s.bytes < bytes {
			continue
		}
		at = s.at
		s.at, s.bytes = s.at+bytes, s.bytes-bytes
		if s.bytes == 0 {
			a.free = slices.Delete(a.free, i, i+1)
		}
		a.used[at] = bytes
		return at, nil
	}
	return 0, fmt.Errorf("%w: %d bytes of %d", ErrNoRoom, bytes, a.size)
}

// give takes bytes back; false when they were not given out.
func (a *arena) give(at uint64) bool {
	bytes, ok := a.used[at]
	if !ok {
		return false
	}
	delete(a.used, at)
	i, _ := slices.BinarySearchFunc(a.free, at, func(s span, at uint64) int { return int(int64(s.at) - int64(at)) })
	a.free = slices.Insert(a.free, i, span{at, bytes})
	if i+1 < len(a.free) && a.free[i].at+a.free[i].bytes == a.free[i+1].at {
		a.free[i].bytes += a.free[i+1].bytes
		a.free = slices.Delete(a.free, i+1, i+2)
	}
	if i > 0 && a.free[i-1].at+a.free[i-1].bytes == a.free[i].at {
		a.free[i-1].bytes += a.free[i].bytes
		a.free = slices.Delete(a.free, i, i+1)
	}
	return true
}
