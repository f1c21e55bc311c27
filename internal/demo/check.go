package demo

import (
	"math"

	"gradnic/codec"
)

// checker knows what the sum of some workers' arrays must be, and how far off each element may lie.
type checker struct {
	sum      []float64
	bound    []float64 // of each element
	maxBound float64
}

// newChecker takes the workers' arrays, all of one length, and the number of elements a packet carries: elements that
// travel in one packet share an exponent, and with it the quantiser's step.
//
// An element's error is at most half a step for each worker (codec.QuantiseErrorBound, with the exponent that is the
// largest of the workers' for the block), and half a unit in the last place of the float32 that the result is rounded to.
func newChecker(arrays [][]float32, packet int) *checker {
	n := len(arrays[0])
	c := &checker{sum: make([]float64, n), bound: make([]float64, n)}
	for _, a := range arrays {
		for i, v := range a {
			c.sum[i] += float64(v)
		}
	}
	for lo := 0; lo < n; lo += packet {
		hi := min(lo+packet, n)
		exp := codec.MinExponent
		for _, a := range arrays {
			e, _ := codec.MaxExponent(a[lo:hi])
			exp = max(exp, e)
		}
		quantiser := codec.QuantiseErrorBound(exp, len(arrays))
		for i := lo; i < hi; i++ {
			c.bound[i] = quantiser + halfULP(math.Abs(c.sum[i])+quantiser)
			c.maxBound = max(c.maxBound, c.bound[i])
		}
	}
	return c
}

// halfULP returns half the distance of float32 values around v.
func halfULP(v float64) float64 {
	_, exp := math.Frexp(v)                 // v in [2^(exp-1), 2^exp)
	return math.Ldexp(1, max(exp, -125)-25) // 24 bits of significand; below 2^-126 the distance stays 2^-149
}

// check counts the elements of a result that are out of bound, and returns the largest error of all. What is not a number
// is out of every bound, with the largest error that JSON can hold.
func (c *checker) check(result []float32) (wrong int, maxErr float64) {
	if len(result) != len(c.sum) {
		return len(c.sum), math.MaxFloat64
	}
	for i, v := range result {
		err := math.Abs(float64(v) - c.sum[i])
		if math.IsNaN(err) || math.IsInf(err, 0) {
			err = math.MaxFloat64
		}
		if err > c.bound[i] {
			wrong++
		}
		maxErr = max(maxErr, err)
	}
	return wrong, maxErr
}

// differing counts the elements of two results that differ in any bit. Workers get the same integers and the same
// exponents, so their results must be the same.
func differing(a, b []float32) (n int) {
	for i := range a {
		if math.Float32bits(a[i]) != math.Float32bits(b[i]) {
			n++
		}
	}
	return n
}
