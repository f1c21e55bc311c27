package codec

import "testing"

func BenchmarkCodecs(b *testing.B) {
	for _, n := range []int{256, 1 << 20} {
		x := gaussian(n, 1e-3, 1)
		for _, c := range All() {
			st := state(c, n)
			buf, y := make([]byte, c.MaxEncoded(n)), make([]float32, n)
			name := c.Info().Name
			size := map[int]string{256: "256", 1 << 20: "1Mi"}[n]
			var k int
			b.Run(name+"/encode/"+size, func(b *testing.B) {
				b.SetBytes(int64(4 * n))
				b.ReportAllocs()
				for b.Loop() {
					k, _ = c.Encode(buf, x, st)
				}
			})
			k, _ = c.Encode(buf, x, st)
			b.Run(name+"/decode/"+size, func(b *testing.B) {
				b.SetBytes(int64(4 * n))
				b.ReportAllocs()
				for b.Loop() {
					if err := c.Decode(y, buf[:k], st); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		b.Run("copy/"+map[int]string{256: "256", 1 << 20: "1Mi"}[n], func(b *testing.B) {
			y := make([]float32, n)
			b.SetBytes(int64(4 * n))
			for b.Loop() {
				copy(y, x)
			}
		})
	}
}

func BenchmarkSwitchML(b *testing.B) {
	x := gaussian(256, 1e-3, 1)
	q, y := make([]int32, 256), make([]float32, 256)
	e, _ := MaxExponent(x)
	for name, f := range map[string]func(){
		"exponent":   func() { MaxExponent(x) },
		"quantise":   func() { Quantise(q, x, e, 8) },
		"dequantise": func() { Dequantise(y, q, e, 8) },
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(1024)
			b.ReportAllocs()
			for b.Loop() {
				f()
			}
		})
	}
}
