package forecast

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"gradnic/plan"
)

const bfp = 2048. / 544

func options(t *testing.T, table string) Options {
	t.Helper()
	l, err := plan.ShippedTable(table)
	if err != nil {
		t.Fatal(err)
	}
	s, err := plan.ShippedSystem("paper")
	if err != nil {
		t.Fatal(err)
	}
	return Options{Table: l, System: s, Codec: "bfp16", Ratio: bfp}
}

func build(t *testing.T, o Options) *Document {
	t.Helper()
	d, err := Build(o)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestBuildOfThePaper(t *testing.T) {
	o := options(t, "mlp-20x2048")
	o.Batches = []int{448, 1792}
	d := build(t, o)
	var names []string
	for _, m := range d.Modes {
		names = append(names, m.Mode)
		if len(m.Timeline) != 20 {
			t.Errorf("%s has %d layers", m.Mode, len(m.Timeline))
		}
		// The parts make the whole.
		if sum := m.Forward + m.Backward + m.Update + m.Exposed; math.Abs(sum-m.Iteration) > 1e-9 {
			t.Errorf("%s: parts make %g, the iteration %g", m.Mode, sum, m.Iteration)
		}
		if end := m.Timeline[0].AllReduce[1] + m.Update; math.Abs(end-m.Iteration) > 1e-9 {
			t.Errorf("%s: the first layer's all-reduce ends at %g, the iteration at %g", m.Mode, end, m.Iteration)
		}
	}
	if got := strings.Join(names, " "); got != "naive overlapped ideal nic nic+bfp16" {
		t.Fatalf("modes are %s", got)
	}
	if d.Nodes != 6 || d.Batch != 448 || d.Layers != 20 || d.GradientBytes != 20<<24 || len(d.ByNodes) != 12 {
		t.Errorf("%d nodes, batch %d, %d layers, %d bytes, %d points", d.Nodes, d.Batch, d.Layers, d.GradientBytes, len(d.ByNodes))
	}
	if math.Abs(d.TFLOPS-2.098) > 0.001 {
		t.Errorf("%g TFLOPS", d.TFLOPS)
	}
	for _, p := range d.ByNodes { // the timeline's point is the same one
		if p.Nodes == 6 && p.Batch == 448 {
			if p.Naive != d.Modes[0].Iteration || p.Plain != d.Modes[1].Iteration || p.Ideal != d.Modes[2].Iteration || p.NIC != d.Modes[3].Iteration || p.Compressed != d.Modes[4].Iteration {
				t.Errorf("%+v differs from the modes", p)
			}
			if p.SpeedUp != d.Modes[4].SpeedUp || p.SpeedUpNIC != d.Modes[3].SpeedUp || p.ExposedPlain != d.Modes[1].Exposed || p.ExposedCompressed != d.Modes[4].Exposed {
				t.Errorf("%+v has other speed-ups", p)
			}
		}
		for what, v := range map[string][2]float64{"nic": {p.SpeedUpNIC, p.Plain / p.NIC}, "codec": {p.SpeedUp, p.Plain / p.Compressed}, "nic, least": {p.LeastNIC, min(p.Naive, p.Plain, p.Ideal) / p.NIC},
			"codec, least": {p.Least, min(p.Naive, p.Plain, p.Ideal) / p.Compressed}} {
			if math.Abs(v[0]-v[1]) > 1e-9 {
				t.Errorf("%s at %d nodes: %g, the times say %g", what, p.Nodes, v[0], v[1])
			}
		}
	}
	if len(d.Published) != 7 || d.Published[1].Note != "fitted" {
		t.Fatalf("published: %+v", d.Published)
	}
	for _, p := range d.Published[:5] { // at 6 nodes
		if math.Abs(p.Model-p.Paper) > 0.04*p.Paper {
			t.Errorf("%s: paper %g, model %g", p.What, p.Paper, p.Model)
		}
	}
	if large := d.Published[5]; !large.AtMost || large.Model > large.Paper {
		t.Errorf("%+v", large)
	}
	if many := d.Published[6]; many.Nodes != 32 || many.Model != d.ByNodes[5].SpeedUp {
		t.Errorf("%+v, the table has %g", many, d.ByNodes[5].SpeedUp)
	}
}

// TestCeiling: where communication is 51 % of the naive iteration no NIC gains more than 1/0.49 over it; and over software that
// overlaps at no cost, on layers that are alike, no more than what the forward pass and the first layer's backward pass do not hide.
func TestCeiling(t *testing.T) {
	o := options(t, "mlp-20x2048")
	o.System.Slowdown, o.System.Overlapped = 1, plan.Software{LinkShare: 1}
	o.System.Naive = plan.Software{LinkShare: 1}
	o.System.UpdateGbytes = 0
	d := build(t, o)
	const comm, forward, backward = 0.51 / 0.49, 1. / 3, 2. / 3 // of compute
	want := map[string]float64{"naive": 1 / 0.49, "overlapped": forward + backward/20 + comm}
	for mode, c := range want {
		m, err := d.Find(mode)
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(m.Ceiling-c) > 1e-9 {
			t.Errorf("over %s: ceiling %g, want %g", mode, m.Ceiling, c)
		}
	}
	for _, p := range d.ByNodes {
		if p.Nodes == 6 && (math.Abs(p.Ceiling-want["overlapped"]) > 1e-9 || math.Abs(p.CeilingNaive-want["naive"]) > 1e-9) {
			t.Errorf("by nodes: %+v", p)
		}
		if p.SpeedUp > p.Ceiling || p.SpeedUpNIC > p.Ceiling {
			t.Errorf("%d nodes gain %g, of at most %g", p.Nodes, p.SpeedUp, p.Ceiling)
		}
	}
	var text strings.Builder
	if err := d.Text(&text, ""); err != nil || strings.Count(text.String(), "1.407") < 2 || !strings.Contains(text.String(), "2.041") {
		t.Errorf("%v:\n%s", err, text.String())
	}
}

// What is not the paper's system, table or compression is not compared with its figures.
func TestPublishedOnlyForThePapersSystem(t *testing.T) {
	o := options(t, "mlp-20x2048")
	o.System.LinkGbit = 100
	if d := build(t, o); len(d.Published) != 0 {
		t.Errorf("another link: %+v", d.Published)
	}
	o = options(t, "mlp-20x2048")
	o.Codec, o.Ratio = "none", 0
	d := build(t, o)
	if len(d.Published) != 2 || len(d.Modes) != 4 || d.Ratio != 1 {
		t.Errorf("without compression: %+v, %d modes", d.Published, len(d.Modes))
	}
	o = options(t, "mlp-20x2048")
	o.System.Name, o.System.Overlapped.StepUs = "mine", 0
	if d := build(t, o); len(d.Published) != 7 || d.Published[1].Note != "" {
		t.Errorf("other software: %+v", d.Published)
	}
	if d := build(t, options(t, "resnet-50")); len(d.Published) != 0 {
		t.Errorf("another table: %+v", d.Published)
	}
}

// Every document can be written in all three ways, whatever is in it.
func TestWrittenForms(t *testing.T) {
	for _, name := range plan.Tables() {
		for _, ratio := range []float64{1, bfp} {
			o := options(t, name)
			o.Ratio, o.ByNodes, o.Batches, o.Nodes = ratio, []int{1, 32, 3, 1024}, []int{1, 64, 4096}, 32
			o.Codec = "<script>"
			o.Table.Layers[0].Name = "<script>&"
			o.System.UpdateGbytes = 50
			o.System.Compute = plan.Compute{TFLOPS: 5}
			d := build(t, o)
			var page, text bytes.Buffer
			if err := d.Page(&page); err != nil {
				t.Fatal(err)
			}
			if strings.Contains(page.String(), "<script>") {
				t.Error("a name is not escaped")
			}
			checkPlots(t, page.String(), 3)
			// On a telephone each plot and table scrolls by itself, and the page does not.
			if n := strings.Count(page.String(), "<svg") + strings.Count(page.String(), "<table"); n != strings.Count(page.String(), `<div class="wide"><`) ||
				!strings.Contains(page.String(), `<meta name="viewport"`) {
				t.Errorf("of %d plots and tables some do not scroll by themselves", n)
			}
			if err := d.Text(&text, "naive"); err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(text.String(), "\n"); n < len(o.Table.Layers)+12 {
				t.Errorf("%s: %d lines for %d layers and 12 points", name, n, len(o.Table.Layers))
			}
			b, err := json.Marshal(d)
			if err != nil {
				t.Fatal(err)
			}
			for _, key := range []string{`"by_nodes":[{"batch":1,"nodes":1,"naive_ms":`, `"speed_up_codec":`, `"timeline":[{"layer":`, `"all_reduce_ms":[`, `"tflops":5`, `"link_gbit":40`, `"exposed_ms":`} {
				if !bytes.Contains(b, []byte(key)) {
					t.Errorf("%s is not in the JSON", key)
				}
			}
			if err := d.Text(io.Discard, "tomorrow"); err == nil || !strings.Contains(err.Error(), "overlapped") {
				t.Errorf("an unknown mode: %v", err)
			}
		}
	}
}

func checkPlots(t *testing.T, page string, want int) {
	t.Helper()
	plots := strings.Split(page, "<svg")[1:]
	if len(plots) != want {
		t.Errorf("%d plots", len(plots))
	}
	for i, p := range plots {
		svg := "<svg" + p[:strings.Index(p, "</svg>")+6]
		if strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") {
			t.Errorf("plot %d has coordinates that are no numbers", i)
		}
		dec := xml.NewDecoder(strings.NewReader(svg))
		for {
			if _, err := dec.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("plot %d: %v", i, err)
			}
		}
	}
}

func TestBuildRefuses(t *testing.T) {
	for name, spoil := range map[string]func(*Options){
		"nodes":     func(o *Options) { o.Nodes = -1 },
		"by nodes":  func(o *Options) { o.ByNodes = []int{0} },
		"batch":     func(o *Options) { o.Batches = []int{448, -1} },
		"ratio":     func(o *Options) { o.Ratio = 0.5 },
		"too many":  func(o *Options) { o.ByNodes, o.Batches = make([]int, 50), make([]int, 50) },
		"system":    func(o *Options) { o.System.LinkGbit = -1 },
		"reference": func(o *Options) { o.System.Compute.Table = "none" },
	} {
		o := options(t, "mlp-20x2048")
		spoil(&o)
		if _, err := Build(o); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

func TestTick(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		most := math.Pow(10, rapid.Float64Range(-9, 9).Draw(r, "most"))
		n := rapid.IntRange(3, 12).Draw(r, "n")
		step := tick(most, n)
		if steps := most / step; !(steps <= float64(n)*(1+1e-9)) || steps < float64(n)/2.6 {
			r.Fatalf("%g steps of %g up to %g, asked for %d", steps, step, most, n)
		}
	})
}
