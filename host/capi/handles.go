//go:build cgo

package main

import (
	"errors"
	"sync"

	"gradnic/host"
)

// table gives values numbers that are never used again. There is one for each kind of handle, for the process: it is what C
// has instead of references.
type table[T any] struct {
	mu   sync.Mutex
	last uint64
	of   map[uint64]T
}

var errNoHandle = errors.New("the handle is closed, or was never one")

func (t *table[T]) add(v T) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of == nil {
		t.of = map[uint64]T{}
	}
	t.last++
	t.of[t.last] = v
	return t.last
}

func (t *table[T]) get(n uint64) (T, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	v, ok := t.of[n]
	if !ok {
		return v, errNoHandle
	}
	return v, nil
}

func (t *table[T]) remove(n uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.of, n)
}

// nic is an open client, or a closed one of which memory is still lent.
type nic struct {
	*host.Client
	mu     sync.Mutex
	closed bool
}

// settle forgets a closed client once its memory is back. n.mu is held.
func (n *nic) settle(handle uint64) {
	if n.closed && n.Lent() == 0 {
		nics.remove(handle)
	}
}

var (
	nics table[*nic]
	ops  table[*host.Op]
)
