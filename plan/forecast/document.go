package forecast

import (
	"fmt"
	"math"

	"gradnic/plan"
)

// Options say what to predict.
type Options struct {
	Table  *plan.Table
	System *plan.System
	// Nodes is the number whose iteration is shown layer by layer; 0 stands for 6.
	Nodes int
	// Batches are samples a node and iteration; the timeline has the first. None
	// stands for the table's.
	Batches []int
	// ByNodes are the numbers of nodes of the comparison; none stands for 2, 4,
	// 6, 8, 16 and 32.
	ByNodes []int
	// Codec names the compression on the wire of the ring between NICs, and
	// Ratio is how many bytes it makes one, from 1. With 1, for which 0 stands
	// too, there is no compressed mode.
	Codec string
	Ratio float64
}

// Document is what `gradnic model -j` prints. Times are in milliseconds.
type Document struct {
	Table         string      `json:"table"`
	Source        string      `json:"source"`
	Sample        string      `json:"sample"`
	Layers        int         `json:"layers"`
	Parameters    int64       `json:"parameters"`
	GradientBytes int64       `json:"gradient_bytes"`
	System        plan.System `json:"system"`
	// TFLOPS is a node's rate, in 10^12 operations a second, given or worked out
	// from a share of communication.
	TFLOPS float64 `json:"tflops"`
	Codec  string  `json:"codec"`
	Ratio  float64 `json:"ratio"`
	Nodes  int     `json:"nodes"`
	Batch  int     `json:"batch"`
	Modes  []Mode  `json:"modes"`
	// ByNodes is ordered by batch, then nodes, as they were asked for.
	ByNodes   []Scale     `json:"by_nodes"`
	Published []Published `json:"published,omitempty"`
}

// Mode is an iteration with one way to sum gradients.
type Mode struct {
	// Mode is naive, overlapped, ideal, nic or nic+CODEC.
	Mode          string  `json:"mode"`
	Iteration     float64 `json:"iteration_ms"`
	Forward       float64 `json:"forward_ms"`
	Backward      float64 `json:"backward_ms"`
	Update        float64 `json:"update_ms"`
	Communication float64 `json:"communication_ms"`
	Exposed       float64 `json:"exposed_ms"`
	// SpeedUp is the overlapped iteration's time over this one's.
	SpeedUp float64 `json:"speed_up"`
	// Ceiling is this iteration's time over that of its compute alone: the most that any NIC gains over this mode.
	Ceiling  float64 `json:"ceiling"`
	Timeline []Layer `json:"timeline"`
}

// Layer is one layer's place in time, from the start of the iteration.
type Layer struct {
	Layer     string     `json:"layer"`
	Bytes     int64      `json:"bytes"`
	Forward   [2]float64 `json:"forward_ms"`
	Backward  [2]float64 `json:"backward_ms"`
	AllReduce [2]float64 `json:"all_reduce_ms"`
	Ring      float64    `json:"ring_ms"`
	Add       float64    `json:"add_ms"`
	Host      float64    `json:"host_ms"`
	Fill      float64    `json:"fill_ms"`
	// Bound is what the all-reduce waits for: ring, add, host or nothing.
	Bound string `json:"bound"`
}

// Scale compares the ways at a batch and a number of nodes. A speed-up is a
// plain iteration's time over that with smart NICs.
type Scale struct {
	Batch int     `json:"batch"`
	Nodes int     `json:"nodes"`
	Naive float64 `json:"naive_ms"`
	Plain float64 `json:"overlapped_ms"`
	Ideal float64 `json:"ideal_ms"`
	NIC   float64 `json:"nic_ms"`
	// Compressed is the ring with the codec; as NIC without one.
	Compressed float64 `json:"nic_codec_ms"`
	// Against overlapped software; and against the fastest of the three plain
	// ways, which is the least that smart NICs gain.
	SpeedUpNIC float64 `json:"speed_up_nic"`
	SpeedUp    float64 `json:"speed_up_codec"`
	LeastNIC   float64 `json:"least_speed_up_nic"`
	Least      float64 `json:"least_speed_up_codec"`
	// The most that any NIC gains, since no iteration is shorter than its compute.
	CeilingNaive      float64 `json:"ceiling_naive"`
	Ceiling           float64 `json:"ceiling_overlapped"`
	ExposedPlain      float64 `json:"overlapped_exposed_ms"`
	ExposedCompressed float64 `json:"nic_codec_exposed_ms"`
}

// maxPoints bounds batches times numbers of nodes.
const maxPoints = 1024

// Build predicts.
func Build(o Options) (*Document, error) {
	if o.Nodes == 0 {
		o.Nodes = 6
	}
	if o.Ratio == 0 {
		o.Ratio = 1
	}
	if len(o.Batches) == 0 {
		o.Batches = []int{o.Table.Batch}
	}
	if len(o.ByNodes) == 0 {
		o.ByNodes = []int{2, 4, 6, 8, 16, 32}
	}
	if n := len(o.Batches) * len(o.ByNodes); n > maxPoints {
		return nil, fmt.Errorf("%d batches at %d numbers of nodes: at most %d points", len(o.Batches), len(o.ByNodes), maxPoints)
	}
	if err := o.System.Check(); err != nil {
		return nil, fmt.Errorf("system %s: %w", o.System.Name, err)
	}
	rate, err := o.System.Rate()
	if err != nil {
		return nil, fmt.Errorf("system %s: %w", o.System.Name, err)
	}
	t := o.Table
	d := &Document{
		Table: t.Name, Source: t.Source, Sample: t.Sample, Layers: len(t.Layers), Parameters: t.Parameters(),
		GradientBytes: t.Parameters() * int64(t.GradientBytes), System: *o.System, TFLOPS: rate / 1e12,
		Codec: o.Codec, Ratio: o.Ratio, Nodes: o.Nodes, Batch: o.Batches[0],
	}
	// The rate is known now: it need not be worked out for every point.
	s := *o.System
	s.Compute = plan.Compute{TFLOPS: d.TFLOPS}
	if err := d.addModes(&s, t); err != nil {
		return nil, err
	}
	for _, batch := range o.Batches {
		for _, nodes := range o.ByNodes {
			p, err := scale(&s, t, nodes, batch, o.Ratio)
			if err != nil {
				return nil, err
			}
			d.ByNodes = append(d.ByNodes, p)
		}
	}
	if err := d.addPublished(&s, t); err != nil {
		return nil, err
	}
	return d, nil
}

func (d *Document) addModes(s *plan.System, t *plan.Table) error {
	plain := 0.0
	least, err := s.Least(t, d.Batch)
	if err != nil {
		return err
	}
	for _, m := range []struct {
		name string
		mode plan.Mode
	}{
		{"overlapped", plan.Mode{Kind: plan.Overlapped}}, // first: the others are compared with it
		{"naive", plan.Mode{Kind: plan.Naive}},
		{"ideal", plan.Mode{Kind: plan.Ideal}},
		{"nic", plan.Mode{Kind: plan.NIC}},
		{"nic+" + d.Codec, plan.Mode{Kind: plan.NIC, Ratio: d.Ratio}},
	} {
		if m.mode.Ratio == 1 {
			continue
		}
		it, err := s.Iterate(t, d.Nodes, d.Batch, m.mode)
		if err != nil {
			return err
		}
		if m.mode.Kind == plan.Overlapped {
			plain = it.Total
		}
		d.Modes = append(d.Modes, describe(m.name, t, it, plain, least))
	}
	d.Modes[0], d.Modes[1] = d.Modes[1], d.Modes[0]
	return nil
}

func describe(name string, t *plan.Table, it *plan.Iteration, plain, least float64) Mode {
	m := Mode{Mode: name, Iteration: ms(it.Total), Forward: ms(it.Forward), Backward: ms(it.Backward), Update: ms(it.Update),
		Communication: ms(it.Communication), Exposed: ms(it.Exposed), SpeedUp: plain / it.Total, Ceiling: it.Total / least}
	for _, st := range it.Steps {
		m.Timeline = append(m.Timeline, Layer{
			Layer: st.Layer.Name, Bytes: t.Bytes(st.Layer), Forward: span(st.Forward), Backward: span(st.Backward), AllReduce: span(st.AllReduce),
			Ring: ms(st.Cost.Ring), Add: ms(st.Cost.Add), Host: ms(st.Cost.Host), Fill: ms(st.Cost.Fill), Bound: st.Cost.Bound(),
		})
	}
	return m
}

func scale(s *plan.System, t *plan.Table, nodes, batch int, ratio float64) (p Scale, err error) {
	var its [5]*plan.Iteration
	for i, m := range []plan.Mode{{Kind: plan.Naive}, {Kind: plan.Overlapped}, {Kind: plan.Ideal}, {Kind: plan.NIC}, {Kind: plan.NIC, Ratio: ratio}} {
		if its[i], err = s.Iterate(t, nodes, batch, m); err != nil {
			return p, err
		}
	}
	least, err := s.Least(t, batch)
	if err != nil {
		return p, err
	}
	naive, plain, ideal, nic, packed := its[0].Total, its[1].Total, its[2].Total, its[3].Total, its[4].Total
	best := min(naive, plain, ideal)
	return Scale{
		Batch: batch, Nodes: nodes, Naive: ms(naive), Plain: ms(plain), Ideal: ms(ideal), NIC: ms(nic), Compressed: ms(packed),
		SpeedUpNIC: plain / nic, SpeedUp: plain / packed, LeastNIC: best / nic, Least: best / packed,
		CeilingNaive: naive / least, Ceiling: plain / least,
		ExposedPlain: ms(its[1].Exposed), ExposedCompressed: ms(its[4].Exposed),
	}, nil
}

func ms(seconds float64) float64 { return seconds * 1e3 }

func span(s plan.Span) [2]float64 { return [2]float64{ms(s.Start), ms(s.End)} }

// Published is a figure of the paper beside the model's.
type Published struct {
	What  string  `json:"what"`
	Nodes int     `json:"nodes"`
	Batch int     `json:"batch"`
	Paper float64 `json:"paper"`
	// AtMost says that the paper's figure is a maximum.
	AtMost bool    `json:"at_most,omitempty"`
	Model  float64 `json:"model"`
	// Note says of the shipped system's figures which were put in: given, fitted.
	Note string `json:"note,omitempty"`
}

// addPublished compares with arXiv 2204.10943, section by section, where the
// table, the links and the compression are the paper's.
func (d *Document) addPublished(s *plan.System, t *plan.Table) error {
	if d.Table != "mlp-20x2048" || s.LinkGbit != 40 || s.HostGbit != 51.2 {
		return nil
	}
	six, err := scale(s, t, 6, 448, d.Ratio)
	if err != nil {
		return err
	}
	naive, err := s.Iterate(t, 6, 448, plan.Mode{Kind: plan.Naive})
	if err != nil {
		return err
	}
	large, err := scale(s, t, 6, 1792, d.Ratio)
	if err != nil {
		return err
	}
	many, err := scale(s, t, 32, 448, d.Ratio)
	if err != nil {
		return err
	}
	add := func(what string, nodes, batch int, paper, model float64, note string) {
		if s.Name != "paper" {
			note = ""
		}
		d.Published = append(d.Published, Published{What: what, Nodes: nodes, Batch: batch, Paper: paper, Model: model, Note: note})
	}
	add("communication's share of the naive iteration", 6, 448, 0.51, naive.Communication/naive.Total, "given")
	add("speed-up without compression", 6, 448, 1.18, six.SpeedUpNIC, "fitted")
	if math.Abs(d.Ratio-2048./544) > 0.02 {
		return nil
	}
	add("time saved with BFP", 6, 448, 0.40, 1-six.Compressed/six.Plain, "")
	add("speed-up with BFP", 6, 448, 1.6, six.SpeedUp, "")
	add("exposed communication saved with BFP", 6, 448, 0.95, 1-six.ExposedCompressed/six.ExposedPlain, "")
	add("speed-up with BFP, large batch", 6, 1792, 1.4, large.SpeedUp, "")
	d.Published[len(d.Published)-1].AtMost = true
	add("speed-up with BFP, predicted in the paper too", 32, 448, 2.5, many.SpeedUp, "")
	return nil
}
