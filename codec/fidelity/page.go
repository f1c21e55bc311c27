package fidelity

import (
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"

	"gradnic/internal/plot"
)

// Page writes the document as one HTML page that needs nothing else: the table
// and three plots as inline SVG.
func (d Document) Page(w io.Writer) error {
	return page.Execute(w, struct {
		Document
		Style                  template.CSS
		Loss, Speed, Exponents template.HTML
	}{d, plot.Style, lossPlot(d.Codecs), speedPlot(d.Codecs, d.Data.Copy), exponentPlot(d.Data)})
}

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"g": func(v float64) string { return fmt.Sprintf("%.3g", v) },
	"f": func(v float64) string { return fmt.Sprintf("%.7f", v) },
}).Parse(`<!DOCTYPE html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Codecs on {{.File}}</title>
<style>
{{.Style}}
</style>
<h1>Codecs on {{.File}}</h1>
<p>{{.Data.Elements}} elements, {{.Data.Zeros}} zeros, {{.Data.NonFinite}} not finite; largest magnitude {{g .Data.MaxAbs}}, root mean square {{g .Data.RMS}}.
Messages of {{.Message}} elements, seed {{.Seed}}.</p>
<div class="wide"><table><tr><th>codec<th>ratio<th>NMSE<th>max error<th>part of bound<th>bias / rms<th>cosine<th>flagged<th>encode GB/s<th>decode GB/s</tr>
{{range .Codecs}}<tr><td>{{.Codec}}<td>{{g .Ratio}}<td>{{g .NMSE}}<td>{{g .MaxError}}<td>{{g .Share}}<td>{{g .RelativeBias}}<td>{{f .Cosine}}<td>{{.Flagged}}<td>{{g .Encode}}<td>{{g .Decode}}</tr>
{{end}}</table></div>
<p>Rates are 10<sup>9</sup> bytes of float32 a second in one goroutine; copying the data makes {{g .Data.Copy}}.</p>
<h2>What is saved against what is lost</h2><div class="wide">{{.Loss}}</div>
<h2>Speed</h2><div class="wide">{{.Speed}}</div>
<h2>Magnitudes of the data</h2><div class="wide">{{.Exponents}}</div>
</html>
`))

// lossPlot has the ratio to the right and the NMSE upwards, both logarithmic.
// Codecs without loss lie on the floor.
func lossPlot(rs []Result) template.HTML {
	var s plot.SVG
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
		return plot.Left + (plot.Width-plot.Left-110)*math.Log(math.Max(ratio, 0.9)/0.9)/math.Log(most*1.1/0.9)
	}
	y := func(log float64) float64 {
		return plot.Top + (plot.Height-plot.Bottom-plot.Top)*(high-log)/(high-low)
	}
	for l := low; l <= high; l++ {
		s.Line(plot.Left, y(l), plot.Width, y(l), "#8884")
		label := fmt.Sprintf("1e%d", int(l))
		if l == low {
			label = "no loss"
		}
		s.Text(plot.Left-8, y(l)+4, "end", label)
	}
	for t := 1.0; t <= most*1.1; t *= 2 {
		s.Line(x(t), plot.Top, x(t), plot.Height-plot.Bottom, "#8884")
		s.Text(x(t), plot.Height-plot.Bottom+18, "middle", fmt.Sprintf("%gx", t))
	}
	s.Text(plot.Width/2, plot.Height-4, "middle", "compression ratio; upwards: NMSE")
	var taken []plot.Box
	for _, r := range rs {
		l := low
		if r.NMSE > 0 {
			l = math.Log10(r.NMSE)
		}
		s.Add(`<circle cx="%.1f" cy="%.1f" r="4" fill="#2a6fdb"/>`, x(r.Ratio), y(l))
		taken = append(taken, plot.Box{X1: x(r.Ratio) - 4, Y1: y(l) - 4, X2: x(r.Ratio) + 4, Y2: y(l) + 4})
	}
	for _, r := range rs {
		l := low
		if r.NMSE > 0 {
			l = math.Log10(r.NMSE)
		}
		b, anchor := plot.Place(x(r.Ratio), y(l), 7*float64(len(r.Codec)), taken)
		taken = append(taken, b)
		at := b.X1
		if anchor == "end" {
			at = b.X2
		}
		s.Text(at, b.Y2-3, anchor, r.Codec)
		if dy := (b.Y1+b.Y2)/2 - y(l); math.Abs(dy) > 8 { // far off: a line shows whose it is
			s.Line(x(r.Ratio), y(l), at, (b.Y1+b.Y2)/2, "#888")
		}
	}
	return s.Done(plot.Height)
}

// speedPlot has two bars a codec.
func speedPlot(rs []Result, yard float64) template.HTML {
	var s plot.SVG
	most := math.Max(yard, 1e-9)
	for _, r := range rs {
		most = math.Max(most, math.Max(r.Encode, r.Decode))
	}
	left, row := 130.0, 30.0
	scale := (plot.Width - left - 90) / most
	for i, r := range rs {
		top := plot.Top + float64(i)*row
		s.Text(left-8, top+16, "end", r.Codec)
		s.Add(`<rect x="%.1f" y="%.1f" width="%.1f" height="11" fill="#2a6fdb"/>`, left, top, r.Encode*scale)
		s.Add(`<rect x="%.1f" y="%.1f" width="%.1f" height="11" fill="#e08a2c"/>`, left, top+12, r.Decode*scale)
		s.Text(left+math.Max(r.Encode, r.Decode)*scale+6, top+16, "start", fmt.Sprintf("%.3g / %.3g", r.Encode, r.Decode))
	}
	bottom := plot.Top + float64(len(rs))*row
	s.Add(`<line x1="%.1f" y1="%d" x2="%.1f" y2="%.1f" stroke="#888" stroke-dasharray="2 4"/>`, left+yard*scale, plot.Top-8, left+yard*scale, bottom)
	s.Text(left, bottom+18, "start", "GB/s of float32: encode above, decode below; the line is copy")
	return s.Done(int(bottom) + 28)
}

// exponentPlot is the histogram of floor(log2|x|).
func exponentPlot(d Data) template.HTML {
	var s plot.SVG
	var keys []int
	most := 1
	for e, n := range d.Exponents {
		keys = append(keys, e)
		most = max(most, n)
	}
	if len(keys) == 0 {
		s.Text(plot.Left, plot.Top+20, "start", "no finite element but zero")
		return s.Done(60)
	}
	lo, hi := slices.Min(keys), slices.Max(keys)
	step := float64(plot.Width-plot.Left-20) / float64(hi-lo+1)
	for e := lo; e <= hi; e++ {
		h := float64(plot.Height-plot.Bottom-plot.Top) * float64(d.Exponents[e]) / float64(most)
		x := plot.Left + float64(e-lo)*step
		s.Add(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="#2a6fdb"><title>2^%d: %d</title></rect>`, x, float64(plot.Height-plot.Bottom)-h, math.Max(step-1, 0.5), h, e, d.Exponents[e])
		if (e-lo)%max(1, (hi-lo)/10) == 0 {
			s.Text(x+step/2, plot.Height-plot.Bottom+18, "middle", fmt.Sprint(e))
		}
	}
	s.Text(plot.Left-8, plot.Top+10, "end", fmt.Sprint(most))
	s.Text(plot.Left-8, plot.Height-plot.Bottom, "end", "0")
	s.Text(plot.Width/2, plot.Height-4, "middle", "floor(log2|x|); upwards: elements")
	return s.Done(plot.Height)
}
