package forecast

import (
	"fmt"
	"html/template"
	"io"

	"gradnic/internal/plot"
)

// Page writes the document as one HTML page that needs nothing else: the tables,
// the speed-up by nodes and the timeline of every mode as inline SVG.
func (d *Document) Page(w io.Writer) error {
	return page.Execute(w, struct {
		*Document
		Style                          template.CSS
		Of, RateFrom, Compressed       string
		Megabytes                      float64
		SpeedUps, Iteration, Timelines template.HTML
	}{d, plot.Style, d.sample(), d.rateFrom(), d.compressed(), float64(d.GradientBytes) / 1e6,
		d.speedUpPlot(), d.iterationPlot(), d.timelinePlot()})
}

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"g":      func(v float64) string { return fmt.Sprintf("%.4g", v) },
	"f":      func(v float64) string { return fmt.Sprintf("%.3f", v) },
	"figure": Published.figure,
}).Parse(`<!DOCTYPE html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Model of {{.Table}} on {{.System.Name}}</title>
<style>
{{.Style}}
body{max-width:min(70em,calc(100vw - 3em))}p,svg{max-width:60em}
</style>
<h1>{{.Table}} on system {{.System.Name}}, as the model has it</h1>
<p>{{.Layers}} layers, {{.Parameters}} parameters, {{g .Megabytes}} MB of gradients. {{.Source}}</p>
<p>Link {{g .System.LinkGbit}} Gb/s, host link {{g .System.HostGbit}} Gb/s, {{g .TFLOPS}} TFLOPS a node{{.RateFrom}}; {{.Codec}} makes {{g .Ratio}} bytes one.
{{.System.Source}}</p>
<h2>Speed-up against plain NICs by nodes</h2><div class="wide">{{.SpeedUps}}</div>
<div class="wide"><table><tr><th>batch<th>nodes<th>naive ms<th>overlapped ms<th>ideal ms<th>nic ms<th>{{.Compressed}} ms<th>nic<th>{{.Compressed}}<th>nic, least<th>{{.Compressed}}, least<th>ceiling<th>over naive</tr>
{{range .ByNodes}}<tr><td>{{.Batch}}<td>{{.Nodes}}<td>{{f .Naive}}<td>{{f .Plain}}<td>{{f .Ideal}}<td>{{f .NIC}}<td>{{f .Compressed}}<td>{{f .SpeedUpNIC}}<td>{{f .SpeedUp}}<td>{{f .LeastNIC}}<td>{{f .Least}}<td>{{f .Ceiling}}<td>{{f .CeilingNaive}}</tr>
{{end}}</table></div>
<p>Speed-ups are against plain NICs whose software works during the backward pass; the least are against the fastest of the plain ways, of which the ideal one fills the link with steps that cost nothing. A ceiling is what is over compute alone, the most that any NIC gains.</p>
<h2>One iteration at {{.Nodes}} nodes, {{.Batch}} {{.Of}} a node</h2><div class="wide">{{.Iteration}}</div>
<div class="wide"><table><tr><th>mode<th>iteration ms<th>forward ms<th>backward ms<th>update ms<th>communication ms<th>exposed ms<th>speed-up<th>ceiling</tr>
{{range .Modes}}<tr><td>{{.Mode}}<td>{{f .Iteration}}<td>{{f .Forward}}<td>{{f .Backward}}<td>{{f .Update}}<td>{{f .Communication}}<td>{{f .Exposed}}<td>{{f .SpeedUp}}<td>{{f .Ceiling}}</tr>
{{end}}</table></div>
<h2>Timeline</h2><div class="wide">{{.Timelines}}</div>
{{if .Published}}<h2>Beside the paper</h2>
<div class="wide"><table><tr><th>arXiv 2204.10943<th>nodes<th>batch<th>paper<th>model<th></tr>
{{range .Published}}<tr><td>{{.What}}<td>{{.Nodes}}<td>{{.Batch}}<td>{{figure .}}<td>{{f .Model}}<td>{{.Note}}</tr>
{{end}}</table></div>
{{end}}</html>
`))
