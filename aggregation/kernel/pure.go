package kernel

import (
	"encoding/binary"
	"math"
)

// This file is the arithmetic in Go: the twin that the assembly must equal bit for bit, and all there is on machines
// without it. It works on blocks: decode from the wire, fold, encode, each a tight loop, because a loop that chose
// format and operation for each element would cost far more than a block's second pass over the first cache.

// block is how many elements are decoded at a time.
const block = 128

func setGo[A Element](o *Ops[A], acc []A, src []byte) int {
	decode(o.spec, acc, src)
	return settle(o, acc)
}

func foldGo[A Element](o *Ops[A], acc []A, src []byte) (flagged int) {
	if o.spec == (Spec{}) {
		return addInt32BE(any(acc).([]int32), src)
	}
	var in [block]A
	for len(acc) > 0 {
		n := min(block, len(acc))
		decode(o.spec, in[:n], src[:n*o.size])
		flagged += combine(o, acc[:n], in[:n])
		acc, src = acc[n:], src[n*o.size:]
	}
	return flagged
}

// addInt32BE is what SwitchML spends its time in on machines without assembly: not in blocks, for speed.
func addInt32BE(acc []int32, src []byte) (wrapped int) {
	for i, a := range acc {
		b := int32(binary.BigEndian.Uint32(src[4*i : 4*i+4]))
		s := a + b
		wrapped += int(uint32((a^s)&(b^s)) >> 31)
		acc[i] = s
	}
	return wrapped
}

func putGo[A Element](o *Ops[A], dst []byte, acc []A) (flagged int) {
	var out [block]A
	for len(acc) > 0 {
		n := min(block, len(acc))
		copy(out[:n], acc)
		flagged += narrow(o, out[:n])
		encode(o.spec, dst[:n*o.size], out[:n])
		acc, dst = acc[n:], dst[n*o.size:]
	}
	return flagged
}

func foldPutGo[A Element](o *Ops[A], dst []byte, acc []A, src []byte) (flagged int) {
	var buf [block]A
	for len(acc) > 0 {
		n := min(block, len(acc))
		decode(o.spec, buf[:n], src[:n*o.size])
		folded := combine(o, acc[:n], buf[:n])
		copy(buf[:n], acc)
		// What the fold flagged the wire flags again, unless it was brought into the slot's range before, which is the
		// wire's too: then the fold's count is the whole.
		narrowed := narrow(o, buf[:n])
		flagged += max(folded, narrowed)
		encode(o.spec, dst[:n*o.size], buf[:n])
		acc, src, dst = acc[n:], src[n*o.size:], dst[n*o.size:]
	}
	return flagged
}

// settle applies the policy to a slot's floats: it counts infinities and NaN, makes every NaN the same, and clamps.
func settle[A Element](o *Ops[A], acc []A) (flagged int) {
	switch acc := any(acc).(type) {
	case []float32:
		return settle32(acc, infinity32, float32(o.bounds.slot[0]), float32(o.bounds.slot[1]))
	case []float64:
		return settle64(acc, float64(o.bounds.slot[0]), float64(o.bounds.slot[1]))
	}
	return 0
}

// settle32 flags magnitudes whose bits are not below over, which holds for every NaN. Comparing bits is faster than
// comparing floats, which takes a branch more for NaN.
func settle32(vs []float32, over uint32, low, high float32) (flagged int) {
	for i, v := range vs {
		if math.Float32bits(v)&^(1<<31) >= over {
			flagged++
			vs[i] = settled(v, low, high)
		}
	}
	return flagged
}

func settle64(vs []float64, low, high float64) (flagged int) {
	for i, v := range vs {
		if math.Float64bits(v)&^(1<<63) >= infinity64 {
			flagged++
			vs[i] = settled(v, low, high)
		}
	}
	return flagged
}

// settled is the value for a float that does not fit between low and high.
func settled[A Element](v, low, high A) A {
	if v != v {
		return canonicalNaN[A]()
	}
	return max(low, min(high, v))
}

func canonicalNaN[A Element]() (nan A) {
	switch p := any(&nan).(type) {
	case *float32:
		*p = math.Float32frombits(nan32)
	case *float64:
		*p = math.Float64frombits(nan64)
	}
	return nan
}

// combine folds in into acc and applies the policy of the slot.
func combine[A Element](o *Ops[A], acc, in []A) (flagged int) {
	in = in[:len(acc)]
	switch o.spec.Op {
	case Min:
		for i, v := range acc {
			acc[i] = min(v, in[i])
		}
	case Max:
		for i, v := range acc {
			acc[i] = max(v, in[i])
		}
	case Sum:
		switch acc := any(acc).(type) {
		case []int32:
			if o.spec.Type != Int8 { // whose sums fit: see Int8
				return addIntegers(acc, any(in).([]int32), o.spec.Policy)
			}
		case []int64:
			return addIntegers(acc, any(in).([]int64), o.spec.Policy)
		}
		for i, v := range acc {
			acc[i] = v + in[i]
		}
	}
	return settle(o, acc)
}

func addIntegers[T int32 | int64](acc, in []T, policy Policy) (wrapped int) {
	in = in[:len(acc)]
	for i, a := range acc {
		b := in[i]
		s := a + b
		acc[i] = s
		if (a^s)&(b^s) < 0 { // both differ in sign from the sum
			wrapped++
			if policy == Saturate {
				acc[i] = bound(b)
			}
		}
	}
	return wrapped
}

// bound is the largest or, for a negative v, the smallest value of its type.
func bound[T int32 | int64](v T) T {
	switch p := any(&v).(type) {
	case *int32:
		*p = math.MaxInt32 ^ *p>>31
	case *int64:
		*p = math.MaxInt64 ^ *p>>63
	}
	return v
}

// narrow applies the policy of the wire to values that will be encoded, and counts what does not fit.
func narrow[A Element](o *Ops[A], out []A) (flagged int) {
	low, high := o.bounds.wire[0], o.bounds.wire[1]
	switch out := any(out).(type) {
	case []int32:
		if o.spec.Type == Int8 {
			return narrowInt8(out, int32(low), int32(high))
		}
	case []float32:
		over := infinity32
		switch o.spec.Type {
		case Float16:
			over = overFloat16
		case BFloat16:
			over = overBFloat16
		}
		return settle32(out, over, float32(low), float32(high))
	case []float64:
		return settle64(out, float64(low), float64(high))
	}
	return 0
}

func narrowInt8(vs []int32, low, high int32) (flagged int) {
	for i, v := range vs {
		if v != int32(int8(v)) {
			flagged++
			vs[i] = max(low, min(high, v))
		}
	}
	return flagged
}

// divideGo rounds to nearest, ties to even.
func divideGo[A Element](acc []A, n int) {
	switch acc := any(acc).(type) {
	case []int32:
		for i, v := range acc {
			acc[i] = int32(divideEven(int64(v), int64(n)))
		}
	case []int64:
		for i, v := range acc {
			acc[i] = divideEven(v, int64(n))
		}
	case []float32:
		for i := range acc {
			acc[i] /= float32(n)
		}
	case []float64:
		for i := range acc {
			acc[i] /= float64(n)
		}
	}
}

func divideEven(v, n int64) int64 {
	q, r := v/n, v%n
	step := int64(1)
	if v < 0 {
		step, r = -1, -r
	}
	// r > n-r is 2r > n without overflow.
	if r > n-r || r == n-r && q&1 != 0 {
		q += step
	}
	return q
}

// peakGo is the largest magnitude of acc and of what bits hold, compared as integers: finite, infinity, NaN.
func peakGo(bits uint32, acc []float32) float32 {
	for _, v := range acc {
		bits = max(bits, math.Float32bits(v)&^(1<<31))
	}
	return math.Float32frombits(bits)
}
