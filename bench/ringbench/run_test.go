package ringbench

import (
	"context"
	"io"
	"math"
	"os"
	"strings"
	"testing"

	"gradnic/internal/netlab/netlabtest"
	"gradnic/internal/ringlab"
)

// TestRun runs a small measurement as a whole. The figures are the machine's; what cannot be must not come out.
func TestRun(t *testing.T) {
	netlabtest.NeedRoot(t)
	var log strings.Builder
	o := Options{Rounds: 1, Nodes: []int{2}, Rate: 1e9, Bytes: 1 << 20, mtus: []int{1500}, slices: []int{1, 2, 4}, Command: "test", Log: io.MultiWriter(&log, os.Stderr)}
	if os.Getenv("GRADNIC_RINGBENCH") != "" {
		o = Options{Rounds: 3, Command: "test", Log: os.Stderr}
	}
	r, err := Run(t.Context(), o)
	t.Log("\n" + log.String())
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]float64{}
	for _, row := range r.Rows {
		found[row.Name] = row.Ratio
		if row.Note != "" && !strings.HasPrefix(row.Note, "INVALID: ") { // a busy machine's are
			t.Errorf("%s: %s", row.Name, row.Note)
		}
		if strings.HasPrefix(row.Name, "link/") && (row.Value < leastLink) != (row.Note != "") {
			t.Errorf("%s: %.3f of the rate with note %q", row.Name, row.Value, row.Note)
		}
		if mode, ok := strings.CutPrefix(row.Name, "ceiling/2-nodes/"); ok && (row.Ratio < 1 || row.Value <= 0) {
			t.Errorf("%s took %.3f of its compute", mode, row.Ratio)
		}
		if strings.HasPrefix(row.Name, "ring/") || strings.HasPrefix(row.Name, "tcp/") {
			// A megabyte takes 13 ms, and what the links let through at once, a thousandth of a second's worth, comes on top.
			if row.Ratio <= 0 || row.Ratio > 1.10 && !row.Invalid() {
				t.Errorf("%s: %.3f of what the links allow", row.Name, row.Ratio)
			}
		}
	}
	// Nothing gains more than the ceiling: a step with NICs is not shorter than its compute, which the timed waits are.
	for _, k := range []string{"naive", "overlapped"} {
		if got, most := found[k+"-over-bfp16/2-nodes"], found["ceiling/2-nodes/"+k]; !(got > 0 && got <= most*(1+1e-9)) {
			t.Errorf("over %s %.3f was gained, of at most %.3f", k, got, most)
		}
	}
	for _, want := range []string{"ring/4-nodes/1000Mbit/mtu1500/1024KiB", "model/2-nodes/nic+bfp16", "naive-over-bfp16/2-nodes", "ceiling/2-nodes/naive", "ceiling/2-nodes/overlapped"} {
		if _, ok := found[want]; !ok && o.Rate != 0 {
			t.Errorf("no row %s", want)
		}
	}
}

// What a run that was interrupted has measured is in its report.
func TestInterruptedRun(t *testing.T) {
	netlabtest.NeedRoot(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	o := Options{Rounds: 1, Nodes: []int{2}, Rate: 1e9, Bytes: 1 << 16, mtus: []int{1500}, slices: []int{1, 2, 4}, Command: "test"}
	o.Log = writerFunc(func(b []byte) (int, error) {
		if strings.HasPrefix(string(b), "ring of 4") { // the last line of the first part
			cancel()
		}
		return len(b), nil
	})
	r, err := Run(ctx, o)
	if err == nil || r == nil || r.Interrupted == "" || len(r.Rows) != 4 {
		t.Errorf("%v: %+v", err, r)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// TestFit finds the figures that points were made of.
func TestFit(t *testing.T) {
	const a, b = 3e-8, 2e-4
	var f fit
	for _, x := range []float64{1e5, 1e6, 4e6} {
		for _, y := range []float64{2, 6} {
			f.add(x, y, a*x+b*y)
		}
	}
	if x, y := f.solve(); math.Abs(x/a-1) > 1e-9 || math.Abs(y/b-1) > 1e-9 {
		t.Errorf("found %g and %g, want %g and %g", x, y, a, b)
	}
	f = fit{} // a negative cost a step: none
	f.add(1e6, 6, 1)
	f.add(2e6, 6, 2.5)
	if x, y := f.solve(); !(x > 1e-6) || y != 0 {
		t.Errorf("found %g and %g", x, y)
	}
}

// TestCheck: sums that are right are taken, and a node's part of one block that is missing is not.
func TestCheck(t *testing.T) {
	tr, err := newTrainer(&rig{Lab: &ringlab.Lab{Nodes: make([]*ringlab.Node, 6)}})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range modes {
		for i := range tr.work {
			for j := range tr.work[i] {
				tr.work[i][j] = float32(tr.sums[j])
			}
		}
		if err := tr.check(m); err != nil {
			t.Fatalf("%s: %v", m.name, err)
		}
		const at = 5*elements + 8192
		for i := range tr.work {
			for j := at; j < at+8192; j++ {
				tr.work[i][j] -= tr.grads[2][j]
			}
		}
		if err := tr.check(m); err == nil || !strings.Contains(err.Error(), "layer 5") {
			t.Errorf("%s: a slice without node 2's part: %v", m.name, err)
		}
	}
}

// TestOptions: what cannot be measured is refused before anything is made.
func TestOptions(t *testing.T) {
	for _, bad := range []Options{{Rounds: -1}, {Nodes: []int{2, 1}}, {Nodes: []int{17}}, {Bytes: 6}, {Bytes: -4}} {
		if _, err := Run(t.Context(), bad); err == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
}
