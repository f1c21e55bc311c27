package aggregation

import (
	"fmt"
	"math"
)

// Bound writes to dst how far each element of a result of n contributions can
// be from the exact value, in either order. magnitudes[i] is the sum of the
// magnitudes of the n elements i as they were sent, that is after each worker
// rounded its values to the wire's type. It holds for results that are not
// flagged NonFinite, Saturated or Wrapped. docs/numbers.md derives it; the
// bound of a recursive sum is that of Higham, Accuracy and Stability of
// Numerical Algorithms, 2nd edition, section 4.2.
//
// It panics unless n is at least 1 and len(dst) is len(magnitudes).
func (s Spec) Bound(dst, magnitudes []float64, n int) {
	if n < 1 || len(dst) != len(magnitudes) {
		panic(fmt.Sprintf("aggregation: bound of %d elements for %d magnitudes of %d contributions", len(dst), len(magnitudes), n))
	}
	const slack = 1 + 0x1p-30 // for the rounding of this calculation
	for i, m := range magnitudes {
		dst[i] = s.slotBound(m*slack, n)
	}
	if s.Type == BFP16 {
		s.blockBounds(dst, magnitudes, n)
		return
	}
	if s.Op > Mean {
		return // one of the values that were sent, which the wire's type can hold
	}
	for i, m := range magnitudes {
		r := s.divided(m, n)*slack + dst[i]
		switch s.Type {
		case Float16:
			dst[i] += max(r*0x1p-11, 0x1p-25)
		case BFloat16:
			dst[i] += max(r*0x1p-8, 0x1p-134)
		}
	}
}

// slotBound is the error in the slot, before the result is encoded.
func (s Spec) slotBound(magnitude float64, n int) float64 {
	if s.Op > Mean {
		return 0
	}
	unit, tiny := 0x1p-24, math.SmallestNonzeroFloat32
	switch s.Type {
	case Int32, Int64, Int8:
		if s.Op == Mean {
			return 0.5
		}
		return 0
	case Float64:
		unit, tiny = 0x1p-53, math.SmallestNonzeroFloat64
	}
	k := float64(n-1) * unit
	e := k / (1 - k) * magnitude
	if s.Op == Mean {
		// The quotient is rounded once more, and only there can underflow lose
		// something: half of the smallest number, rounded up to a whole one.
		e = (e+unit*(magnitude+e))/float64(n) + tiny
	}
	return e
}

func (s Spec) divided(magnitude float64, n int) float64 {
	if s.Op == Mean {
		return magnitude / float64(n)
	}
	return magnitude
}

// blockBounds adds the error of encoding, which depends on the largest element
// of the block.
func (s Spec) blockBounds(dst, magnitudes []float64, n int) {
	for i := 0; i < len(dst); i += bfp16Block {
		end := min(i+bfp16Block, len(dst))
		largest := 0.0
		for j := i; j < end; j++ {
			largest = max(largest, s.divided(magnitudes[j], n)*(1+0x1p-30)+dst[j])
		}
		for j := i; j < end; j++ {
			dst[j] += max(largest*0x1p-7, 0x1p-127)
		}
	}
}
