// Package plot draws the plots of gradnic's HTML pages as inline SVG. A page
// needs nothing else, and is read on light and dark screens: what is drawn
// takes its colours from [Style] or is visible on both.
package plot

import (
	"fmt"
	"html/template"
)

// The area of a plot, in units of its view box, and the margins of its axes.
const (
	Width  = 760
	Height = 360
	Left   = 70
	Bottom = 40
	Top    = 15
)

// Style is the style sheet of a page. What is in a part of class wide, a plot or a table, scrolls by itself where the window is too
// narrow for it to be read.
const Style template.CSS = `body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:60em;padding:0 1em;color:#222}
table{border-collapse:collapse;width:100%}th,td{padding:.25em .6em;text-align:right;border-bottom:1px solid #ddd}
th:first-child,td:first-child{text-align:left}svg{max-width:100%;height:auto}svg text{font:12px system-ui,sans-serif;fill:#222}
.wide{overflow-x:auto}.wide svg{min-width:40em}.wide td{white-space:nowrap}
@media(prefers-color-scheme:dark){body{background:#181818;color:#ddd}th,td{border-color:#444}svg text{fill:#ddd}}`

// SVG gathers the parts of a plot. The zero value is an empty one.
type SVG struct{ body []byte }

// Add appends SVG as it is: texts from outside must be escaped by the caller.
func (s *SVG) Add(format string, a ...any) { s.body = fmt.Appendf(s.body, format+"\n", a...) }

// Text writes an escaped text with its anchor (start, middle or end) at a point
// of its base line.
func (s *SVG) Text(x, y float64, anchor, text string) {
	s.Add(`<text x="%.1f" y="%.1f" text-anchor="%s">%s</text>`, x, y, anchor, template.HTMLEscapeString(text))
}

// Line draws a line.
func (s *SVG) Line(x1, y1, x2, y2 float64, colour string) {
	s.Add(`<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s"/>`, x1, y1, x2, y2, colour)
}

// Bar draws a filled rectangle that says what it is when it is pointed at.
func (s *SVG) Bar(x, y, width, height float64, colour, title string) {
	s.Add(`<rect x="%.2f" y="%.1f" width="%.2f" height="%.1f" fill="%s"><title>%s</title></rect>`,
		x, y, width, height, colour, template.HTMLEscapeString(title))
}

// Done closes a plot of a height.
func (s *SVG) Done(height int) template.HTML {
	return template.HTML(fmt.Sprintf(`<svg viewBox="0 0 %d %d" role="img">`, Width, height) + string(s.body) + "</svg>")
}

// Box is where something is drawn: left, top, right, bottom.
type Box struct{ X1, Y1, X2, Y2 float64 }

// Meets says whether two boxes have a point in common.
func (b Box) Meets(c Box) bool { return b.X1 < c.X2 && c.X1 < b.X2 && b.Y1 < c.Y2 && c.Y1 < b.Y2 }

// Place finds room for a label of a width beside a point: right or left of it,
// then further up and down.
func Place(x, y, width float64, taken []Box) (b Box, anchor string) {
	for step := range 20 {
		for _, dir := range []float64{-1, 1} {
			dy := dir * float64(step) * 7
			for _, anchor = range []string{"start", "end"} {
				b = Box{x + 7, y + dy - 7, x + 7 + width, y + dy + 7}
				if anchor == "end" {
					b.X1, b.X2 = x-7-width, x-7
				}
				free := b.X1 > Left-4 && b.X2 < Width && b.Y1 > 0 && b.Y2 < Height-Bottom+8
				for _, t := range taken {
					free = free && !b.Meets(t)
				}
				if free {
					return b, anchor
				}
			}
		}
	}
	return Box{x + 7, y - 7, x + 7 + width, y + 7}, "start"
}
