package kernel

import "math"

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
	var in [block]A
	for len(acc) > 0 {
		n := min(block, len(acc))
		decode(o.spec, in[:n], src[:n*o.size])
		flagged += combine(o, acc[:n], in[:n])
		acc, src = acc[n:], src[n*o.size:]
	}
	return flagged
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
	if kindOf[A]() <= kindInt64 {
		return 0
	}
	low, high := o.bounds.slot[0], o.bounds.slot[1]
	for i, v := range acc {
		if v-v != 0 {
			flagged++
			acc[i] = settled(v, low, high)
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
		if kindOf[A]() <= kindInt64 {
			return addIntegers(o, acc, in)
		}
		for i, v := range acc {
			acc[i] = v + in[i]
		}
	}
	return settle(o, acc)
}

func addIntegers[A Element](o *Ops[A], acc, in []A) (wrapped int) {
	if o.spec.Type == Int8 { // fits, see Int8
		for i, v := range acc {
			acc[i] = v + in[i]
		}
		return 0
	}
	low, high := o.bounds.slot[0], o.bounds.slot[1]
	for i, a := range acc {
		b := in[i]
		s := a + b
		if (s < a) != (b < 0) {
			wrapped++
			if o.spec.Policy == Saturate {
				s = high
				if b < 0 {
					s = low
				}
			}
		}
		acc[i] = s
	}
	return wrapped
}

// narrow applies the policy of the wire to values that will be encoded, and counts what does not fit.
func narrow[A Element](o *Ops[A], out []A) (flagged int) {
	low, high := o.bounds.wire[0], o.bounds.wire[1]
	switch out := any(out).(type) {
	case []int32:
		if o.spec.Type != Int8 {
			return 0
		}
		low, high := int32(low), int32(high)
		for i, v := range out {
			if v != int32(int8(v)) {
				flagged++
				out[i] = max(low, min(high, v))
			}
		}
	case []float32:
		over := float32(math.Inf(1))
		switch o.spec.Type {
		case Float16:
			over = over16
		case BFloat16:
			over = overBF16
		}
		low, high := float32(low), float32(high)
		for i, v := range out {
			if !(v < over && v > -over) {
				flagged++
				out[i] = settled(v, low, high)
			}
		}
	case []float64:
		low, high := float64(low), float64(high)
		for i, v := range out {
			if v-v != 0 {
				flagged++
				out[i] = settled(v, low, high)
			}
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
