package report

import (
	"encoding/xml"
	"io"
	"math"
	"path/filepath"
	"regexp"
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
	r.Add(Row{Name: "late", Unit: "us", Note: "INVALID: the link is too fast"}, []float64{3}, nil)
	r.Add(Row{Name: "near", Unit: "us", Note: "tester-bound: INVALID: 3 of 4 sent"}, []float64{3}, nil)
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
		"A &lt;title&gt;", "1 of 5 rows are INVALID: late", "1 of 3 goals missed: slow/64", `<td>late <strong class="short">INVALID</strong>`, "Interrupted: context canceled", "gloo is not installed", `<td class="met">1.50x`, `<td class="short">1.50x`, "180 ns", "0.1 % lost",
		"rings &amp; lane", `<td>drop/64<div class="against">against c</div>`, `<th class="text">bound by`, "frame size, bytes", "prefers-color-scheme:dark",
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

// Zero has no place on a logarithmic axis: no point is drawn for it, and no line leads there.
func TestZeroOnALogAxis(t *testing.T) {
	p := Plot{LogY: true}
	for x, y := range []float64{3, 4, 0, 5, 0, 6, 7} {
		p.At("a", float64(x), []float64{y})
	}
	svg := string(p.SVG())
	if n := strings.Count(svg, "<circle"); n != 5 {
		t.Errorf("%d points, want 5: %s", n, svg)
	}
	m := regexp.MustCompile(`<path d="([^"]*)"`).FindStringSubmatch(svg)
	if m == nil || regexp.MustCompile(`[0-9. ]+`).ReplaceAllString(m[1], "") != "MLMML" {
		t.Errorf("path %q", m)
	}
	p.LogY = false
	if n := strings.Count(string(p.SVG()), "<circle"); n != 7 {
		t.Errorf("%d points on a linear axis, want 7", n)
	}
}

func TestLabel(t *testing.T) {
	for _, tt := range []struct {
		v    float64
		want string
	}{{0.25, "0.25"}, {8192, "8192"}, {16384, "16384"}, {65536, "65536"}, {20000, "20k"}, {1.5e6, "1.5M"}, {2e9, "2G"}} {
		if got := label(tt.v); got != tt.want {
			t.Errorf("%v is %q, want %q", tt.v, got, tt.want)
		}
	}
}

// A report whose rows say neither what bounds them nor anything else has no column for it.
func TestNoEmptyColumn(t *testing.T) {
	r := New("make bench-x")
	r.Add(Row{Name: "busbw/native/64KiB", Unit: "GB/s"}, []float64{1}, nil)
	if b, err := r.HTML(); err != nil || strings.Contains(string(b), "bound by") || strings.Contains(string(b), "ratios are") {
		t.Errorf("%v: %s", err, b)
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
