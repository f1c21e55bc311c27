package bench

import (
	"os"
	"strings"
	"testing"
	"time"

	"gradnic/internal/netlab/netlabtest"
)

// The ends of every sweep: all jobs' contributions count, and every figure is a time.
func TestScale(t *testing.T) {
	netlabtest.NeedRoot(t)
	if err := cpus(); err != nil {
		t.Skip(err)
	}
	r, err := Scale(t.Context(), ScaleOptions{Rounds: 1, Run: 20 * time.Millisecond, Log: os.Stderr, short: true})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Rows) != 2*(len(sweeps(true))+2) || len(r.Plots) != len(sweeps(true))+2 {
		t.Errorf("%d rows, %d plots", len(r.Rows), len(r.Plots))
	}
	for _, row := range r.Rows {
		if !(row.Value > 1 && row.Value < 1e7) {
			t.Errorf("%s: %v ns", row.Name, row.Value)
		}
	}
}

// Everybody that is installed takes turns at drop and reflect, each with a bound.
func TestCompare(t *testing.T) {
	netlabtest.NeedRoot(t)
	if err := cpus(); err != nil {
		t.Skip(err)
	}
	devices := []string{"lane", "asavie", "packet", "kernel"}
	if os.Getenv("GRADNIC_TEST_TESTPMD") != "" {
		devices = append(devices, "testpmd")
	}
	// A contestant that gets no processor in 30 ms has a row that is INVALID: on a busy machine it is tried again.
	for try := range 4 {
		r, err := Compare(t.Context(), CompareOptions{
			Self: []string{os.Args[0], "contestant"}, Dir: t.TempDir(), Devices: devices, Sizes: []int{298}, Rounds: 1, Run: 30 * time.Millisecond, Log: os.Stderr,
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Rows) != 2*len(devices) || len(r.Plots) != 2 {
			t.Errorf("%d rows, %d plots: %+v", len(r.Rows), len(r.Plots), r.Rows)
		}
		valid := true
		for _, row := range r.Rows {
			if row.Bound == "" || row.Invalid() != (row.Value == 0) {
				t.Errorf("%+v", row)
			}
			valid = valid && !row.Invalid()
		}
		if !valid && try < 3 {
			continue
		}
		for _, row := range r.Rows {
			if !(row.Value > 0) || (row.CPU == 0) != strings.Contains(row.Name, "/kernel/") {
				t.Errorf("%+v", row)
			}
			if strings.Contains(row.Name, "/lane/") && !(row.Ratio > 0) {
				t.Errorf("%s is not held against asavie", row.Name)
			}
		}
		return
	}
}
