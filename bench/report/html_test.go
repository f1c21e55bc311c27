package report

import (
	"encoding/xml"
	"io"
	"math"
	"path/filepath"
	"strings"
	"testing"
)

func example() *Report {
	r := New("make bench-x")
	r.Title = "A <title>"
	r.Interrupted = "context canceled"
	r.Notes = []string{"gloo is not installed"}
	r.Add(Row{Name: "drop/64", Unit: "Mpps", Against: "c", Goal: 1, Bound: "memory", CPU: 180, Load: 1.5}, []float64{2, 3, 4}, []float64{2, 2, 2})
	r.Add(Row{Name: "slow/64", Unit: "Mpps", Against: "c", Goal: 2}, []float64{2, 3, 4}, []float64{2, 2, 2})
	r.Add(Row{Name: "echo", Unit: "us", Against: "c", Goal: 2, Bound: "at most the goal"}, []float64{3}, []float64{2})
	p := Plot{Title: "throughput", X: "frame size, bytes", Y: "Mpps", LogX: true}
	for _, size := range []float64{64, 298, 1066, 1514} {
		p.At("rings & lane", size, []float64{size / 100, size / 90, size / 110})
		p.At("c", size, []float64{5})
	}
	r.Plots = []Plot{p, {Title: "trials", X: "trial", Y: "Mpps", Lines: []Line{{Name: "passed", Marks: true, Points: []Point{{X: 1, Y: 2, Text: "0.1 % lost"}}}}}, {Title: "nothing"}}
	return r
}

func TestHTML(t *testing.T) {
	b, err := example().HTML()
	if err != nil {
		t.Fatal(err)
	}
	page := string(b)
	for _, want := range []string{
		"A &lt;title&gt;", "Interrupted: context canceled", "gloo is not installed", `<td class="met">1.50x`, `<td class="short">1.50x`, "180 ns", "0.1 % lost",
		"rings &amp; lane", "frame size, bytes", "prefers-color-scheme:dark",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in the page", want)
		}
	}
	// Both with "at most the goal" and without, 1.5 is on the right side of the right goal.
	if got := strings.Count(page, `class="met"`); got != 2 {
		t.Errorf("%d goals met, want 2", got)
	}
	for _, outside := range []string{"http://", "https://", "src=", "<script", "NaN", "Inf"} {
		if strings.Contains(page, outside) {
			t.Errorf("the page has %q", outside)
		}
	}
	if err := example().WriteHTML(filepath.Join(t.TempDir(), "deep", "x.html")); err != nil {
		t.Error(err)
	}
}

// Whatever the numbers, a plot is well-formed and stays inside its view.
func TestPlotIsWellFormed(t *testing.T) {
	for _, ys := range [][]float64{{0, 0}, {1, 1}, {1e-9, 1e12}, {5}, {-3, 4}, {0.001, 0.002}} {
		for _, log := range []bool{false, true} {
			p := Plot{Title: "t", X: "x", Y: "y<", LogX: log, LogY: log}
			for i, y := range ys {
				p.At("a line with a rather long name that needs room", float64(i+1), []float64{y, y * 1.1})
				p.At("another line with a rather long name that needs room", float64(i+1), []float64{y})
			}
			svg := string(p.SVG())
			if strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") {
				t.Errorf("%v log=%v: %s", ys, log, svg)
			}
			d := xml.NewDecoder(strings.NewReader(svg))
			for {
				_, err := d.Token()
				if err == io.EOF {
					break
				}
				if err != nil {
					t.Fatalf("%v log=%v: %v in %s", ys, log, err, svg)
				}
			}
		}
	}
}

func TestTicksAreFewAndRound(t *testing.T) {
	for _, tt := range []struct {
		low, high float64
		log       bool
	}{{0, 9.3, false}, {0, 0.0021, false}, {0, 8.1e6, false}, {60, 1600, true}, {1, 70000, true}} {
		a := newAxis([]float64{tt.low, tt.high}, tt.log, 0, 100)
		ticks := a.ticks()
		if len(ticks) < 3 || len(ticks) > 9 {
			t.Errorf("%+v: ticks %v", tt, ticks)
		}
		for _, v := range ticks {
			if p := a.place(v); p < -1e-9 || p > 100+1e-9 || math.IsNaN(p) {
				t.Errorf("%+v: tick %v at %v", tt, v, p)
			}
			if len(label(v)) > 8 {
				t.Errorf("label %q", label(v))
			}
		}
	}
}
