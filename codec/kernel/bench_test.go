package kernel

import "testing"

// The kernels that the benchmarks of the codecs do not show by themselves.
func BenchmarkKernels(b *testing.B) {
	const n = 8192
	r := newRand(1)
	x, y := make([]float32, n), make([]byte, n)
	for i := range x {
		x[i] = float32(r.norm())
	}
	u, q := make([]uint32, n), make([]int32, n)
	z := make([]byte, n/BFPBlock)
	p := Philox{Key: [2]uint32{1, 2}}
	k := NewTable([16]uint8{0, 3, 5, 7, 9, 11, 13, 14, 16, 17, 19, 21, 23, 25, 27, 30}, 2.15)
	for _, c := range []struct {
		name string
		f    func()
	}{
		{"philox", func() { p.Fill(u) }},
		{"stochastic", func() { StochasticInt8(y, x, 20, &p) }},
		{"round table", func() { RoundTable(y[:n/2], x, 1, &k, &p) }},
		{"add table", func() { AddTable(y, y[:n/2], &k) }},
		{"sum of squares", func() { SumSquares(x) }},
		{"maximum", func() { MaxAbs(x) }},
		{"hadamard", func() {
			for i := 0; i < n; i += HadamardBlock {
				Hadamard(x[i : i+HadamardBlock])
			}
		}},
		{"flip signs", func() { FlipSigns(x, &p) }},
		{"quantise", func() { QuantiseInt32(q, x, 1e6, 1e8) }},
		{"dequantise", func() { DequantiseInt32(x, q, 1e-6) }},
		{"bfp16 decode", func() { DecodeBlocks(BFP16, x, y[:n], z) }},
		{"bfp16 decode and add", func() { AddBlocks(BFP16, x, y[:n], z) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(4 * n)
			for b.Loop() {
				c.f()
			}
		})
	}
}
