package report

import (
	"fmt"
	"html/template"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"gradnic/internal/plot"
)

// Plot is lines over numbers, such as throughput by frame size.
type Plot struct {
	Title string `json:"title"`
	X     string `json:"x"` // what the horizontal axis counts, with its unit
	Y     string `json:"y"` // the same of the vertical one
	LogX  bool   `json:"log_x,omitempty"`
	LogY  bool   `json:"log_y,omitempty"`
	Lines []Line `json:"lines"`
}

// Line is one contestant's points, in order of X.
type Line struct {
	Name   string  `json:"name"`
	Points []Point `json:"points"`
	// Marks draws points without a line, as for the trials of a search.
	Marks bool `json:"marks,omitempty"`
}

// Point is a figure with its spread; Low and High are 0 when there is none.
type Point struct {
	X    float64 `json:"x"`
	Y    float64 `json:"y"`
	Low  float64 `json:"low,omitempty"`
	High float64 `json:"high,omitempty"`
	Text string  `json:"text,omitempty"` // shown when the point is pointed at
}

// At adds the median of a round's values, with their spread, to the line of a name. Lines keep the order in which they
// were named first.
func (p *Plot) At(line string, x float64, values []float64) {
	if len(values) == 0 {
		return
	}
	i := slices.IndexFunc(p.Lines, func(l Line) bool { return l.Name == line })
	if i < 0 {
		i = len(p.Lines)
		p.Lines = append(p.Lines, Line{Name: line})
	}
	p.Lines[i].Points = append(p.Lines[i].Points, Point{X: x, Y: Median(values), Low: slices.Min(values), High: slices.Max(values)})
}

// colours are told apart on light and on dark ground, also by most who see colours differently (after Okabe and Ito).
var colours = [...]string{"#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#999933", "#888888"}

// axis maps numbers to places.
type axis struct {
	low, high float64
	log       bool
	from, to  float64
}

func newAxis(values []float64, log bool, from, to float64) axis {
	a := axis{log: log, from: from, to: to}
	if log {
		values = slices.DeleteFunc(slices.Clone(values), func(v float64) bool { return !(v > 0) })
	}
	if len(values) == 0 {
		a.low, a.high = 1, 10
		return a
	}
	a.low, a.high = slices.Min(values), slices.Max(values)
	if !log {
		a.low = math.Min(a.low, 0)
		a.high += (a.high - a.low) * 0.05
	} else {
		a.low, a.high = a.low/1.15, a.high*1.15
	}
	if a.high <= a.low {
		a.high = a.low + 1
	}
	return a
}

func (a axis) place(v float64) float64 {
	low, high := a.low, a.high
	if a.log {
		v, low, high = math.Log(math.Max(v, a.low)), math.Log(low), math.Log(high)
	}
	return a.from + (a.to-a.from)*(v-low)/(high-low)
}

// ticks are round numbers, at most about seven.
func (a axis) ticks() (t []float64) {
	if a.log {
		factors := []float64{1, 2, 5}
		if a.high/a.low > 300 {
			factors = []float64{1}
		}
		for d := math.Pow(10, math.Floor(math.Log10(a.low))); d <= a.high; d *= 10 {
			for _, f := range factors {
				if v := d * f; v >= a.low && v <= a.high {
					t = append(t, v)
				}
			}
		}
		if len(t) > 0 {
			return t
		}
	}
	step := math.Pow(10, math.Floor(math.Log10((a.high-a.low)/4)))
	for _, f := range []float64{1, 2, 5, 10} {
		if (a.high-a.low)/(step*f) <= 6 {
			step *= f
			break
		}
	}
	for v := math.Ceil(a.low/step) * step; v <= a.high; v += step {
		t = append(t, v)
	}
	return t
}

// label writes a tick in few characters.
func label(v float64) string {
	if n := math.Abs(v); n >= 1e4 && n < 1e6 && n == math.Trunc(n) && math.Mod(n, 100) != 0 {
		return strconv.FormatFloat(v, 'f', 0, 64) // a number that somebody counted, such as 65536 slots
	}
	for _, m := range []struct {
		by   float64
		name string
	}{{1e9, "G"}, {1e6, "M"}, {1e4, "k"}} {
		if math.Abs(v) >= m.by {
			by := m.by
			if m.name == "k" {
				by = 1e3
			}
			return strconv.FormatFloat(v/by, 'g', 4, 64) + m.name
		}
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}

// WriteSVG writes the plot as a file of its own, with what a page gives to those in it.
func (p *Plot) WriteSVG(path string) error {
	text := strings.Replace(string(p.SVG()), "<svg ", `<svg xmlns="http://www.w3.org/2000/svg" width="760" font-family="system-ui,sans-serif" font-size="12" fill="#777" `, 1)
	return os.WriteFile(path, []byte(text+"\n"), 0o644)
}

// SVG draws the plot.
func (p *Plot) SVG() template.HTML {
	var (
		s      plot.SVG
		xs, ys []float64
	)
	for _, l := range p.Lines {
		for _, q := range l.Points {
			xs, ys = append(xs, q.X), append(ys, q.Y)
			if q.High > 0 {
				ys = append(ys, q.Low, q.High)
			}
		}
	}
	const top, right = 34, plot.Width - 14
	// The legend is above the axes, in rows of what fits.
	x, y := float64(plot.Left), 18.0
	for i, l := range p.Lines {
		width := 30 + 11*float64(len(l.Name)) // room for the larger letters of narrow screens
		if x+width > right && x > plot.Left {
			x, y = plot.Left, y+22
		}
		s.Line(x, y-4, x+16, y-4, colours[i%len(colours)])
		s.Bar(x+5, y-7, 6, 6, colours[i%len(colours)], l.Name)
		s.Text(x+20, y, "start", l.Name)
		x += width
	}
	above := math.Max(top, y+12)
	ax := newAxis(xs, p.LogX, plot.Left+8, right)
	ay := newAxis(ys, p.LogY, plot.Height-plot.Bottom, above)
	for _, t := range ay.ticks() {
		s.Line(plot.Left, ay.place(t), right, ay.place(t), "#8884")
		s.Text(plot.Left-8, ay.place(t)+4, "end", label(t))
	}
	for _, t := range xTicks(ax, xs, p.LogX) {
		s.Line(ax.place(t), above, ax.place(t), plot.Height-plot.Bottom, "#8882")
		anchor := "middle"
		if ax.place(t) > right-25 {
			anchor = "end"
		}
		s.Text(ax.place(t), plot.Height-plot.Bottom+15, anchor, label(t))
	}
	s.Text((plot.Left+right)/2, plot.Height-2, "middle", p.X)
	for i, l := range p.Lines {
		colour := colours[i%len(colours)]
		path, move := "", "M"
		for _, q := range l.Points {
			if p.LogX && q.X <= 0 || p.LogY && q.Y <= 0 {
				move = "M" // zero has no place on a logarithmic axis: a gap, where the axis' end would be a figure
				continue
			}
			cx, cy := ax.place(q.X), ay.place(q.Y)
			if q.High > q.Low {
				s.Line(cx, ay.place(q.Low), cx, ay.place(q.High), colour+"99")
			}
			path, move = path+fmt.Sprintf("%s%.1f %.1f", move, cx, cy), "L"
			text := fmt.Sprintf("%s: %s at %s", l.Name, label(q.Y), label(q.X))
			if q.Text != "" {
				text += ": " + q.Text
			}
			s.Add(`<circle cx="%.1f" cy="%.1f" r="3.5" fill="%s"><title>%s</title></circle>`, cx, cy, colour, template.HTMLEscapeString(text))
		}
		if !l.Marks && strings.Contains(path, "L") {
			s.Add(`<path d="%s" fill="none" stroke="%s" stroke-width="2"/>`, path, colour)
		}
	}
	return s.Done(plot.Height)
}

// xTicks are the points' own places when they are few and far enough apart, else round numbers.
func xTicks(a axis, xs []float64, log bool) []float64 {
	own := slices.Compact(slices.Sorted(slices.Values(xs)))
	if len(own) > 8 || !log {
		return a.ticks()
	}
	last := math.Inf(-1)
	return slices.DeleteFunc(own, func(v float64) bool {
		if a.place(v)-last < 75 {
			return true
		}
		last = a.place(v)
		return false
	})
}
