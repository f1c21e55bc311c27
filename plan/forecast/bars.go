package forecast

import (
	"fmt"
	"html/template"
	"math"

	"gradnic/internal/plot"
)

const (
	barLeft  = 110.0
	barRight = plot.Width - 70.0
)

// legend writes coloured squares with their words in a row.
func legend(s *plot.SVG, x, y float64, entries ...[2]string) {
	for _, e := range entries {
		s.Add(`<rect x="%.1f" y="%.1f" width="11" height="11" fill="%s"/>`, x, y-10, e[0])
		s.Text(x+16, y, "start", e[1])
		x += 30 + 7*float64(len(e[1]))
	}
}

// axis draws a scale of milliseconds under bars and returns where a time lies.
func (d *Document) axis(s *plot.SVG, bottom float64) func(ms float64) float64 {
	most := 1e-9
	for _, m := range d.Modes {
		most = max(most, m.Iteration)
	}
	x := func(ms float64) float64 { return barLeft + (barRight-barLeft)*ms/most }
	for i, step := 0, tick(most, 8); float64(i)*step <= most; i++ {
		v := float64(i) * step
		s.Line(x(v), plot.Top, x(v), bottom, grid)
		s.Text(x(v), bottom+16, "middle", fmt.Sprintf("%.4g", v))
	}
	s.Text(barRight+14, bottom+16, "start", "ms")
	return x
}

// iterationPlot has one bar a mode: compute, then what communication adds.
func (d *Document) iterationPlot() template.HTML {
	var s plot.SVG
	const row = 26.0
	bottom := plot.Top + row*float64(len(d.Modes))
	x := d.axis(&s, bottom)
	for i, m := range d.Modes {
		top := plot.Top + row*float64(i) + 4
		s.Text(barLeft-8, top+13, "end", m.Mode)
		at := 0.0
		for _, part := range []struct {
			length       float64
			colour, name string
		}{{m.Forward, light, "forward"}, {m.Backward, blue, "backward"}, {m.Update, green, "update"}, {m.Exposed, orange, "exposed communication"}} {
			if part.length > 0 {
				s.Bar(x(at), top, x(at+part.length)-x(at), row-8, part.colour, fmt.Sprintf("%s %.3f ms", part.name, part.length))
			}
			at += part.length
		}
		s.Text(x(at)+6, top+13, "start", fmt.Sprintf("%.2fx", m.SpeedUp))
	}
	legend(&s, barLeft, bottom+38, [2]string{light, "forward"}, [2]string{blue, "backward"}, [2]string{green, "update"},
		[2]string{orange, "exposed communication"})
	return s.Done(int(bottom) + 48)
}

// timelinePlot has two rows a mode: what the node computes, and what the engine
// sums, layer by layer.
func (d *Document) timelinePlot() template.HTML {
	var s plot.SVG
	const row = 50.0
	bottom := plot.Top + row*float64(len(d.Modes))
	x := d.axis(&s, bottom)
	// A hair of space keeps equal neighbours apart, where there is room.
	bar := func(from, to, top float64, colour, what string) {
		width := x(to) - x(from)
		if width > 0 {
			s.Bar(x(from), top, math.Max(width-0.6, width*0.7), 17, colour, fmt.Sprintf("%s: %.3f to %.3f ms", what, from, to))
		}
	}
	for i, m := range d.Modes {
		top := plot.Top + row*float64(i) + 5
		s.Text(barLeft-8, top+13, "end", m.Mode)
		s.Text(barLeft-8, top+32, "end", "all-reduce")
		for _, l := range m.Timeline {
			bar(l.Forward[0], l.Forward[1], top, light, l.Layer+" forward")
			bar(l.Backward[0], l.Backward[1], top, blue, l.Layer+" backward")
			colour := orange
			if l.Bound != "ring" {
				colour = pale
			}
			bar(l.AllReduce[0], l.AllReduce[1], top+19, colour, l.Layer+" all-reduce, bound by "+l.Bound)
		}
		bar(m.Iteration-m.Update, m.Iteration, top, green, "update")
		s.Line(x(m.Iteration), top-3, x(m.Iteration), top+39, grey)
		s.Text(x(m.Iteration)+5, top+13, "start", fmt.Sprintf("%.4g", m.Iteration))
	}
	legend(&s, barLeft, bottom+38, [2]string{light, "forward"}, [2]string{blue, "backward"}, [2]string{green, "update"},
		[2]string{orange, "all-reduce bound by the link"}, [2]string{pale, "by the host link or adders"})
	return s.Done(int(bottom) + 48)
}
