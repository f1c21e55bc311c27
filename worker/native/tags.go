package native

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"time"

	"gradnic/wire/inet"
	wire "gradnic/wire/native"
)

// tags are what a worker with a key has: each of its messages ends with a tag, and what has not the network's is not
// looked at.
type tags struct {
	auth    *wire.Auth
	salt    wire.Salt
	counter uint64
	// seen are the counters of the network in the epochs that may come or are there, by epoch and lane; past are the
	// epochs that this worker has left, to which the network never returns.
	seen map[seenBy]*wire.Window
	past map[uint32]bool
	// heard is when the last message came that had the right tag.
	heard int64
}

type seenBy struct {
	epoch uint32
	lane  uint64
}

// laneShift is where the network's lane is in its counters.
const laneShift = 42

// newTags makes the tags of this process; nil without a key.
func newTags(key *wire.Key, rank int) (*tags, error) {
	if key == nil {
		return nil, nil
	}
	t := &tags{seen: map[seenBy]*wire.Window{}, past: map[uint32]bool{}}
	binary.BigEndian.PutUint64(t.salt[:], uint64(time.Now().UnixNano()))
	_, _ = rand.Read(t.salt[8:]) // it never fails
	var err error
	if t.auth, err = wire.NewAuth(key, &t.salt, rank); err != nil {
		return nil, fmt.Errorf("native worker: %w", err)
	}
	return t, nil
}

// room is what a tag adds to a message of a kind.
func (t *tags) room(k wire.Kind) int {
	switch {
	case t == nil:
		return 0
	case k == wire.Report:
		return wire.SaltLen + wire.TrailerLen
	}
	return wire.TrailerLen
}

// put writes the headers of a frame whose payload has so many bytes, and its tag, and returns its length.
func (e *engine) putFrame(frame []byte, h *wire.Header, payload int) int {
	t := e.tags
	if t == nil {
		return wire.PutFrame(frame, &e.from, &e.nic, h, payload)
	}
	h.Flags |= wire.FlagTagged
	if h.Kind == wire.Report {
		copy(frame[wire.ValuesOffset+payload:], t.salt[:])
	}
	n := wire.PutFrame(frame, &e.from, &e.nic, h, payload+t.room(h.Kind))
	t.auth.Seal(frame[inet.PayloadOffset:n], wire.FromWorker, t.counter)
	t.counter++
	return n
}

// authentic takes a message's tag off; ok is false when it has not the one that it should have.
func (e *engine) authentic(now int64, v wire.View) (_ wire.View, ok bool) {
	t := e.tags
	if t == nil || !v.Tagged() {
		return v, t == nil && !v.Tagged()
	}
	if t.past[v.Epoch()] {
		return v, false
	}
	counter, ok := t.auth.Open(v, wire.FromNetwork)
	if !ok {
		return v, false
	}
	by := seenBy{v.Epoch(), counter >> laneShift}
	w := t.seen[by]
	if w == nil {
		w = new(wire.Window)
		t.seen[by] = w
	}
	if !w.Use(counter) {
		return v, false
	}
	t.heard = now
	return v.Untagged(), true
}

// left forgets an epoch: nothing of it is taken any more.
func (t *tags) left(epoch uint32) {
	if t == nil || epoch == 0 {
		return
	}
	t.past[epoch] = true
	for by := range t.seen {
		if by.epoch == epoch {
			delete(t.seen, by)
		}
	}
}
