package xdp

import (
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// loopback is the index of lo in a fresh network namespace, always.
const loopback = 1

// openAnchor registers the area on a socket that is bound to lo of a network
// namespace which no other process sees and which has no name. The socket is the
// only thing that keeps the namespace: both are gone when the process is, however it
// ends. Nothing can take lo away, so the socket stays bound, and later sockets can
// share its memory whatever happens to their own netdevs.
//
// The flags that later sockets inherit (need-wakeup, multi-buffer, copy mode) are
// those of this bind.
func (u *UMEM) openAnchor(needWakeup, multi bool) (fd int, err error) {
	type result struct {
		fd  int
		err error
	}
	done := make(chan result, 1)
	go func() {
		// The namespace belongs to the thread. It is set back; a thread that
		// cannot be set back stays locked, and the runtime ends it with this
		// goroutine.
		runtime.LockOSThread()
		home, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			runtime.UnlockOSThread()
			done <- result{-1, fmt.Errorf("anchor: this thread's network namespace: %w", err)}
			return
		}
		defer unix.Close(home)
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			runtime.UnlockOSThread()
			done <- result{-1, fmt.Errorf("anchor: private network namespace: %w", err)}
			return
		}
		fd, err := u.bindAnchor(needWakeup, multi)
		if unix.Setns(home, unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread()
		}
		done <- result{fd, err}
	}()
	r := <-done
	return r.fd, r.err
}

// bindAnchor runs in the private namespace. The kernel asks for a fill and a
// completion ring and one of RX and TX, which nobody will use: the smallest do.
func (u *UMEM) bindAnchor(needWakeup, multi bool) (fd int, err error) {
	if err := loopbackUp(); err != nil {
		return -1, err
	}
	fd, err = unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("anchor: open AF_XDP socket: %w", err)
	}
	if err := u.register(fd); err != nil {
		return -1, errors.Join(fmt.Errorf("anchor: %w", err), unix.Close(fd))
	}
	for _, ring := range []int{unix.XDP_UMEM_FILL_RING, unix.XDP_UMEM_COMPLETION_RING, unix.XDP_RX_RING} {
		if err := unix.SetsockoptInt(fd, unix.SOL_XDP, ring, MinRing); err != nil {
			return -1, errors.Join(fmt.Errorf("anchor: ring: %w", err), unix.Close(fd))
		}
	}
	sa := unix.SockaddrXDP{Ifindex: loopback, Flags: unix.XDP_COPY | modeFlags(needWakeup, multi)}
	if err := unix.Bind(fd, &sa); err != nil {
		return -1, errors.Join(fmt.Errorf("anchor: bind lo: %w", err), unix.Close(fd))
	}
	return fd, nil
}

func loopbackUp() error {
	ctl, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("anchor: control socket: %w", err)
	}
	defer unix.Close(ctl)
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return fmt.Errorf("anchor: lo: %w", err)
	}
	req.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(ctl, unix.SIOCSIFFLAGS, req); err != nil {
		return fmt.Errorf("anchor: set lo up: %w", err)
	}
	return nil
}

func modeFlags(needWakeup, multi bool) uint16 {
	var f uint16
	if needWakeup {
		f |= unix.XDP_USE_NEED_WAKEUP
	}
	if multi {
		f |= unix.XDP_USE_SG
	}
	return f
}
