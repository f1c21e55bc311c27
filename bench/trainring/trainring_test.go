package main

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gradnic/bench/report"
)

func example() *report.Report {
	r := report.New("make train-ring")
	r.Notes = []string{"2 nodes: 10 parameters"}
	for _, w := range []struct {
		name         string
		ms           []float64
		ordered, far float64
	}{{"gloo", []float64{100, 110, 120}, 0, 0}, {"ring, none", []float64{80, 55, 60}, 0, 0}, {"ring, bfp16", []float64{50, 55, 40}, 0.00042, 0.0004}} {
		r.Add(report.Row{Name: "2/" + w.name + "/step", Unit: "ms", Against: "2/gloo/step"}, w.ms, []float64{100, 110, 120})
		r.Add(report.Row{Name: "2/" + w.name + "/far-from-ordered"}, []float64{w.ordered}, nil)
		r.Add(report.Row{Name: "2/" + w.name + "/far-from-gloo"}, []float64{w.far}, nil)
		r.Add(report.Row{Name: "2/" + w.name + "/final", Unit: "nats"}, []float64{2.5}, nil)
	}
	for i, name := range []string{"first", "last"} {
		p := report.Plot{Title: name}
		p.At("gloo", float64(i), []float64{1})
		r.Plots = append(r.Plots, p)
	}
	return r
}

// A line for each contestant, in their order; the speed-up is of steps of the same round.
func TestTable(t *testing.T) {
	got := table(example())
	for _, want := range []string{
		"2 nodes: 10 parameters.\n",
		"| 2 | gloo | 110 | 1.00 | 2.5000 | 0, to the last bit | 0, to the last bit |\n| 2 | ring, none | 60 | 2.00 | 2.5000 |",
		"| 2 | ring, bfp16 | 50 | 2.00 | 2.5000 | 0.0004 | 0.0004 |\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

func TestFinal(t *testing.T) {
	rising := make([]float64, 100)
	for i := range rising {
		rising[i] = float64(i)
	}
	for _, tt := range []struct {
		losses []float64
		want   float64
	}{
		{rising, 94.5},    // the last ten
		{rising[:20], 17}, // the last five: a tenth would be two
		{rising[:3], 1},   // all
		{[]float64{2.5}, 2.5},
	} {
		if got := final(tt.losses); math.Abs(got-tt.want) > 1e-9 {
			t.Errorf("%d losses: %v, want %v", len(tt.losses), got, tt.want)
		}
	}
}

// The table goes into each page, the plot of the most nodes into a file of its own.
func TestShow(t *testing.T) {
	dir := t.TempDir()
	var pages []string
	for _, name := range []string{"a.md", "b.md"} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("before\n<!-- train-ring -->\nold\n<!-- /train-ring -->\nafter\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		pages = append(pages, path)
	}
	svg := filepath.Join(dir, "x.svg")
	if err := show(example(), svg, strings.Join(pages, ",")); err != nil {
		t.Fatal(err)
	}
	for _, path := range pages {
		b, err := os.ReadFile(path)
		if text := string(b); err != nil || strings.Contains(text, "old") || !strings.Contains(text, "| 2 | gloo |") || !strings.HasSuffix(text, "after\n") {
			t.Errorf("%s: %v\n%s", path, err, text)
		}
	}
	if b, err := os.ReadFile(svg); err != nil || !strings.HasPrefix(string(b), `<svg xmlns=`) || !strings.Contains(string(b), "at 1") {
		t.Errorf("%v: %s", err, b)
	}
	if err := show(example(), "", svg); err == nil || !strings.Contains(err.Error(), "no line") {
		t.Errorf("a page without the lines: %v", err)
	}
}

// What cannot be trained is refused before anything is made.
func TestNodes(t *testing.T) {
	f := flags{nodes: "two", codecs: "none", steps: 1, rounds: 1, rate: 100}
	if _, err := f.run(t.Context()); err == nil || !strings.Contains(err.Error(), "nodes") {
		t.Errorf("%v", err)
	}
}
