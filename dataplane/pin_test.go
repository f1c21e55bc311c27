package dataplane

import (
	"context"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A CPU that there is not is refused before anything is opened; lanes that can be pinned are.
func TestPinnedLanes(t *testing.T) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		t.Fatal(err)
	}
	ours := 0
	for !set.IsSet(ours) {
		ours++
	}
	for cpu, ok := range map[int]bool{ours: true, 1023: false, 5000: false} {
		cfg := testConfig()
		cfg.CPUs = []int{cpu}
		n, err := New(cfg, NewMemPort("m"))
		if err != nil {
			t.Fatal(err)
		}
		err = n.Start(context.Background())
		if ok != (err == nil) || err != nil && !strings.Contains(err.Error(), "does not exist") {
			t.Errorf("CPU %d: %v", cpu, err)
		}
		if err := n.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	}
}
