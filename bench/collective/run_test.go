package collective

import (
	"io"
	"os"
	"runtime"
	"strings"
	"testing"

	"gradnic/internal/netlab/netlabtest"
)

// TestAllowance: 360 elements would fill an MTU of 1500 bytes, 352 are whole cache lines; a frame adds 74 bytes of headers.
func TestAllowance(t *testing.T) {
	for _, tt := range []struct {
		link     Link
		elements int
		want     float64
	}{
		{Link{Rate: 200e6, MTU: 1500}, 352, 25e6 * 1408 / 1482},
		{Link{Rate: 1e9, MTU: 9000}, 2224, 125e6 * 8896 / 8970},
	} {
		if got := tt.link.elements(); got != tt.elements {
			t.Errorf("%v: %d elements, want %d", tt.link, got, tt.elements)
		}
		if got := tt.link.Allowance(); got-tt.want > 1 || tt.want-got > 1 {
			t.Errorf("%v: allows %.0f bytes/s, want %.0f", tt.link, got, tt.want)
		}
	}
}

func TestRun(t *testing.T) {
	netlabtest.NeedRoot(t)
	// A busy machine can make a row INVALID: then it is tried again. What counts for others must be what a link allows.
	for try := range 3 {
		var log strings.Builder
		r, err := Run(t.Context(), Options{Dir: t.TempDir(), Rounds: 1, Log: io.MultiWriter(&log, os.Stderr), Command: "test", Cases: []Case{
			{Link: Link{Rate: 100e6, MTU: 1500}, Workers: 2, Sizes: []int{mib}, Goal: share, Gloo: os.Getenv("GRADNIC_TEST_GLOO") != ""},
			{Link: Link{Rate: 500e6, MTU: 9000}, Workers: 2, Sizes: []int{4 * mib}},
		}})
		t.Logf("try %d\n%s", try, log.String())
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Rows) < 4 {
			t.Errorf("%d rows: %+v", len(r.Rows), r.Rows)
		}
		valid := true
		for _, row := range r.Rows {
			if row.Note != "" && !row.Invalid() {
				t.Errorf("%s: %s", row.Name, row.Note)
			}
			valid = valid && !row.Invalid()
			if strings.HasPrefix(row.Name, "allreduce/") && !row.Invalid() && !(row.Ratio > 0.01 && row.Ratio <= Most) {
				t.Errorf("%s: %.3f of what the link allows", row.Name, row.Ratio)
			}
		}
		if valid {
			return
		}
	}
	t.Log("no run was valid: the machine is busy")
}

// TestBound: what took nearly all processors was not held up by the link.
func TestBound(t *testing.T) {
	n := float64(runtime.NumCPU())
	for _, tt := range []struct {
		f    figure
		want string
	}{
		{figure{seconds: []float64{1, 1}, cpu: []float64{0.2 * n, 0.3 * n}}, "the link's rate"},
		{figure{seconds: []float64{1, 1}, cpu: []float64{0.9 * n, 0.8 * n}}, "the processors: NIC and workers take 85 %"},
		{figure{seconds: []float64{1}, cpu: []float64{1.1 * n}}, "the processors: NIC and workers take 100 %"},
	} {
		if got := tt.f.bound(); !strings.HasPrefix(got, tt.want) {
			t.Errorf("%+v: %q, want %q", tt.f, got, tt.want)
		}
	}
}

// TestTooFast: what is more than a link allows is no result.
func TestTooFast(t *testing.T) {
	if note := tooFast([]float64{90, 101, 101.9}, []float64{100, 100, 100}); note != "" {
		t.Error(note)
	}
	if note := tooFast([]float64{90, 104}, []float64{100, 100}); note != "INVALID: round 2 got 1.04 of what the link allows" {
		t.Error(note)
	}
}
