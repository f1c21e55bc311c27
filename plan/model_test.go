package plan

import (
	"math"
	"testing"
)

func paper(t *testing.T) *System {
	t.Helper()
	s, err := ShippedSystem("paper")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func table(t *testing.T, name string) *Table {
	t.Helper()
	l, err := ShippedTable(name)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func iterate(t *testing.T, s *System, l *Table, nodes, batch int, m Mode) *Iteration {
	t.Helper()
	it, err := s.Iterate(l, nodes, batch, m)
	if err != nil {
		t.Fatal(err)
	}
	return it
}

func near(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if !(math.Abs(got-want) <= tolerance) {
		t.Errorf("%s: %g, want %g within %g", what, got, want, tolerance)
	}
}

// bfp is the card's 2048 bytes in 544.
const bfp = 2048. / 544

// The worked check: a layer of 16 MiB, 6 nodes, 40 Gb/s.
func TestWorkedLayer(t *testing.T) {
	s := paper(t)
	raw, packed := s.NICAllReduce(16<<20, 6, 1), s.NICAllReduce(16<<20, 6, bfp)
	near(t, "raw ms", raw.Ring*1e3, 5.59, 0.005)
	near(t, "with BFP ms", packed.Ring*1e3, 1.49, 0.006)
	near(t, "host ms", raw.Host*1e3, 2.62, 0.005)
	near(t, "adders ms", raw.Add*1e3, 1.398, 0.001)
	// Ten slices of 32 KiB at 40 Gb/s and ten hops of 1 us.
	near(t, "fill us", raw.Fill*1e6, 10*(6.5536+1), 1e-3)
	near(t, "total ms", raw.Total*1e3, 5.5924+0.0755, 1e-3)
	if raw.Bound() != "ring" || packed.Bound() != "host" {
		t.Errorf("bound by %s raw and by %s with BFP", raw.Bound(), packed.Bound())
	}
	s.AdderGbytes = 1
	if b := s.NICAllReduce(16<<20, 6, bfp).Bound(); b != "add" {
		t.Errorf("slow adders, but bound by %s", b)
	}
	s.PadBlocks = true // 86 blocks of 6 slices
	if b := s.NICAllReduce(16<<20, 6, 1).Bytes; b != 86*6*32768 {
		t.Errorf("padded to %d bytes", b)
	}
	if b := s.NICAllReduce(6*32768, 6, 1).Bytes; b != 6*32768 {
		t.Errorf("a whole block is padded to %d bytes", b)
	}
}

// published is what the paper reports, with what the model gives at the time of
// writing beside it: the first is what the system was fitted to.
func TestPublishedFigures(t *testing.T) {
	s, mlp := paper(t), table(t, "mlp-20x2048")
	naive := iterate(t, s, mlp, 6, 448, Mode{Kind: Naive})
	near(t, "share of communication", naive.Communication/naive.Total, 0.51, 1e-12)
	near(t, "naive exposes all", naive.Exposed, naive.Communication, 1e-12)
	plain := iterate(t, s, mlp, 6, 448, Mode{Kind: Overlapped})
	raw := iterate(t, s, mlp, 6, 448, Mode{Kind: NIC})
	packed := iterate(t, s, mlp, 6, 448, Mode{Kind: NIC, Ratio: bfp})
	near(t, "raw against plain (paper 1.18)", plain.Total/raw.Total, 1.18, 0.01)
	near(t, "time saved with BFP (paper 0.40)", 1-packed.Total/plain.Total, 0.40, 0.02)
	near(t, "speed-up with BFP (paper 1.6)", plain.Total/packed.Total, 1.6, 0.05)
	near(t, "exposed communication less (paper 0.95)", 1-packed.Exposed/plain.Exposed, 0.95, 0.01)
	for _, nodes := range []int{2, 3, 4, 5, 6} {
		p := iterate(t, s, mlp, nodes, 1792, Mode{Kind: Overlapped})
		b := iterate(t, s, mlp, nodes, 1792, Mode{Kind: NIC, Ratio: bfp})
		if g := p.Total / b.Total; g < 1 || g > 1.4 {
			t.Errorf("batch 1792 at %d nodes: %g, the paper has at most 1.4", nodes, g)
		}
	}
}

// At 32 nodes two explanations of the same 6 nodes part: software that pays for
// each step, and software that reaches only part of the link. The paper's 2.5
// lies between them.
func TestThirtyTwoNodesLieBetween(t *testing.T) {
	s, mlp := paper(t), table(t, "mlp-20x2048")
	gain := func(nodes int) float64 {
		return iterate(t, s, mlp, nodes, 448, Mode{Kind: Overlapped}).Total /
			iterate(t, s, mlp, nodes, 448, Mode{Kind: NIC, Ratio: bfp}).Total
	}
	step6, step32 := gain(6), gain(32)
	s.Overlapped = Software{LinkShare: 0.825}
	share6, share32 := gain(6), gain(32)
	near(t, "both explanations at 6 nodes", share6, step6, 0.01)
	if !(share32 < 2.5 && 2.5 < step32) {
		t.Errorf("2.5 is not between %g and %g", share32, step32)
	}
	near(t, "32 nodes, steps", step32, 2.93, 0.02)
	near(t, "32 nodes, share", share32, 1.82, 0.02)
	s.Overlapped = Software{LinkShare: 1}
	near(t, "32 nodes, ideal software", gain(32), 1.576, 0.01)
	// Some of each fits both.
	s.Overlapped = Software{LinkShare: 0.93, StepUs: 75}
	near(t, "6 nodes, a mixture", gain(6), step6, 0.01)
	near(t, "32 nodes, a mixture", gain(32), 2.5, 0.02)
}

// Three layers laid out by hand: compute 1 TFLOPS, link 8 Gb/s, two nodes, so
// that a megabyte takes a millisecond.
func TestTimelineByHand(t *testing.T) {
	s := &System{Name: "hand", Source: "test", LinkGbit: 8, HostGbit: 1000, Compute: Compute{TFLOPS: 1},
		Naive: Software{LinkShare: 1}, Overlapped: Software{LinkShare: 0.5, StepUs: 500}, Slowdown: 2, UpdateGbytes: 3}
	l := &Table{Name: "hand", Source: "test", Batch: 1, GradientBytes: 4, BackwardRatio: 2, Layers: []Layer{
		{Name: "a", Parameters: 250e3, FLOPs: 1e9}, // 1 ms forward, 2 ms backward, 1 ms on the link
		{Name: "b", FLOPs: 2e9},                    // nothing to send
		{Name: "c", Parameters: 2e6, FLOPs: 1e9},   // 8 ms on the link
	}}
	ms := func(v ...float64) (out []Span) {
		for i := 0; i < len(v); i += 2 {
			out = append(out, Span{v[i] / 1e3, v[i+1] / 1e3})
		}
		return out
	}
	for _, c := range []struct {
		name                            string
		mode                            Mode
		backward, reduce                []Span
		update, communication, exp, all float64
	}{
		{"naive", Mode{Kind: Naive}, ms(10, 12, 6, 10, 4, 6), ms(20, 21, 10, 10, 12, 20), 9, 9, 9, 30},
		// 16 ms and 2 steps of 0.5 ms; 2 ms and those.
		{"overlapped", Mode{Kind: Overlapped}, ms(20, 24, 12, 20, 8, 12), ms(29, 32, 20, 20, 12, 29), 18, 20, 8, 50},
		{"ideal", Mode{Kind: Ideal}, ms(20, 24, 12, 20, 8, 12), ms(24, 25, 20, 20, 12, 20), 18, 9, 1, 43},
		{"nic", Mode{Kind: NIC}, ms(10, 12, 6, 10, 4, 6), ms(14, 15, 10, 10, 6, 14), 9, 9, 3, 24},
		{"nic, 8 bytes in 1", Mode{Kind: NIC, Ratio: 8}, ms(10, 12, 6, 10, 4, 6), ms(12, 12.125, 10, 10, 6, 7), 9, 1.125, 0.125, 21.125},
	} {
		t.Run(c.name, func(t *testing.T) {
			it := iterate(t, s, l, 2, 1, c.mode)
			for i, st := range it.Steps {
				near(t, st.Layer.Name+" backward start", st.Backward.Start, c.backward[i].Start, 1e-12)
				near(t, st.Layer.Name+" backward end", st.Backward.End, c.backward[i].End, 1e-12)
				near(t, st.Layer.Name+" all-reduce start", st.AllReduce.Start, c.reduce[i].Start, 1e-12)
				near(t, st.Layer.Name+" all-reduce end", st.AllReduce.End, c.reduce[i].End, 1e-12)
			}
			near(t, "update", it.Update, c.update/1e3, 1e-12)
			near(t, "communication", it.Communication, c.communication/1e3, 1e-12)
			near(t, "exposed", it.Exposed, c.exp/1e3, 1e-12)
			near(t, "total", it.Total, c.all/1e3, 1e-12)
		})
	}
	// Times that were measured scale with the batch and need no rate.
	l.MeasuredBatch = 4
	l.Layers = []Layer{{Name: "m", Parameters: 250e3, ForwardMs: 4, BackwardMs: 12}}
	it := iterate(t, s, l, 2, 2, Mode{Kind: NIC})
	near(t, "measured forward", it.Forward, 2e-3, 1e-12)
	near(t, "measured backward", it.Backward, 6e-3, 1e-12)
	near(t, "measured total", it.Total, 10e-3, 1e-12)
}

func TestRefusals(t *testing.T) {
	mlp := table(t, "mlp-20x2048")
	for name, spoil := range map[string]func(*System) (nodes, batch int, m Mode){
		"no nodes":      func(*System) (int, int, Mode) { return 0, 1, Mode{} },
		"no batch":      func(*System) (int, int, Mode) { return 2, 0, Mode{} },
		"ratio below 1": func(*System) (int, int, Mode) { return 2, 1, Mode{Kind: NIC, Ratio: 0.5} },
		"ratio NaN":     func(*System) (int, int, Mode) { return 2, 1, Mode{Kind: NIC, Ratio: math.NaN()} },
		"no link":       func(s *System) (int, int, Mode) { s.LinkGbit = 0; return 2, 1, Mode{} },
		"two rates":     func(s *System) (int, int, Mode) { s.Compute.TFLOPS = 1; return 2, 1, Mode{} },
		"share of 1":    func(s *System) (int, int, Mode) { s.Compute.Share = 1; return 2, 1, Mode{} },
		"no such table": func(s *System) (int, int, Mode) { s.Compute.Table = "x"; return 2, 1, Mode{} },
		"long update":   func(s *System) (int, int, Mode) { s.UpdateGbytes = 1; return 2, 1, Mode{} },
		"fast slowdown": func(s *System) (int, int, Mode) { s.Slowdown = 0.9; return 2, 1, Mode{} },
		"link share":    func(s *System) (int, int, Mode) { s.Naive.LinkShare = 1.5; return 2, 1, Mode{} },
		"no slices":     func(s *System) (int, int, Mode) { s.SliceBytes, s.PadBlocks = 0, true; return 2, 1, Mode{} },
	} {
		s := paper(t)
		nodes, batch, m := spoil(s)
		if _, err := s.Iterate(mlp, nodes, batch, m); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}
