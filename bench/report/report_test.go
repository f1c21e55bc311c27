package report

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMedian(t *testing.T) {
	for _, tt := range []struct {
		in   []float64
		want float64
	}{{[]float64{3}, 3}, {[]float64{5, 1}, 3}, {[]float64{9, 1, 2}, 2}, {[]float64{4, 1, 3, 2}, 2.5}} {
		if got := Median(tt.in); got != tt.want {
			t.Errorf("Median(%v) = %v, want %v", tt.in, got, tt.want)
		}
	}
	if got := Median(nil); got == got {
		t.Errorf("median of nothing is %v, want NaN", got)
	}
}

func TestRatioIsOfTheSameRound(t *testing.T) {
	// The machine slowed down by half in the second round: the ratio must not see it.
	r := New("make bench-x")
	r.Add(Row{Name: "drop/64", Unit: "Mpps", Against: "c/64", Goal: 0.95}, []float64{6, 3, 6.6}, []float64{5, 2.5, 6})
	want := []Row{{Name: "drop/64", Value: 6, Unit: "Mpps", Against: "c/64", Ratio: 1.2, Goal: 0.95, Spread: &[2]float64{1.1, 1.2}, Samples: []float64{1.2, 1.2, 1.1}, Values: []float64{6, 3, 6.6}}}
	near := cmp.Comparer(func(a, b float64) bool { return a-b < 1e-9 && b-a < 1e-9 })
	if d := cmp.Diff(want, r.Rows, near); d != "" {
		t.Error(d)
	}
}

// Whatever was measured, the document can be written: JSON has no NaN.
func TestNothingMeasured(t *testing.T) {
	r := New("make bench-x")
	r.Add(Row{Name: "a", Unit: "Mpps", Against: "dead", Goal: 1}, []float64{1, 2}, []float64{0, 0})
	r.Add(Row{Name: "b", Unit: "Mpps"}, nil, nil)
	if err := r.WriteFile(filepath.Join(t.TempDir(), "x.json")); err != nil {
		t.Fatal(err)
	}
	if a := r.Rows[0]; a.Against != "" || a.Goal != 0 || a.Note != "no ratio: dead is 0" || a.Value != 1.5 || len(a.Samples) != 2 {
		t.Errorf("%+v", a)
	}
	if b := r.Rows[1]; b.Value != 0 || b.Note != "not measured" {
		t.Errorf("%+v", b)
	}
}

func TestWriteFileAndMarkdown(t *testing.T) {
	r := New("make bench-x")
	r.Add(Row{Name: "a", Unit: "GB/s", Bound: "memory"}, []float64{1, 2, 3}, nil)
	r.Add(Row{Name: "b", Unit: "GB/s", Against: "c", Goal: 2}, []float64{1}, []float64{1})
	path := filepath.Join(t.TempDir(), "deep", "x.json")
	if err := r.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var back Report
	if err := json.Unmarshal(b, &back); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(*r, back); d != "" {
		t.Error(d)
	}
	if back.Machine.Kernel == "" || back.Machine.CPUs < 1 || back.Machine.Memory == 0 {
		t.Errorf("machine facts are missing: %+v", back.Machine)
	}
	var md strings.Builder
	if err := r.Markdown(&md); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| a | 2 GB/s |  |  | 1 - 3 |  | memory |", "1 of 1 goals missed: b.\n\n| row |"} {
		if !strings.Contains(md.String(), want) {
			t.Errorf("no line %q in\n%s", want, md.String())
		}
	}
}

func TestReplaceIn(t *testing.T) {
	r := New("make bench-x")
	r.Add(Row{Name: "new", Unit: "Mpps"}, []float64{1}, nil)
	path := filepath.Join(t.TempDir(), "page.md")
	for _, tt := range []struct{ page, fails string }{
		{"# Page\n<!-- x -->\nold\n<!-- /x -->\nafter\n", ""},
		{"# Page\n<!-- x -->\n<!-- /x -->\nafter\n", ""},
		{"# Page\n", `no line "<!-- x -->"`},
		{"<!-- x -->\nold\n", `no line "<!-- /x -->"`},
	} {
		if err := os.WriteFile(path, []byte(tt.page), 0o644); err != nil {
			t.Fatal(err)
		}
		err := r.ReplaceIn(path, "x")
		b, readErr := os.ReadFile(path)
		if readErr != nil {
			t.Fatal(readErr)
		}
		got := string(b)
		if tt.fails != "" {
			if err == nil || !strings.Contains(err.Error(), tt.fails) || got != tt.page {
				t.Errorf("%q: error %v, page now %q", tt.page, err, got)
			}
			continue
		}
		if err != nil || strings.Contains(got, "old") || !strings.Contains(got, "| new |") ||
			!strings.HasPrefix(got, "# Page\n<!-- x -->\n") || !strings.HasSuffix(got, "<!-- /x -->\nafter\n") {
			t.Errorf("%q: error %v, page now %q", tt.page, err, got)
		}
	}
}
