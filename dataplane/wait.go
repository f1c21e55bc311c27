package dataplane

import (
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// heldPoll bounds the sleep of a lane that holds back frames, or has posted frames that the kernel does not take.
const heldPoll = time.Millisecond

var wakeValue = [8]byte{1} // eventfd takes a native-endian 1; 1 in the last byte would wake as well

func yield() { runtime.Gosched() }

// updateNow reads the clock: monotonic, from when the NIC was made.
func (l *lane) updateNow() { l.now = int64(time.Since(l.epoch)) }

// idle is called when a round found nothing: it publishes the counters, then spins or sleeps as configured.
func (l *lane) idle() {
	if l.clock.busy {
		l.endBusy()
	}
	if l.dirty {
		l.publish()
	}
	for i := range l.queues {
		if err := l.queues[i].WakeReceive(); err != nil && !l.queues[i].failed {
			l.queues[i].failed = true
			l.log.Error("receive", "port", l.queues[i].port, "lane", l.id, "err", err)
		}
	}
	switch l.cfg.Wait {
	case Busy:
		return
	case Adaptive:
		if l.spin > 0 {
			l.updateNow()
			if l.now-l.lastWork < int64(l.spin) {
				return
			}
		}
	}
	l.sleep()
}

// sleep waits in poll(2) until a queue is readable or the lane is woken. The order is: say so, look once more at
// everything that poll does not see, sleep. Who posts something does the reverse: post, then look at the flag.
// Go's atomics are sequentially consistent, so one of the two sees the other.
func (l *lane) sleep() {
	l.lane[lSleeps]++
	l.lane[lAsleep] = uint64(l.now)
	l.publish()
	l.sleeping.Store(true)
	if l.mail.pending.Load() || l.inbound() || l.queuePending() {
		l.sleeping.Store(false)
		l.lane[lAsleep] = 0
		return
	}
	wait := int64(never)
	if l.held > 0 || l.unsentFrames() {
		wait = int64(heldPoll)
	}
	if len(l.services) > 0 {
		if due := l.nextTick(); due != never {
			l.updateNow()
			wait = min(wait, max(0, due-l.now))
		}
	}
	if l.alarm != 0 {
		l.updateNow()
		wait = min(wait, max(0, l.alarm-l.now))
	}
	var timeout *unix.Timespec
	if wait != never {
		l.timeout = unix.NsecToTimespec(wait)
		timeout = &l.timeout
	}
	// Not a raw system call: the runtime must know, or the collector would wait for this thread.
	_, err := unix.Ppoll(l.poll, timeout, nil)
	l.sleeping.Store(false)
	l.endSleep()
	if err != nil && err != unix.EINTR {
		l.log.Error("poll", "lane", l.id, "err", err)
		time.Sleep(heldPoll)
		return
	}
	if l.poll[0].Revents != 0 {
		var b [8]byte
		_, _ = unix.Read(l.eventfd, b[:]) // not blocking; empty is fine
	}
	for i := range l.poll[1:] {
		// A netdev that is gone or down makes poll return at once, for ever.
		if l.poll[1+i].Revents&(unix.POLLERR|unix.POLLNVAL|unix.POLLHUP) != 0 && l.poll[1+i].Revents&unix.POLLIN == 0 {
			time.Sleep(heldPoll)
			break
		}
	}
	l.updateNow()
	l.lastWork = l.now
}

// unsentFrames is true when a transmit ring still has frames that the kernel has not taken.
func (l *lane) unsentFrames() bool {
	for i := range l.queues {
		if q := &l.queues[i]; q.sending > 0 && q.TxPending() > 0 {
			return true
		}
	}
	return false
}

func (l *lane) queuePending() bool {
	for i := range l.queues {
		if l.queues[i].Pending() {
			return true
		}
	}
	return false
}

// wake wakes the lane if it sleeps. Anyone may call it, after having posted what the lane is to see.
func (l *lane) wake() {
	if l.sleeping.Load() && l.sleeping.CompareAndSwap(true, false) {
		_, _ = unix.Write(l.eventfd, wakeValue[:])
	}
}

// openEventfd makes what wakes the lane, and the set that it polls.
func (l *lane) openEventfd() error {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return fmt.Errorf("eventfd of lane %d: %w", l.id, err)
	}
	l.eventfd = fd
	l.setPoll()
	return nil
}

// spareCPU is true when the process may run on more CPUs than there are lanes, so that spinning takes nothing away.
func spareCPU(lanes int) bool {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return runtime.NumCPU() > lanes
	}
	return set.Count() > lanes
}

func (l *lane) closeEventfd() error {
	if l.eventfd < 0 {
		return nil
	}
	fd := l.eventfd
	l.eventfd = -1
	if err := unix.Close(fd); err != nil {
		return fmt.Errorf("close eventfd of lane %d: %w", l.id, err)
	}
	return nil
}
