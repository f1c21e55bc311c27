package worker

import (
	"math"

	"gradnic/codec"
)

// Check compares one worker's result with the sum of all inputs.
type Check struct {
	// Wrong is the number of elements outside of their bound.
	Wrong int `json:"wrong"`
	// First is the first of them, -1 if there is none.
	First int `json:"first"`
	// MaxAbsErr is the largest absolute error of all elements, and Bound the
	// bound of that element's block; both 0 for integers. MaxBound is the
	// largest bound of any element.
	MaxAbsErr float64 `json:"max_abs_err"`
	Bound     float64 `json:"bound"`
	MaxBound  float64 `json:"max_bound"`
}

// CheckInt32 compares got with the wrapping sum of inputs, exactly. All have the same length.
func CheckInt32(got []int32, inputs [][]int32) Check {
	c := Check{First: -1}
	for i, g := range got {
		var sum int32
		for _, in := range inputs {
			sum += in[i]
		}
		if g != sum {
			c.wrong(i)
		}
	}
	return c
}

func (c *Check) wrong(i int) {
	if c.Wrong++; c.First < 0 {
		c.First = i
	}
}

// CheckFloat32 compares got with the float64 sum of inputs, within [SumBound]
// of each element's block. elements and threads are the job's (see [Config]): they
// say where blocks begin. inputs has one array a worker, as long as got.
// An element in a block that cannot be carried counts as wrong unless got is NaN
// there. A sum above float32's range is an infinity of its sign, which is right as
// well where the bound reaches out of the range.
func CheckFloat32(got []float32, inputs [][]float32, elements, threads int) Check {
	c := Check{First: -1}
	for t := range threads {
		lo, hi := share(len(got), threads, t)
		for at := lo; at < hi; at += elements {
			c.block(got, inputs, at, min(at+elements, hi))
		}
	}
	return c
}

// infinite is where rounding to float32 gives an infinity: half a unit above the largest number.
const infinite = 0x1p128 - 0x1p103

func (c *Check) block(got []float32, inputs [][]float32, lo, hi int) {
	exp := codec.MinExponent
	for _, in := range inputs {
		e, _ := codec.MaxExponent(in[lo:hi])
		exp = max(exp, e)
	}
	if exp == codec.PoisonExponent {
		for i := lo; i < hi; i++ {
			if g := got[i]; g == g {
				c.wrong(i)
			}
		}
		return
	}
	for i := lo; i < hi; i++ {
		var sum float64
		for _, in := range inputs {
			sum += float64(in[i])
		}
		bound := SumBound(exp, len(inputs), sum)
		err := math.Abs(float64(got[i]) - sum)
		if g := float64(got[i]); math.IsInf(g, 0) && math.Copysign(1, g)*sum+bound >= infinite {
			err = 0
		}
		if !(err <= bound) { // NaN is wrong too
			c.wrong(i)
		}
		if err > c.MaxAbsErr {
			c.MaxAbsErr, c.Bound = err, bound
		}
		c.MaxBound = max(c.MaxBound, bound)
	}
}

// SumBound is the largest absolute error of one element of a float32
// all-reduce against the exact sum: half a step of the quantiser a worker, and
// half a unit in the last place for the result's own rounding to float32. exp is the
// largest exponent of the element's block over all workers (codec.MaxExponent).
func SumBound(exp int8, workers int, sum float64) float64 {
	q := codec.QuantiseErrorBound(exp, workers)
	magnitude := math.Abs(sum) + q // the value that is rounded is at most this
	ulp := math.Ldexp(1, -149)     // of the subnormals
	if magnitude > 0 {
		ulp = max(ulp, math.Ldexp(1, math.Ilogb(magnitude)-23))
	}
	// 2^-50 of the sum for adding it up in float64.
	return q + ulp/2 + magnitude*math.Ldexp(1, -50)
}
