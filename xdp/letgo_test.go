package xdp

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// A queue that a closed socket keeps is waited for longer than one that a living socket has.
func TestWhenLetGo(t *testing.T) {
	lives := func() (bool, error) { return true, nil }
	closed := func() (bool, error) { return false, nil }
	unknown := func() (bool, error) { return false, unix.EINVAL }
	const never = time.Hour
	for _, c := range []struct {
		name            string
		patience, letGo time.Duration
		busy            time.Duration // until the queue is free
		held            func() (bool, error)
		after           [2]time.Duration // from, to: when it returns
		err             string
	}{
		{"free", defaultBind, letGoBind, 0, lives, [2]time.Duration{}, ""},
		{"let go soon", defaultBind, letGoBind, 5 * time.Millisecond, lives, [2]time.Duration{5 * time.Millisecond, 10 * time.Millisecond}, ""},
		{"let go late", defaultBind, letGoBind, 9 * time.Second, closed, [2]time.Duration{9 * time.Second, 9*time.Second + 20*time.Millisecond}, ""},
		{"never let go", defaultBind, letGoBind, never, closed, [2]time.Duration{letGoBind - 40*time.Millisecond, letGoBind}, "not let go of the queue, whose AF_XDP socket was closed (waited 15s)"},
		{"somebody else's", defaultBind, letGoBind, never, lives, [2]time.Duration{defaultBind - 40*time.Millisecond, defaultBind}, "another AF_XDP socket holds the queue (waited 2s)"},
		{"whose is unknown", defaultBind, letGoBind, never, unknown, [2]time.Duration{unknownBind - 40*time.Millisecond, unknownBind}, "another AF_XDP socket holds the queue (waited 5s)"},
		{"bounded by the caller", time.Second, time.Second, never, closed, [2]time.Duration{960 * time.Millisecond, time.Second}, "(waited 1s)"},
		{"not waited for", -1, -1, never, lives, [2]time.Duration{}, "another AF_XDP socket holds the queue (waited 0s)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				err := whenLetGo(c.patience, c.letGo, func() error {
					if time.Since(begin) < c.busy {
						return unix.EBUSY
					}
					return nil
				}, c.held)
				if d := time.Since(begin); d < c.after[0] || d > c.after[1] {
					t.Errorf("returned after %v, want %v", d, c.after)
				}
				if c.err == "" && err != nil || c.err != "" && (!errors.Is(err, unix.EBUSY) || !strings.Contains(err.Error(), c.err)) {
					t.Errorf("error %v, want %q", err, c.err)
				}
			})
		})
	}
	if err := whenLetGo(time.Hour, time.Hour, func() error { return unix.EINVAL }, lives); err != unix.EINVAL {
		t.Errorf("another error: %v", err)
	}
}

// The kernel lists a queue's socket from bind to close, to who is in its network namespace. One without
// CONFIG_XDP_SOCKETS_DIAG, as Debian's and others', says of no queue whether it is held.
func TestQueueHeld(t *testing.T) {
	r := newRig(t, 2, 0)
	held := func(queue int) (is bool, err error) {
		err = r.nic.Do(func() (err error) { is, err = queueHeld(r.nicIf, queue); return err })
		return is, err
	}
	_, none := held(0)
	lists := !errors.Is(none, unix.ENOENT)
	t.Logf("the kernel lists AF_XDP sockets: %t", lists)
	want := func(queue int, is bool) {
		t.Helper()
		got, err := held(queue)
		switch {
		case lists && (err != nil || got != is):
			t.Errorf("queue %d held: %t, %v, want %t", queue, got, err, is)
		case !lists && (!errors.Is(err, unix.ENOENT) || got || !strings.Contains(err.Error(), "list AF_XDP sockets")):
			t.Errorf("queue %d held: %t, %v, though the kernel does not tell", queue, got, err)
		}
	}
	u := r.umem(UMEMOptions{Chunks: 64})
	s := r.open(r.nic, u, SocketOptions{IfIndex: r.nicIf, Queue: 1})
	want(0, false)
	want(1, true)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	want(1, false)
}

// Options that a caller bounds bound both waits; those of a probe are checked twice.
func TestBindTimeouts(t *testing.T) {
	o := SocketOptions{IfIndex: 1, BindTimeout: time.Second}
	for range 2 {
		if err := o.check(64); err != nil || o.letGo != time.Second {
			t.Errorf("let go %v: %v", o.letGo, err)
		}
	}
	o = SocketOptions{IfIndex: 1}
	for range 2 {
		if err := o.check(64); err != nil || o.BindTimeout != defaultBind || o.letGo != letGoBind {
			t.Errorf("bind %v, let go %v: %v", o.BindTimeout, o.letGo, err)
		}
	}
}
