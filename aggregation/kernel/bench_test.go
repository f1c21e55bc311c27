package kernel

import (
	"fmt"
	"testing"

	"gradnic/internal/cpu"
)

// benchSpecs are the sums that the goals are about.
var benchSpecs = []Spec{
	{Type: Int32, Order: BigEndian},
	{Type: Int32, Order: LittleEndian},
	{Type: Float32, Order: LittleEndian},
	{Type: BFloat16, Order: LittleEndian},
	{Type: Float16, Order: LittleEndian},
	{Type: Float64, Order: LittleEndian},
	{Type: Int64, Order: LittleEndian},
	{Type: Int8},
}

// traffic is bytes read plus bytes written by one call, as a copy of n bytes reads and writes 2n.
func BenchmarkFold(b *testing.B) {
	for _, s := range benchSpecs {
		forSlot(s,
			func() { benchFold[int32](b, s) },
			func() { benchFold[int64](b, s) },
			func() { benchFold[float32](b, s) },
			func() { benchFold[float64](b, s) })
	}
}

func benchFold[A Element](b *testing.B, s Spec) {
	for _, n := range []int{256, 1 << 20} {
		for _, tier := range []cpu.Tier{cpu.Off, cpu.AVX2, cpu.AVX512} {
			b.Run(fmt.Sprintf("%v/%v/%d/%v", s.Order, s.Type, n, tier), func(b *testing.B) {
				if tier > best() {
					b.Skipf("this machine has no %v", tier)
				}
				o := testOps[A](b, s, tier)
				acc, src := make([]A, n), make([]byte, n*s.Type.Bytes())
				b.SetBytes(int64(len(src) + 2*n*slotBytes[A]()))
				for b.Loop() {
					o.Fold(acc, src)
				}
			})
		}
	}
}

func BenchmarkCopy(b *testing.B) {
	for _, n := range []int{1 << 10, 4 << 20} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			dst, src := make([]byte, n), make([]byte, n)
			b.SetBytes(int64(2 * n))
			for b.Loop() {
				copy(dst, src)
			}
		})
	}
}
