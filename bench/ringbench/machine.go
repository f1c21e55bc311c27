package ringbench

import (
	"cmp"
	"slices"
	"time"

	"gradnic/aggregation/kernel"
	"gradnic/codec"
)

func sortPoints(p []Point) {
	slices.SortFunc(p, func(a, b Point) int { return cmp.Or(cmp.Compare(a.What, b.What), cmp.Compare(a.Bytes, b.Bytes)) })
}

// perSecond runs f again and again for a while and returns how much a second it does; once is how much it does.
func perSecond(once float64, f func()) float64 {
	f()
	start := time.Now()
	n := 0
	for time.Since(start) < 100*time.Millisecond {
		f()
		n++
	}
	return float64(n) * once / time.Since(start).Seconds()
}

// measureFLOPs is the operations a second of a matrix product in plain Go, on one CPU: what this machine would compute a
// model with when nothing better is there. Frameworks and accelerators have their own figures.
func measureFLOPs() float64 {
	const n = 192
	var a, b, c [n * n]float32
	for i := range a {
		a[i], b[i] = float32(i%7), float32(i%5)
	}
	return perSecond(2*n*n*n, func() {
		for i := range n {
			row := c[i*n : (i+1)*n]
			for k := range n {
				x := a[i*n+k]
				for j, y := range b[k*n : (k+1)*n] {
					row[j] += x * y
				}
			}
		}
	})
}

// measureAdder is the float32 bytes a second that one lane decodes, adds and encodes.
func measureAdder(c codec.Codec) float64 {
	const n = 8192
	in, acc := make([]float32, n), make([]float32, n)
	wire := make([]byte, c.MaxEncoded(n))
	sum, err := kernel.ForValues(kernel.Sum, kernel.Propagate)
	if err != nil {
		panic(err) // the sum of float32 exists
	}
	return perSecond(4*n, func() {
		_, _ = c.Encode(wire, acc, nil)
		_ = c.Decode(in, wire, nil)
		sum.Fold(acc, kernel.Bytes(in))
	})
}

// measureCopy is the bytes a second that a host's buffer is read or written with.
func measureCopy() float64 {
	a, b := make([]float32, 1<<20), make([]float32, 1<<20)
	return perSecond(4<<20, func() { copy(a, b) })
}
