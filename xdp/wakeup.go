package xdp

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// The need-wakeup rules. Transmit: a socket bound with XDP_USE_NEED_WAKEUP is kicked
// when the TX ring's flag is set; bound without it, always. In copy mode the flag
// is always set, because only the system call itself sends. Receive: in copy mode
// the softirq that received the frame also copies it, nothing is to be woken; in
// zero-copy mode the driver sets the fill ring's flag when it stopped for lack
// of chunks and waits for a call. With busy polling the calls are what drives the netdev,
// and both are always made.

// Kick makes the kernel take what was posted to the TX ring, when a system call is
// needed for that. A wake-up sends a bounded number of frames, so Kick calls again
// as long as each call makes progress. What is left then (the completion ring is full,
// the driver's queue is full, no buffers: EAGAIN, EBUSY, ENOBUFS) is no error:
// TxPending is above zero, and the owner completes and kicks again.
//
// Before Linux 6.17 copy mode moves the TX ring's consumer index only once it has sent all
// that it found: a call that ends at the budget looks like one that sent nothing. There Kick
// makes as many calls as sending everything takes. TxPending is then too high for a
// while, which costs the owner another kick.
//
// Other errors are the end of this socket until it is opened again: ENXIO, the netdev
// is gone; ENETDOWN, it is down (and may come up).
func (s *Socket) Kick() error {
	if s.zeroCopy {
		// The driver also reaps its own completions in the wake-up.
		if s.posted == s.done || (s.needWakeup && !s.tx.needsWakeup() && !s.busyPoll) {
			return nil
		}
	} else if s.tx.pending() == 0 || (s.needWakeup && !s.tx.needsWakeup() && !s.busyPoll) {
		return nil
	}
	left, unseen := s.tx.pending(), uint32(0)
	for {
		switch errno := s.wakeTx(s.fd); errno {
		case 0, unix.EBUSY, unix.ENOBUFS, unix.EINTR:
			return nil
		case unix.EAGAIN:
			now := s.tx.pending()
			switch {
			case now == 0:
				return nil
			case now != left:
				left, unseen = now, 0
			case s.lateConsumer && unseen+kernelTxBudget < left:
				unseen += kernelTxBudget // it may have sent that many
			default:
				return nil
			}
		default:
			return s.kickError("transmit", errno)
		}
	}
}

// WakeReceive asks the driver to go on receiving, when it waits to be asked. It is
// cheap when nothing is to be done.
func (s *Socket) WakeReceive() error {
	if !s.busyPoll && (!s.zeroCopy || !s.needWakeup || !s.fill.needsWakeup()) {
		return nil
	}
	switch errno := s.wakeRx(s.fd); errno {
	case 0, unix.EAGAIN, unix.EBUSY, unix.ENOBUFS, unix.EINTR:
		return nil
	default:
		return s.kickError("receive", errno)
	}
}

// kickError is kept out of Kick so that the hot path does not carry it.
func (s *Socket) kickError(what string, errno unix.Errno) error {
	return fmt.Errorf("wake %s of queue %d of interface %d: %w", what, s.queue, s.ifindex, errno)
}

// Wait sleeps until frames were received, at most for timeout (negative: for ever),
// and tells whether there are any. It is poll(2) and needs no WakeReceive before. A lane that is
// to be woken by other things as well polls FD itself.
func (s *Socket) Wait(timeout time.Duration) (bool, error) {
	ms := -1
	if timeout >= 0 {
		ms = int((timeout + time.Millisecond - 1) / time.Millisecond)
	}
	fds := [1]unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds[:], ms)
	if err != nil && err != unix.EINTR {
		return false, fmt.Errorf("poll queue %d of interface %d: %w", s.queue, s.ifindex, err)
	}
	return n > 0 && fds[0].Revents&unix.POLLIN != 0, nil
}
