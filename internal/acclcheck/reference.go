// Package acclcheck says what a collective of ACCL must give: reproducible elements for every rank, and the result that
// each must have, computed from the documentation's rules by plain arithmetic. It shares nothing with the loops and the
// schedules that it judges.
package acclcheck

import (
	"encoding/binary"
	"math"
	"math/rand/v2"

	"gradnic/worker/accl"
)

// half16 rounds to float16 by arithmetic: nothing is shared with the loops that it judges.
func half16(v float64) float64 {
	a := math.Abs(v)
	if a == 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return v
	}
	_, e := math.Frexp(a) // a = f * 2^e, 0.5 <= f < 1
	ulp := math.Ldexp(1, max(e-11, -24))
	r := math.RoundToEven(a/ulp) * ulp
	if r > 65504 {
		r = math.Inf(1)
	}
	return math.Copysign(r, v)
}

func halfBits(v float64) uint16 {
	a := math.Abs(v)
	var bits uint16
	switch {
	case math.IsNaN(v):
		return 0x7e00
	case math.IsInf(a, 1):
		bits = 0x7c00
	case a >= 0x1p-14:
		f, e := math.Frexp(a)
		bits = uint16(e+14)<<10 + uint16(f*2048) - 1024
	default:
		bits = uint16(a * 0x1p24)
	}
	if math.Signbit(v) {
		bits |= 0x8000
	}
	return bits
}

func halfValue(b uint16) float64 {
	e, m := int(b>>10&31), float64(b&1023)
	var v float64
	switch e {
	case 0:
		v = m * 0x1p-24
	case 31:
		v = math.Inf(1)
		if m != 0 {
			return math.NaN()
		}
	default:
		v = math.Ldexp(1024+m, e-25)
	}
	if b&0x8000 != 0 {
		v = -v
	}
	return v
}

// Encode is the memory format of elements with these values, each of which the type must have: int64 up to 53 bits.
func Encode(t accl.Type, x []float64) (b []byte) {
	for _, v := range x {
		switch t {
		case accl.Float32:
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(v)))
		case accl.Float16:
			b = binary.LittleEndian.AppendUint16(b, halfBits(v))
		case accl.Float64:
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
		case accl.Int32:
			b = binary.LittleEndian.AppendUint32(b, uint32(int32(int64(v))))
		case accl.Int64:
			b = binary.LittleEndian.AppendUint64(b, uint64(int64(v)))
		}
	}
	return b
}

// Decode is the inverse of Encode.
func Decode(t accl.Type, b []byte) (x []float64) {
	for i := 0; i < len(b); i += t.Size() {
		switch t {
		case accl.Float32:
			x = append(x, float64(math.Float32frombits(binary.LittleEndian.Uint32(b[i:]))))
		case accl.Float16:
			x = append(x, halfValue(binary.LittleEndian.Uint16(b[i:])))
		case accl.Float64:
			x = append(x, math.Float64frombits(binary.LittleEndian.Uint64(b[i:])))
		case accl.Int32:
			x = append(x, float64(int32(binary.LittleEndian.Uint32(b[i:]))))
		case accl.Int64:
			x = append(x, float64(int64(binary.LittleEndian.Uint64(b[i:]))))
		}
	}
	return x
}

// combine is own op received in a type's arithmetic.
func combine(t accl.Type, op accl.Op, own, received float64) float64 {
	if op == accl.Max {
		return max(own, received)
	}
	switch s := own + received; t {
	case accl.Float16:
		return half16(s)
	case accl.Float32:
		return float64(float32(s))
	case accl.Int32:
		return float64(int32(int64(s)))
	default:
		return s
	}
}

// Values are n reproducible elements of one rank, whose sums round, or wrap.
func Values(t accl.Type, n, rank int, seed uint64) []float64 {
	r := rand.New(rand.NewPCG(seed, uint64(rank)<<8|uint64(t)))
	x := make([]float64, n)
	for i := range x {
		switch t {
		case accl.Int32:
			x[i] = float64(int32(r.Uint32()))
		case accl.Int64:
			x[i] = float64(r.Int64N(1<<48) - 1<<47) // 16 of them keep within 53 bits
		case accl.Float16:
			x[i] = half16(r.NormFloat64())
		case accl.Float32:
			x[i] = float64(float32(r.NormFloat64()))
		default:
			x[i] = r.NormFloat64()
		}
	}
	return x
}

// Reference is what a rank must have in Dst after a collective, from the values that all ranks have in Src. segment is
// the communicator's segment in bytes: an allreduce starts a ring anew in each, and the order of additions with it.
func Reference(c accl.Call, ranks, rank, segment int, src [][]float64) (out []float64) {
	n := c.Count
	onWire := func(v float64) float64 {
		if c.Half {
			return half16(v)
		}
		return v
	}
	t := c.Type
	if c.Half {
		t = accl.Float16
	}
	// fold is element at after its way around the ring: from the first rank on, own + received at each of the others.
	fold := func(at, first int) float64 {
		if ranks == 1 {
			return src[0][at] // a copy: nothing is on the wire
		}
		v := onWire(src[first%ranks][at])
		for i := 1; i < ranks; i++ {
			v = combine(t, c.Op, onWire(src[(first+i)%ranks][at]), v)
		}
		return v
	}
	switch c.Collective {
	case accl.Recv, accl.Bcast:
		if rank != c.Root || c.Collective == accl.Recv {
			for _, v := range src[c.Root][:n] {
				out = append(out, onWire(v))
			}
		}
	case accl.Scatter:
		for _, v := range src[c.Root][rank*n : (rank+1)*n] {
			if rank != c.Root {
				v = onWire(v)
			}
			out = append(out, v)
		}
	case accl.Gather, accl.AllGather:
		if c.Collective == accl.Gather && rank != c.Root {
			break
		}
		for r := range ranks {
			for _, v := range src[r][:n] {
				if r != rank {
					v = onWire(v)
				}
				out = append(out, v)
			}
		}
	case accl.Reduce:
		if rank == c.Root {
			for i := range n {
				out = append(out, fold(i, c.Root+1))
			}
		}
	case accl.ReduceScatter:
		for i := range n {
			out = append(out, fold(rank*n+i, rank+1))
		}
	case accl.AllReduce:
		// Chunk i of a segment starts at rank i and ends at rank i-1.
		whole := segment / c.Type.Size()
		whole -= whole % ranks
		for i := range n {
			begin := i / whole * whole
			bulk := (min(whole, n-begin) + ranks - 1) / ranks
			out = append(out, fold(i, (i-begin)/bulk))
		}
	}
	return out
}
