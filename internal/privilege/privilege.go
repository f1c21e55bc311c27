package privilege

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Level says what is kept.
type Level uint8

const (
	// None drops nothing.
	None Level = iota
	// Healing keeps CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF: what it takes to make a port's sockets and program again.
	Healing
	// All keeps no capability.
	All
)

var names = [...]string{None: "none", Healing: "healing", All: "all"}

// String is "none", "healing" or "all".
func (l Level) String() string {
	if int(l) < len(names) {
		return names[l]
	}
	return fmt.Sprintf("level-%d", uint8(l))
}

// UnmarshalText reads what String writes.
func (l *Level) UnmarshalText(b []byte) error {
	i := slices.Index(names[:], string(b))
	if i < 0 {
		return fmt.Errorf("%q: legal are %s", b, strings.Join(names[:], ", "))
	}
	*l = Level(i)
	return nil
}

// kept are the capabilities of a level.
func (l Level) kept() Set {
	if l == Healing {
		return 1<<unix.CAP_NET_ADMIN | 1<<unix.CAP_NET_RAW | 1<<unix.CAP_BPF
	}
	return 0
}

// Set is a set of capabilities, one bit each.
type Set uint64

// ErrCgo is what Drop returns in a binary that is linked with cgo.
var ErrCgo = errors.New("capabilities of all threads cannot be changed in a binary with cgo (build with CGO_ENABLED=0)")

// Drop gives up, on all threads and for good, what the level does not keep: permitted, effective, inheritable, ambient and
// bounding capabilities. It also sets no_new_privs, so that no program that is executed later gets more. What the
// process did not have is not missed. None does nothing.
func Drop(l Level) error {
	if l == None {
		return nil
	}
	have, err := Current()
	if err != nil {
		return err
	}
	keep := l.kept() & have
	if err := allThreads("no_new_privs", unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1); err != nil {
		return err
	}
	if err := allThreads("clear ambient capabilities", unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL); err != nil {
		return err
	}
	if have&(1<<unix.CAP_SETPCAP) != 0 {
		for c := range uintptr(unix.CAP_LAST_CAP + 1) {
			if keep&(1<<c) != 0 {
				continue
			}
			// EINVAL: the kernel has fewer capabilities than this binary knows.
			if err := allThreads("drop from the bounding set", unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c); err != nil && !errors.Is(err, unix.EINVAL) {
				return err
			}
		}
	}
	return setAll(keep)
}

// allThreads makes a prctl call on every thread.
func allThreads(what string, trap, option, arg uintptr) error {
	_, _, e := syscall.AllThreadsSyscall6(trap, option, arg, 0, 0, 0, 0)
	return named(what, e)
}

func named(what string, e syscall.Errno) error {
	switch e {
	case 0:
		return nil
	case syscall.ENOTSUP:
		return fmt.Errorf("%s: %w", what, ErrCgo)
	}
	return fmt.Errorf("%s: %w", what, e)
}
