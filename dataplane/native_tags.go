package dataplane

import (
	"errors"
	"fmt"

	"gradnic/wire/inet"
	"gradnic/wire/native"
)

// This file is what native jobs with keys have of their own: messages in both directions end with a tag, and what has not
// the tag of its worker never gets to a slot.

// checkTags refuses what a job with keys cannot have.
func (s *JobSpec) checkTags() error {
	n := len(s.Native.Keys)
	switch {
	case n == 0:
		return nil
	case n != s.Workers:
		return fmt.Errorf("%d keys for %d workers: one each, or none", n, s.Workers)
	case s.Multicast != nil:
		return errors.New("results that are tagged for each worker cannot go to a multicast group")
	case s.Layout != "":
		return errors.New("tags and layouts do not go together")
	}
	return nil
}

// TagBytes is what a tag adds to a message of values.
func (s *NativeSpec) TagBytes() int {
	if len(s.Keys) == 0 {
		return 0
	}
	return native.TrailerLen
}

// laneTags is what a lane knows of the processes of a job's workers, by rank.
type laneTags struct {
	keys []native.Key
	auth []*native.Auth // nil: it has not reported
	salt []native.Salt
	seen []native.Window // of the messages that came to this lane
	sent []uint64        // counters of messages to it; the lane is above them, so that no two lanes use one
}

// laneCounterShift is where the lane's number is in counters of the network: there are 2^6 lanes, and 2^42 messages of
// each to a worker last for months.
const laneCounterShift = 42

func newLaneTags(keys []native.Key, lane int) *laneTags {
	if len(keys) == 0 {
		return nil
	}
	n := len(keys)
	t := &laneTags{keys: keys, auth: make([]*native.Auth, n), salt: make([]native.Salt, n), seen: make([]native.Window, n), sent: make([]uint64, n)}
	for r := range t.sent {
		t.sent[r] = uint64(lane) << laneCounterShift
	}
	return t
}

// authentic judges the tag of message i of a worker and takes it off; false when the frame was dropped.
func (l *lane) authentic(j *laneJob, i int) bool {
	t, v := j.native.tags, l.batch.msg[i]
	if t == nil && !v.Tagged() {
		return true
	}
	if t == nil || !v.Tagged() {
		l.drop(i, WrongTag)
		return false
	}
	rank := v.Rank()
	if v.Kind() == native.Report && (t.auth[rank] == nil || v.Salt() != t.salt[rank]) {
		return l.newProcess(j, i)
	}
	a := t.auth[rank]
	if a == nil {
		l.drop(i, WrongTag)
		return false
	}
	counter, ok := a.Open(v, native.FromWorker)
	switch {
	case !ok:
		l.drop(i, WrongTag)
		return false
	case !t.seen[rank].Use(counter):
		l.drop(i, Replayed)
		return false
	}
	l.batch.msg[i] = v.Untagged()
	return true
}

// newProcess judges the first report of a process, and makes it its worker's on all lanes. Only a later one than the last
// is taken: an older report is a replay. Lane 0 runs it.
func (l *lane) newProcess(j *laneJob, i int) bool {
	x, v := j.native, l.batch.msg[i]
	t, rank, salt := x.tags, v.Rank(), v.Salt()
	if t.auth[rank] != nil && salt.Started() <= t.salt[rank].Started() {
		l.drop(i, Replayed)
		return false
	}
	a, err := native.NewAuth(&t.keys[rank], &salt, rank)
	if err != nil {
		l.drop(i, WrongTag)
		return false
	}
	counter, ok := a.Open(v, native.FromWorker)
	if !ok {
		l.drop(i, WrongTag)
		return false
	}
	for _, other := range l.lanes {
		other.tell(l, func(o *lane) {
			lj := o.nativeJob(x.id)
			if lj == nil || lj.name != j.name || lj.native.tags == nil {
				return
			}
			// An authenticator is one goroutine's.
			if own, err := native.NewAuth(&t.keys[rank], &salt, rank); err == nil {
				ot := lj.native.tags
				ot.auth[rank], ot.salt[rank], ot.seen[rank] = own, salt, native.Window{}
			}
		})
	}
	t.seen[rank].Use(counter)
	l.batch.msg[i] = v.Untagged()
	return true
}

// tagLen is what a tag adds to a message to a worker.
func (x *laneNative) tagLen() int {
	if x.tags == nil {
		return 0
	}
	return native.TrailerLen
}

// tagFlag is the flag that a message to a worker has for its tag.
func (x *laneNative) tagFlag() native.Flags {
	if x.tags == nil {
		return 0
	}
	return native.FlagTagged
}

// seal tags a whole frame to a worker. One whose process is not known here gets what it will not take, and asks again.
func (x *laneNative) seal(rank int, frame []byte) {
	t := x.tags
	if t == nil || rank < 0 || rank >= len(t.auth) || t.auth[rank] == nil {
		return
	}
	t.auth[rank].Seal(frame[inet.PayloadOffset:], native.FromNetwork, t.sent[rank])
	t.sent[rank]++
}
