package xdp

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// rightsNames are the capabilities that BPF takes, by name. CAP_SYS_ADMIN stands for each of them.
var rightsNames = [...]struct {
	capability int
	name       string
}{{unix.CAP_BPF, "CAP_BPF"}, {unix.CAP_NET_ADMIN, "CAP_NET_ADMIN"}}

// rightsError is an EPERM of a thread without capabilities that the step takes. What a library makes of it, a hint at limits of
// memory that only kernels before 5.11 have, is not told.
type rightsError struct {
	lacks []string
	err   error
}

func (e *rightsError) Error() string {
	return fmt.Sprintf("%v: the process has no %s, or has given it up", unix.EPERM, strings.Join(e.lacks, " and no "))
}

func (e *rightsError) Unwrap() error { return e.err }

// lacking tells which of the capabilities that a step takes the calling thread has not, when that is why it failed.
func lacking(err error, takes ...int) error {
	if !errors.Is(err, unix.EPERM) {
		return err
	}
	have, capErr := effective()
	if capErr != nil || have(unix.CAP_SYS_ADMIN) {
		return err
	}
	var lacks []string
	for _, r := range rightsNames {
		for _, c := range takes {
			if c == r.capability && !have(c) {
				lacks = append(lacks, r.name)
			}
		}
	}
	if lacks == nil {
		return err
	}
	return &rightsError{lacks, err}
}

// effective reads the calling thread's capabilities.
func effective() (have func(capability int) bool, err error) {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	if err := unix.Capget(&hdr, &caps[0]); err != nil {
		return nil, fmt.Errorf("capget: %w", err)
	}
	return func(c int) bool { return caps[c/32].Effective>>(c%32)&1 != 0 }, nil
}
