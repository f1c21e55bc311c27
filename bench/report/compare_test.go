package report

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// The exact values are 2k/C(n+m, n) with k orders at most as extreme; the one with ties is computed by hand:
// U = 0.5, mean 8, variance 16/12 (9 - 12/56), so z = 7/3.4226.
func TestMannWhitney(t *testing.T) {
	for _, tt := range []struct {
		a, b []float64
		want float64
	}{
		{[]float64{1, 2, 3, 4}, []float64{5, 6, 7, 8}, 0.028571},
		{[]float64{1, 2, 3, 4, 5}, []float64{6, 7, 8, 9, 10}, 0.0079365},
		{[]float64{1, 3, 5, 7}, []float64{2, 4, 6, 8}, 0.685714},
		{[]float64{1, 2, 3}, []float64{4, 5, 6}, 0.1},
		{[]float64{1, 1, 2, 3}, []float64{3, 4, 5, 6}, 0.040833}, // ties: the normal approximation
		{[]float64{5, 5, 5, 5}, []float64{5, 5, 5, 5}, 1},
		{nil, []float64{1}, 1},
	} {
		if got := MannWhitney(tt.a, tt.b); math.Abs(got-tt.want) > 1e-3 {
			t.Errorf("%v and %v: p=%v, want %v", tt.a, tt.b, got, tt.want)
		}
	}
}

func TestMannWhitneyIsSymmetric(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sample := rapid.SliceOfN(rapid.Float64Range(0, 10), 1, 25)
		a, b := sample.Draw(t, "a"), sample.Draw(t, "b")
		p, q := MannWhitney(a, b), MannWhitney(b, a)
		if math.Abs(p-q) > 1e-9 || !(p > 0 && p <= 1) {
			t.Fatalf("p=%v one way, %v the other", p, q)
		}
	})
}

func TestCompare(t *testing.T) {
	a, b := New("x"), New("x")
	a.Add(Row{Name: "faster", Unit: "Mpps"}, []float64{1, 1.1, 0.9, 1.05, 0.95}, nil)
	b.Add(Row{Name: "faster", Unit: "Mpps"}, []float64{2, 2.1, 1.9, 2.05, 1.95}, nil)
	a.Add(Row{Name: "noise", Unit: "Mpps"}, []float64{1, 1.2, 0.8, 1.1, 0.9}, nil)
	b.Add(Row{Name: "noise", Unit: "Mpps"}, []float64{1.05, 1.15, 0.85, 1.12, 0.88}, nil)
	// Fifteen orders in a hundred are at least as far apart: not enough.
	a.Add(Row{Name: "maybe", Unit: "Mpps"}, []float64{1, 2, 3, 4, 7.5}, nil)
	b.Add(Row{Name: "maybe", Unit: "Mpps"}, []float64{2.5, 6, 7, 8, 9}, nil)
	// The machine was slower, the ratio is the same.
	a.Add(Row{Name: "ratio", Unit: "Mpps", Against: "c"}, []float64{4, 4, 4, 4.4}, []float64{4, 4, 4, 4})
	b.Add(Row{Name: "ratio", Unit: "Mpps", Against: "c"}, []float64{2, 2, 2, 2.2}, []float64{2, 2, 2, 2})
	a.Add(Row{Name: "bad", Unit: "Mpps"}, []float64{1, 1.1, 0.9, 1.05, 0.95}, nil)
	b.Add(Row{Name: "bad", Unit: "Mpps", Note: "INVALID: the link is too fast"}, []float64{2, 2.1, 1.9, 2.05, 1.95}, nil)
	a.Add(Row{Name: "few", Unit: "Mpps"}, []float64{1}, nil)
	b.Add(Row{Name: "few", Unit: "Mpps"}, []float64{9}, nil)
	a.Add(Row{Name: "old", Unit: "Mpps"}, []float64{1}, nil)
	b.Add(Row{Name: "young", Unit: "Mpps"}, []float64{1}, nil)
	dir := t.TempDir()
	for name, r := range map[string]*Report{"a": a, "b": b} {
		if err := r.WriteFile(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	before, err := Read(filepath.Join(dir, "a"))
	if err != nil {
		t.Fatal(err)
	}
	after, err := Read(filepath.Join(dir, "b"))
	if err != nil {
		t.Fatal(err)
	}
	rows, missing := Compare(before, after)
	var text strings.Builder
	if err := WriteComparison(&text, rows, missing); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| faster | Mpps | 1 | 2 | +100.0 % | p=0.008 n=5+5 |", "| noise | Mpps | 1 | 1.05 | ~ |", "| maybe | Mpps | 3 | 7 | ~ | p=0.", "| ratio | x of c | 1 | 1 | ~ |",
		"too few samples (1+1)", "| bad | Mpps | 1 | 2 | ~ | INVALID in one of them or both |", "old (gone)", "young (new)",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
}

func TestReadRefuses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	for _, tt := range []struct{ text, want string }{{`{"schema":3}`, "schema 3"}, {`{}`, "schema 0"}, {`{`, "unexpected end"}} {
		if err := os.WriteFile(path, []byte(tt.text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(path); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: %v, want %q", tt.text, err, tt.want)
		}
	}
	if _, err := Read(path + "-not-there"); err == nil {
		t.Error("a file that is not there was read")
	}
}
