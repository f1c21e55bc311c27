package fidelity

import (
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
)

// Page writes the document as one HTML page that needs nothing else: the table
// and three plots as inline SVG.
func (d Document) Page(w io.Writer) error {
	return page.Execute(w, struct {
		Document
		Loss, Speed, Exponents template.HTML
	}{d, lossPlot(d.Codecs), speedPlot(d.Codecs, d.Data.Copy), exponentPlot(d.Data)})
}

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"g": func(v float64) string { return fmt.Sprintf("%.3g", v) },
	"f": func(v float64) string { return fmt.Sprintf("%.7f", v) },
}).Parse(`<!DOCTYPE html>
<html lang="en"><meta charset="utf-8"><title>Codecs on {{.File}}</title>
<style>
body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:60em;padding:0 1em;color:#222}
table{border-collapse:collapse;width:100%}th,td{padding:.25em .6em;text-align:right;border-bottom:1px solid #ddd}
th:first-child,td:first-child{text-align:left}svg{max-width:100%;height:auto}svg text{font:12px system-ui,sans-serif;fill:#222}
@media(prefers-color-scheme:dark){body{background:#181818;color:#ddd}th,td{border-color:#444}svg text{fill:#ddd}}
</style>
<h1>Codecs on {{.File}}</h1>
<p>{{.Data.Elements}} elements, {{.Data.Zeros}} zeros, {{.Data.NonFinite}} not finite; largest magnitude {{g .Data.MaxAbs}}, root mean square {{g .Data.RMS}}.
Messages of {{.Message}} elements, seed {{.Seed}}.</p>
<table><tr><th>codec<th>ratio<th>NMSE<th>max error<th>part of bound<th>bias / rms<th>cosine<th>flagged<th>encode GB/s<th>decode GB/s</tr>
{{range .Codecs}}<tr><td>{{.Codec}}<td>{{g .Ratio}}<td>{{g .NMSE}}<td>{{g .MaxError}}<td>{{g .Share}}<td>{{g .RelativeBias}}<td>{{f .Cosine}}<td>{{.Flagged}}<td>{{g .Encode}}<td>{{g .Decode}}</tr>
{{end}}</table>
<p>Rates are 10<sup>9</sup> bytes of float32 a second in one goroutine; copying the data makes {{g .Data.Copy}}.</p>
<h2>What is saved against what is lost</h2>{{.Loss}}
<h2>Speed</h2>{{.Speed}}
<h2>Magnitudes of the data</h2>{{.Exponents}}
</html>
`))

const (
	plotWidth  = 760
	plotHeight = 360
	plotLeft   = 70
	plotBottom = 40
	plotTop    = 15
)

// svg gathers the parts of a plot; all texts that come from outside are
// escaped.
type svg struct{ body []byte }

func (s *svg) add(format string, a ...any) { s.body = fmt.Appendf(s.body, format+"\n", a...) }

func (s *svg) text(x, y float64, anchor, text string) {
	s.add(`<text x="%.1f" y="%.1f" text-anchor="%s">%s</text>`, x, y, anchor, template.HTMLEscapeString(text))
}

func (s *svg) line(x1, y1, x2, y2 float64, colour string) {
	s.add(`<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s"/>`, x1, y1, x2, y2, colour)
}

func (s *svg) done(height int) template.HTML {
	return template.HTML(fmt.Sprintf(`<svg viewBox="0 0 %d %d" role="img">`, plotWidth, height) + string(s.body) + "</svg>")
}

// lossPlot has the ratio to the right and the NMSE upwards, both logarithmic.
// Codecs without loss lie on the floor.
func lossPlot(rs []Result) template.HTML {
	var s svg
	low, high, most := 0.0, -300.0, 2.0
	for _, r := range rs {
		if r.NMSE > 0 {
			l := math.Log10(r.NMSE)
			low, high = math.Min(low, math.Floor(l)), math.Max(high, math.Ceil(l))
		}
		most = math.Max(most, r.Ratio)
	}
	if high < low { // nothing was lost
		high = low + 1
	}
	low-- // the floor
	x := func(ratio float64) float64 {
		return plotLeft + (plotWidth-plotLeft-110)*math.Log(math.Max(ratio, 0.9)/0.9)/math.Log(most*1.1/0.9)
	}
	y := func(log float64) float64 {
		return plotTop + (plotHeight-plotBottom-plotTop)*(high-log)/(high-low)
	}
	for l := low; l <= high; l++ {
		s.line(plotLeft, y(l), plotWidth, y(l), "#8884")
		label := fmt.Sprintf("1e%d", int(l))
		if l == low {
			label = "no loss"
		}
		s.text(plotLeft-8, y(l)+4, "end", label)
	}
	for t := 1.0; t <= most*1.1; t *= 2 {
		s.line(x(t), plotTop, x(t), plotHeight-plotBottom, "#8884")
		s.text(x(t), plotHeight-plotBottom+18, "middle", fmt.Sprintf("%gx", t))
	}
	s.text(plotWidth/2, plotHeight-4, "middle", "compression ratio; upwards: NMSE")
	var taken []box
	for _, r := range rs {
		l := low
		if r.NMSE > 0 {
			l = math.Log10(r.NMSE)
		}
		s.add(`<circle cx="%.1f" cy="%.1f" r="4" fill="#2a6fdb"/>`, x(r.Ratio), y(l))
		taken = append(taken, box{x(r.Ratio) - 4, y(l) - 4, x(r.Ratio) + 4, y(l) + 4})
	}
	for _, r := range rs {
		l := low
		if r.NMSE > 0 {
			l = math.Log10(r.NMSE)
		}
		b, anchor := place(x(r.Ratio), y(l), 7*float64(len(r.Codec)), taken)
		taken = append(taken, b)
		at := b.x1
		if anchor == "end" {
			at = b.x2
		}
		s.text(at, b.y2-3, anchor, r.Codec)
		if dy := (b.y1+b.y2)/2 - y(l); math.Abs(dy) > 8 { // far off: a line shows whose it is
			s.line(x(r.Ratio), y(l), at, (b.y1+b.y2)/2, "#888")
		}
	}
	return s.done(plotHeight)
}

// box is where something is drawn.
type box struct{ x1, y1, x2, y2 float64 }

func (b box) meets(c box) bool { return b.x1 < c.x2 && c.x1 < b.x2 && b.y1 < c.y2 && c.y1 < b.y2 }

// place finds room for a label of a width beside a point: right or left of it,
// then further up and down.
func place(x, y, width float64, taken []box) (b box, anchor string) {
	for step := range 20 {
		for _, dir := range []float64{-1, 1} {
			dy := dir * float64(step) * 7
			for _, anchor = range []string{"start", "end"} {
				b = box{x + 7, y + dy - 7, x + 7 + width, y + dy + 7}
				if anchor == "end" {
					b.x1, b.x2 = x-7-width, x-7
				}
				free := b.x1 > plotLeft-4 && b.x2 < plotWidth && b.y1 > 0 && b.y2 < plotHeight-plotBottom+8
				for _, t := range taken {
					free = free && !b.meets(t)
				}
				if free {
					return b, anchor
				}
			}
		}
	}
	return box{x + 7, y - 7, x + 7 + width, y + 7}, "start"
}

// speedPlot has two bars a codec.
func speedPlot(rs []Result, yard float64) template.HTML {
	var s svg
	most := math.Max(yard, 1e-9)
	for _, r := range rs {
		most = math.Max(most, math.Max(r.Encode, r.Decode))
	}
	left, row := 130.0, 30.0
	scale := (plotWidth - left - 90) / most
	for i, r := range rs {
		top := plotTop + float64(i)*row
		s.text(left-8, top+16, "end", r.Codec)
		s.add(`<rect x="%.1f" y="%.1f" width="%.1f" height="11" fill="#2a6fdb"/>`, left, top, r.Encode*scale)
		s.add(`<rect x="%.1f" y="%.1f" width="%.1f" height="11" fill="#e08a2c"/>`, left, top+12, r.Decode*scale)
		s.text(left+math.Max(r.Encode, r.Decode)*scale+6, top+16, "start", fmt.Sprintf("%.3g / %.3g", r.Encode, r.Decode))
	}
	bottom := plotTop + float64(len(rs))*row
	s.add(`<line x1="%.1f" y1="%d" x2="%.1f" y2="%.1f" stroke="#888" stroke-dasharray="2 4"/>`, left+yard*scale, plotTop-8, left+yard*scale, bottom)
	s.text(left, bottom+18, "start", "GB/s of float32: encode above, decode below; the line is copy")
	return s.done(int(bottom) + 28)
}

// exponentPlot is the histogram of floor(log2|x|).
func exponentPlot(d Data) template.HTML {
	var s svg
	var keys []int
	most := 1
	for e, n := range d.Exponents {
		keys = append(keys, e)
		most = max(most, n)
	}
	if len(keys) == 0 {
		s.text(plotLeft, plotTop+20, "start", "no finite element but zero")
		return s.done(60)
	}
	lo, hi := slices.Min(keys), slices.Max(keys)
	step := float64(plotWidth-plotLeft-20) / float64(hi-lo+1)
	for e := lo; e <= hi; e++ {
		h := float64(plotHeight-plotBottom-plotTop) * float64(d.Exponents[e]) / float64(most)
		x := plotLeft + float64(e-lo)*step
		s.add(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="#2a6fdb"><title>2^%d: %d</title></rect>`, x, float64(plotHeight-plotBottom)-h, math.Max(step-1, 0.5), h, e, d.Exponents[e])
		if (e-lo)%max(1, (hi-lo)/10) == 0 {
			s.text(x+step/2, plotHeight-plotBottom+18, "middle", fmt.Sprint(e))
		}
	}
	s.text(plotLeft-8, plotTop+10, "end", fmt.Sprint(most))
	s.text(plotLeft-8, plotHeight-plotBottom, "end", "0")
	s.text(plotWidth/2, plotHeight-4, "middle", "floor(log2|x|); upwards: elements")
	return s.done(plotHeight)
}
