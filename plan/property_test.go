package plan

import (
	"testing"

	"pgregory.net/rapid"
)

// anySystem draws a system that computes with a given rate: a share would tie
// compute to the link.
func anySystem(r *rapid.T) *System {
	f := func(lo, hi float64, name string) float64 { return rapid.Float64Range(lo, hi).Draw(r, name) }
	return &System{
		Name: "any", Source: "drawn", LinkGbit: f(0.1, 800, "link"), HostGbit: f(0.1, 800, "host"), AdderGbytes: f(0.1, 100, "adder"),
		SliceBytes: rapid.Int64Range(64, 1<<20).Draw(r, "slice"), HopUs: f(0, 100, "hop"), UpdateGbytes: f(0, 100, "update"),
		Compute: Compute{TFLOPS: f(0.01, 1000, "tflops")}, Slowdown: f(1, 2, "slowdown"),
		Naive:      Software{LinkShare: f(0.1, 1, "naive share"), StepUs: f(0, 1000, "naive step")},
		Overlapped: Software{LinkShare: f(0.1, 1, "share"), StepUs: f(0, 1000, "step")},
	}
}

func anyTable(r *rapid.T) *Table {
	t := &Table{Name: "any", Source: "drawn", Batch: 1, GradientBytes: rapid.IntRange(1, 8).Draw(r, "bytes"),
		BackwardRatio: rapid.Float64Range(0.5, 3).Draw(r, "backward"), MeasuredBatch: 8}
	for range rapid.IntRange(1, 12).Draw(r, "layers") {
		l := Layer{Name: "l", Parameters: rapid.Int64Range(0, 1<<24).Draw(r, "parameters")}
		if rapid.Bool().Draw(r, "measured") {
			l.ForwardMs, l.BackwardMs = rapid.Float64Range(0.01, 9).Draw(r, "fwd"), rapid.Float64Range(0.01, 9).Draw(r, "bwd")
		} else {
			l.FLOPs = rapid.Float64Range(0, 1e10).Draw(r, "flops")
		}
		t.Layers = append(t.Layers, l)
	}
	return t
}

func anyMode(r *rapid.T) Mode {
	return Mode{Kind: Kind(rapid.IntRange(int(Naive), int(NIC)).Draw(r, "kind")), Ratio: rapid.Float64Range(1, 50).Draw(r, "ratio")}
}

func must(r *rapid.T, s *System, l *Table, nodes, batch int, m Mode) *Iteration {
	it, err := s.Iterate(l, nodes, batch, m)
	if err != nil {
		r.Fatal(err)
	}
	return it
}

// atMost allows for rounding.
func atMost(r *rapid.T, what string, a, b float64) {
	if !(a <= b*(1+1e-9)+1e-12) {
		r.Fatalf("%s: %g above %g", what, a, b)
	}
}

// same allows for rounding: of the times themselves, not of the small differences between late ones.
func same(r *rapid.T, what string, a, b float64) {
	atMost(r, what, a, b)
	atMost(r, what, b, a)
}

// The engine does one all-reduce at a time, none before its gradients are
// there, and the iteration lies between its bounds.
func TestIterationBounds(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		s, l, m := anySystem(r), anyTable(r), anyMode(r)
		nodes, batch := rapid.IntRange(1, 200).Draw(r, "nodes"), rapid.IntRange(1, 4096).Draw(r, "batch")
		s.PadBlocks = rapid.Bool().Draw(r, "pad")
		it := must(r, s, l, nodes, batch, m)
		if it.Exposed < 0 {
			r.Fatalf("exposed %g", it.Exposed)
		}
		atMost(r, "compute below the iteration", it.Compute(), it.Total)
		atMost(r, "the iteration below compute and communication", it.Total, it.Compute()+it.Communication)
		atMost(r, "exposed below communication", it.Exposed, it.Communication)
		if m.Kind == Naive {
			atMost(r, "naive hides nothing", it.Communication, it.Exposed)
		}
		least, err := s.Least(l, batch)
		if err != nil {
			r.Fatal(err)
		}
		atMost(r, "least below the iteration", least, it.Total)
		if nodes == 1 && it.Communication != 0 {
			r.Fatalf("one node communicates for %g", it.Communication)
		}
		free, last := 0.0, it.Forward
		for i := len(it.Steps) - 1; i >= 0; i-- {
			st := it.Steps[i]
			same(r, "backward passes in a row", st.Backward.Start, last)
			last = st.Backward.End
			if st.Cost.Total == 0 {
				continue
			}
			atMost(r, "gradients first", st.Backward.End, st.AllReduce.Start)
			atMost(r, "one engine", free, st.AllReduce.Start)
			same(r, "as long as it costs", st.AllReduce.End, st.AllReduce.Start+st.Cost.Total)
			free = st.AllReduce.End
			// All later all-reduces wait for this one's gradients.
			atMost(r, "first gradients and all that follows", st.Backward.End, it.Total)
		}
	})
}

// Faster links, hosts, adders and computers, fewer nodes and more compression
// never make an iteration longer; nor does leaving out a node's own threads.
func TestMonotone(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		s, l, m := anySystem(r), anyTable(r), anyMode(r)
		nodes, batch := rapid.IntRange(1, 100).Draw(r, "nodes"), rapid.IntRange(1, 512).Draw(r, "batch")
		base := must(r, s, l, nodes, batch, m)
		more := rapid.Float64Range(1, 10).Draw(r, "more")
		for what, change := range map[string]func(*System){
			"link":    func(s *System) { s.LinkGbit *= more },
			"host":    func(s *System) { s.HostGbit *= more },
			"adders":  func(s *System) { s.AdderGbytes *= more },
			"free":    func(s *System) { s.AdderGbytes = 0 },
			"compute": func(s *System) { s.Compute.TFLOPS *= more },
			"hop":     func(s *System) { s.HopUs /= more },
		} {
			faster := *s
			change(&faster)
			it := must(r, &faster, l, nodes, batch, m)
			atMost(r, "iteration with more "+what, it.Total, base.Total)
			atMost(r, "communication with more "+what, it.Communication, base.Communication)
		}
		fewer := rapid.IntRange(1, nodes).Draw(r, "fewer")
		atMost(r, "iteration with fewer nodes", must(r, s, l, fewer, batch, m).Total, base.Total)
		atMost(r, "iteration with a smaller batch", must(r, s, l, nodes, max(1, batch/2), m).Total, base.Total)
		packed := m
		packed.Ratio *= more
		atMost(r, "iteration with more compression", must(r, s, l, nodes, batch, packed).Total, base.Total)
		atMost(r, "ideal software", must(r, s, l, nodes, batch, Mode{Kind: Ideal}).Total, must(r, s, l, nodes, batch, Mode{Kind: Overlapped}).Total)
	})
}

// With links, hosts and adders that are very fast nothing is left but compute;
// with compute that is very fast nothing but communication; and with ever more
// nodes a ring takes twice the bytes over the link, and its steps.
func TestLimits(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		s, l := anySystem(r), anyTable(r)
		nodes := rapid.IntRange(2, 100).Draw(r, "nodes")
		fast := *s
		fast.LinkGbit, fast.HostGbit, fast.AdderGbytes, fast.HopUs = 1e15, 1e15, 0, 0
		it := must(r, &fast, l, nodes, 8, Mode{Kind: NIC})
		atMost(r, "exposed on fast links", it.Exposed, 1e-6)
		// A ratio cannot save the host's link.
		packed := s.NICAllReduce(1<<24, nodes, 1e12)
		atMost(r, "the host's link", packed.Host, packed.Total)
		atMost(r, "no more than host, adders and hops", packed.Total, max(packed.Host, packed.Add)+2*float64(nodes)*s.HopUs*1e-6+1e-9)

		quick := *s
		quick.Compute.TFLOPS, quick.UpdateGbytes = 1e15, 0
		flops := *l
		flops.Layers = nil
		for _, layer := range l.Layers {
			layer.ForwardMs, layer.BackwardMs, layer.FLOPs = 0, 0, 1
			flops.Layers = append(flops.Layers, layer)
		}
		it = must(r, &quick, &flops, nodes, 8, Mode{Kind: NIC})
		atMost(r, "all is exposed", it.Communication, it.Exposed+1e-9)

		bytes := rapid.Int64Range(1, 1<<30).Draw(r, "size")
		many := s.NICAllReduce(bytes, maxNodes, 1)
		both := 2 * float64(bytes) / s.link()
		atMost(r, "a ring's bytes", many.Ring, both)
		atMost(r, "nearly twice", both*(1-2./maxNodes), many.Ring)
	})
}
