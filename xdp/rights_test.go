package xdp

import (
	"errors"
	"io"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Who lacks a capability is told which, and nothing of limits of memory; the kernel's error stays to be found.
func TestLackingRights(t *testing.T) {
	if err := lacking(io.EOF, unix.CAP_BPF); err != io.EOF {
		t.Errorf("another error: %v", err)
	}
	st := steeringWithSocket(t, false)
	sums, err := NewSums(SumsOptions{Slots: 4})
	if err != nil {
		t.Fatal(err)
	}
	defer sums.Close()
	newSums := func() error { _, err := NewSums(SumsOptions{Slots: 4}); return err }
	load := func() error { _, err := loadSteering(false); return err }
	learn := func() error { return st.SetSums(sums) }
	for _, c := range []struct {
		what string
		step func() error
		have []int
		says string
	}{
		{"maps with none", newSums, nil, "no CAP_BPF, or"},
		{"maps without CAP_BPF", newSums, []int{unix.CAP_NET_ADMIN}, "no CAP_BPF, or"},
		{"steering with none", load, nil, "no CAP_BPF and no CAP_NET_ADMIN, or"},
		{"another program with none", learn, nil, "no CAP_BPF and no CAP_NET_ADMIN, or"},
		{"another program without CAP_NET_ADMIN", learn, []int{unix.CAP_BPF}, "no CAP_NET_ADMIN, or"},
	} {
		withRights(t, func() error {
			err := c.step()
			if !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), "the process has "+c.says) || strings.Contains(err.Error(), "MEMLOCK") {
				t.Errorf("%s: %v", c.what, err)
			}
			return nil
		}, c.have...)
	}
	// An EPERM that no missing capability explains stays as it is.
	withRights(t, func() error {
		if err := lacking(unix.EPERM, unix.CAP_BPF); err != unix.EPERM {
			t.Errorf("with the capability: %v", err)
		}
		return nil
	}, unix.CAP_BPF)
	withRights(t, func() error {
		if err := lacking(unix.EPERM, unix.CAP_BPF); err != unix.EPERM {
			t.Errorf("with CAP_SYS_ADMIN: %v", err)
		}
		return nil
	}, unix.CAP_SYS_ADMIN)
}
