package dataplane

import (
	"encoding/binary"
	"time"

	"gradnic/aggregation/recovery"
	"gradnic/wire/native"
)

// This file is the lane's own look at deadlines of native jobs, for rounds whose workers have stopped asking. The alarm is set
// when something begins to wait, and once it has rung for the time at which what waits now would be too late; so a
// busy lane compares two numbers a round, and an idle one is not woken.

// leastLook keeps the alarm from ringing all the time for deadlines that are next to nothing.
const leastLook = int64(time.Millisecond)

// watch sets the alarm for a job that waits since a time.
func (l *lane) watch(x *laneNative, since int64) {
	if at := since + max(x.deadline, leastLook); x.deadline > 0 && (l.alarm == 0 || at < l.alarm) {
		l.alarm = at
	}
}

// ring is called when the alarm is set and the time is known, and returns 1 if a deadline has passed.
func (l *lane) ring() int {
	if l.now < l.alarm {
		return 0
	}
	l.alarm = 0
	work := 0
	for _, j := range l.natives {
		if j == nil || j.native.deadline <= 0 {
			continue
		}
		if l.overdue(j) {
			work = 1
		}
	}
	return work
}

// overdue aborts a job that waits for longer than its deadline, or sets the alarm for when it will.
func (l *lane) overdue(j *laneJob) bool {
	x := j.native
	switch x.reply {
	case recovery.Go:
		if slot, set, started, ok := j.pool.Oldest(); ok {
			if l.now-started >= x.deadline {
				l.abortNative(j, native.Bits(l.latecomers(j, slot, set), len(j.workers)))
				return true
			}
			l.watch(x, started)
		}
		for slot, wanted := range x.wants {
			if !wanted {
				continue
			}
			if l.now-x.since < x.deadline {
				l.watch(x, x.since)
				break
			}
			want := recovery.Want{Slot: uint32(slot*len(l.lanes) + l.id), Round: x.wanted[slot]}
			if holder, ok := x.formation.Holder(want, x.asked); ok {
				l.abortNative(j, []int{holder})
				return true
			}
		}
	case recovery.Wait:
		if x.lead == nil || !x.returned {
			return false
		}
		if l.now-x.since >= x.deadline {
			l.abortNative(j, x.lead.co.Missing())
			return true
		}
		l.watch(x, x.since)
	}
	return false
}

// latecomers is the bitmap of ranks that have not contributed to a round.
func (l *lane) latecomers(j *laneJob, slot, set int) []byte {
	n := len(j.workers)
	late := j.native.late[:0]
	for k, word := range j.pool.Seen(slot, set) {
		if rest := n - 64*k; rest < 64 {
			word |= ^uint64(0) << rest
		}
		late = binary.LittleEndian.AppendUint64(late, ^word)
	}
	return late[:(n+7)/8]
}
