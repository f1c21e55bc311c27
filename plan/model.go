package plan

import (
	"fmt"
	"math"
)

// AllReduce is how long one all-reduce takes, and why. Seconds.
type AllReduce struct {
	// Bytes are those counted, with padding.
	Bytes int64
	// Ring is the bytes on the link, Add those through the adders, Host those
	// between host and NIC, each at its rate. They go on at the same time.
	Ring, Add, Host float64
	// Fill is what the first and last slices of a NIC's ring, or the steps of a
	// software ring, cost besides.
	Fill float64
	// Total is the longest of the three and Fill.
	Total float64
}

// Bound names what an all-reduce waits for: ring, add, host, or nothing.
func (a AllReduce) Bound() string {
	switch {
	case a.Total == 0:
		return "nothing"
	case a.Ring >= a.Add && a.Ring >= a.Host:
		return "ring"
	case a.Host >= a.Add:
		return "host"
	}
	return "add"
}

// NICAllReduce is a ring all-reduce inside the NICs of a layer's gradients.
// ratio is how many bytes become one on the wire, from 1. One node needs none.
func (s *System) NICAllReduce(bytes int64, nodes int, ratio float64) (a AllReduce) {
	if nodes < 2 || bytes == 0 {
		return a
	}
	a.Bytes = bytes
	if s.PadBlocks {
		block := int64(nodes) * s.SliceBytes
		a.Bytes = (bytes + block - 1) / block * block
	}
	m, n := float64(a.Bytes), float64(nodes)
	wire := s.link() * ratio
	a.Ring = 2 * (n - 1) / n * m / wire
	if s.AdderGbytes > 0 {
		a.Add = (n - 1) / n * m / (s.AdderGbytes * 1e9)
	}
	a.Host = m / s.host()
	a.Fill = 2 * (n - 1) * (float64(s.SliceBytes)/wire + s.HopUs*1e-6)
	a.Total = max(a.Ring, a.Add, a.Host) + a.Fill
	return a
}

// PlainAllReduce is a ring all-reduce by the hosts over plain NICs: what goes
// over the link crosses the host's link too, each way.
func (s *System) PlainAllReduce(bytes int64, nodes int, k Software) (a AllReduce) {
	if nodes < 2 || bytes == 0 {
		return a
	}
	a.Bytes = bytes
	n := float64(nodes)
	moved := 2 * (n - 1) / n * float64(bytes)
	a.Ring = moved / (s.link() * k.LinkShare)
	a.Host = moved / s.host()
	a.Fill = 2 * (n - 1) * k.StepUs * 1e-6
	a.Total = max(a.Ring, a.Host) + a.Fill
	return a
}

// Kind says who sums the gradients.
type Kind int

const (
	// Naive is software over plain NICs after the backward pass.
	Naive Kind = iota
	// Overlapped is software over plain NICs during the backward pass, which
	// takes threads from compute.
	Overlapped
	// Ideal is Overlapped by software that fills the link and whose steps cost
	// nothing: the least that plain NICs could take, with compute as slow.
	Ideal
	// NIC is the ring inside the NICs.
	NIC
)

// Mode is how an iteration sums its gradients.
type Mode struct {
	Kind Kind
	// Ratio is the compression of Kind NIC, from 1; 0 stands for 1.
	Ratio float64
}

// Span is from when to when, in seconds from the start of the iteration.
type Span struct{ Start, End float64 }

// Length is End - Start.
func (s Span) Length() float64 { return s.End - s.Start }

// Step is what one layer does in an iteration.
type Step struct {
	Layer                        Layer
	Forward, Backward, AllReduce Span
	// Cost is the all-reduce's; AllReduce has its length. With nothing to send it
	// is empty, at the end of the backward pass.
	Cost AllReduce
}

// Iteration is one training iteration in time.
type Iteration struct {
	Nodes, Batch int
	// Steps are in the order of the forward pass.
	Steps []Step
	// Forward, Backward and Update are the compute of a node. Seconds, as all.
	Forward, Backward, Update float64
	// Communication is the sum of the all-reduces, Exposed the part of the
	// iteration in which nothing was computed.
	Communication, Exposed float64
	Total                  float64
}

// Compute is the sum of the forward pass, the backward pass and the update.
func (it *Iteration) Compute() float64 { return it.Forward + it.Backward + it.Update }

// Iterate lays out one iteration of a table at a number of nodes and a batch
// (samples a node).
func (s *System) Iterate(t *Table, nodes, batch int, m Mode) (*Iteration, error) {
	if err := s.Check(); err != nil {
		return nil, fmt.Errorf("system %s: %w", s.Name, err)
	}
	rate, err := s.Rate()
	if err != nil {
		return nil, fmt.Errorf("system %s: %w", s.Name, err)
	}
	switch {
	case nodes < 1 || nodes > maxNodes:
		return nil, fmt.Errorf("%d nodes: from 1 to %d", nodes, maxNodes)
	case batch < 1 || batch > maxBatch:
		return nil, fmt.Errorf("batch %d: from 1 to %d", batch, maxBatch)
	}
	if m.Ratio == 0 {
		m.Ratio = 1
	}
	if !(m.Ratio >= 1) || math.IsInf(m.Ratio, 0) {
		return nil, fmt.Errorf("compression ratio %g: at least 1", m.Ratio)
	}
	slow := 1.0
	if nodes > 1 && (m.Kind == Overlapped || m.Kind == Ideal) {
		slow = s.Slowdown
	}
	it := &Iteration{Nodes: nodes, Batch: batch, Steps: make([]Step, len(t.Layers))}
	now := 0.0
	for i, l := range t.Layers {
		d := l.FLOPs * float64(batch) / rate
		if l.measured() {
			d = l.ForwardMs * 1e-3 * float64(batch) / float64(t.MeasuredBatch)
		}
		it.Steps[i] = Step{Layer: l, Forward: Span{now, now + d*slow}}
		it.Forward += d * slow
		now += d * slow
	}
	for i := len(t.Layers) - 1; i >= 0; i-- {
		l := t.Layers[i]
		d := l.FLOPs * t.BackwardRatio * float64(batch) / rate
		if l.measured() {
			d = l.BackwardMs * 1e-3 * float64(batch) / float64(t.MeasuredBatch)
		}
		it.Steps[i].Backward = Span{now, now + d*slow}
		it.Backward += d * slow
		now += d * slow
		it.Update += s.update(t.Bytes(l)) * slow
	}
	// The engine is free from the start, but for the naive one, which is the
	// compute threads themselves.
	free := 0.0
	if m.Kind == Naive {
		free = now
	}
	for i := len(t.Layers) - 1; i >= 0; i-- {
		st := &it.Steps[i]
		st.Cost = s.cost(t.Bytes(st.Layer), nodes, m)
		st.AllReduce = Span{st.Backward.End, st.Backward.End}
		if st.Cost.Total > 0 {
			start := max(free, st.Backward.End)
			st.AllReduce = Span{start, start + st.Cost.Total}
			free = st.AllReduce.End
		}
		it.Communication += st.Cost.Total
	}
	end := max(now, free)
	it.Exposed = end - now
	it.Total = end + it.Update
	return it, nil
}

// Least is how long an iteration takes at least, whatever sums the gradients: its compute, with all threads and all of the
// communication hidden. Seconds. An iteration's time over this is the most that any NIC gains over it.
func (s *System) Least(t *Table, batch int) (float64, error) {
	it, err := s.Iterate(t, 1, batch, Mode{Kind: NIC})
	if err != nil {
		return 0, err
	}
	return it.Total, nil
}

func (s *System) cost(bytes int64, nodes int, m Mode) AllReduce {
	switch m.Kind {
	case Naive:
		return s.PlainAllReduce(bytes, nodes, s.Naive)
	case Overlapped:
		return s.PlainAllReduce(bytes, nodes, s.Overlapped)
	case Ideal:
		return s.PlainAllReduce(bytes, nodes, Software{LinkShare: 1})
	}
	return s.NICAllReduce(bytes, nodes, m.Ratio)
}
