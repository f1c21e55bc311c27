package forecast

import (
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"

	"gradnic/internal/plot"
)

// The colours are seen on white and on black.
const (
	blue   = "#2a6fdb"
	light  = "#6a9fef"
	orange = "#e08a2c"
	pale   = "#f0b070"
	green  = "#3a9a5b"
	purple = "#9a6be0"
	grey   = "#888"
	grid   = "#8884"
)

// tick is a round step that gives about n steps up to most.
func tick(most float64, n int) float64 {
	step := math.Pow(10, math.Floor(math.Log10(most/float64(n))))
	for _, m := range []float64{1, 2, 5, 10} {
		if most/(step*m) <= float64(n) {
			return step * m
		}
	}
	return step * 10
}

// speedUpPlot has the number of nodes to the right, logarithmic, and the
// speed-up upwards. Dashed lines are against the fastest plain way; rings are the
// paper's figures.
func (d *Document) speedUpPlot() template.HTML {
	var s plot.SVG
	if len(d.ByNodes) == 0 {
		s.Text(plot.Left, plot.Top+20, "start", "no numbers of nodes")
		return s.Done(60)
	}
	least, most, high := math.MaxInt, 1, 1.0
	var batches []int
	for _, p := range d.ByNodes {
		least, most = min(least, p.Nodes), max(most, p.Nodes)
		high = max(high, p.SpeedUp, p.SpeedUpNIC, p.Least, p.LeastNIC)
		if !slices.Contains(batches, p.Batch) {
			batches = append(batches, p.Batch)
		}
	}
	var figures []Published
	for _, p := range d.Published {
		if strings.HasPrefix(p.What, "speed-up") && !p.AtMost && slices.Contains(batches, p.Batch) && p.Nodes >= least && p.Nodes <= most {
			figures, high = append(figures, p), max(high, p.Paper)
		}
	}
	high *= 1.08
	right := float64(plot.Width - 165)
	x := func(nodes int) float64 {
		if least == most {
			return (plot.Left + right) / 2
		}
		return plot.Left + 15 + (right-plot.Left-30)*math.Log(float64(nodes)/float64(least))/math.Log(float64(most)/float64(least))
	}
	y := func(v float64) float64 { return plot.Top + (plot.Height-plot.Bottom-plot.Top)*(1-v/high) }
	for v, step := 0.0, tick(high, 7); v <= high; v += step {
		s.Line(plot.Left, y(v), right, y(v), grid)
		s.Text(plot.Left-8, y(v)+4, "end", fmt.Sprintf("%.3gx", v))
	}
	s.Line(plot.Left, y(1), right, y(1), grey)
	at := math.Inf(-1)
	nodes := map[int]bool{}
	for _, p := range d.ByNodes {
		nodes[p.Nodes] = true
	}
	for _, n := range sortedKeys(nodes) {
		s.Line(x(n), plot.Height-plot.Bottom, x(n), plot.Height-plot.Bottom+4, grey)
		if x(n)-at > 22 { // else it would run into the one before
			s.Text(x(n), plot.Height-plot.Bottom+18, "middle", fmt.Sprint(n))
			at = x(n)
		}
	}
	caption := "nodes; upwards: speed-up against overlapped plain NICs; dashed: against the fastest plain way"
	if len(figures) > 0 {
		caption += "; rings: the paper"
	}
	s.Text((plot.Left+right)/2+20, plot.Height-4, "middle", caption)

	var taken []plot.Box
	curves := []struct {
		name         string
		plain, least func(Scale) float64
		colour       string
	}{
		{"nic", func(p Scale) float64 { return p.SpeedUpNIC }, func(p Scale) float64 { return p.LeastNIC }, orange},
		{d.compressed(), func(p Scale) float64 { return p.SpeedUp }, func(p Scale) float64 { return p.Least }, blue},
	}
	if d.Ratio == 1 {
		curves = curves[:1]
	}
	for i, batch := range batches {
		var points []Scale
		for _, p := range d.ByNodes {
			if p.Batch == batch {
				points = append(points, p)
			}
		}
		slices.SortFunc(points, func(a, b Scale) int { return a.Nodes - b.Nodes })
		for _, c := range curves {
			colour := c.colour
			if i%2 == 1 {
				colour = map[string]string{orange: green, blue: purple}[colour]
			}
			for _, style := range []struct {
				of   func(Scale) float64
				dash string
			}{{c.least, ` stroke-dasharray="4 4"`}, {c.plain, ""}} {
				line := ""
				for _, p := range points {
					line += fmt.Sprintf("%.1f,%.1f ", x(p.Nodes), y(style.of(p)))
				}
				s.Add(`<polyline points="%s" fill="none" stroke="%s" stroke-width="2"%s/>`, line, colour, style.dash)
			}
			for _, p := range points {
				s.Add(`<circle cx="%.1f" cy="%.1f" r="3.5" fill="%s"><title>%d nodes, batch %d: %.3f</title></circle>`, x(p.Nodes), y(c.plain(p)), colour, p.Nodes, p.Batch, c.plain(p))
			}
			last := points[len(points)-1]
			label := fmt.Sprintf("%s, batch %d", c.name, batch)
			b, anchor := beside(right, y(c.plain(last)), 7*float64(len(label)), taken)
			taken = append(taken, b)
			s.Add(`<circle cx="%.1f" cy="%.1f" r="3.5" fill="%s"/>`, right+4, (b.Y1+b.Y2)/2, colour)
			s.Text(b.X1+4, b.Y2-3, anchor, label)
		}
	}
	for _, p := range figures {
		s.Add(`<circle cx="%.1f" cy="%.1f" r="6" fill="none" stroke="%s" stroke-width="2"><title>the paper: %g</title></circle>`, x(p.Nodes), y(p.Paper), grey, p.Paper)
	}
	return s.Done(plot.Height)
}

// beside finds room for a line's label right of the plot, as near to the line's
// end as others leave it.
func beside(x, y, width float64, taken []plot.Box) (plot.Box, string) {
	for step := range 40 {
		for _, dir := range []float64{-1, 1} {
			dy := dir * float64(step) * 7
			b := plot.Box{X1: x + 7, Y1: y + dy - 7, X2: x + 7 + width, Y2: y + dy + 7}
			if b.Y1 > 0 && !slices.ContainsFunc(taken, b.Meets) {
				return b, "start"
			}
		}
	}
	return plot.Box{X1: x + 7, Y1: y - 7, X2: x + 7 + width, Y2: y + 7}, "start"
}

func sortedKeys(m map[int]bool) (keys []int) {
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
