package accl

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"

	"gradnic/wire/inet"
)

// memConfig is a rank of a communicator in memory.
func memConfig(ranks, rank int) Config {
	c := Config{Rank: rank}
	for i := range ranks {
		c.Ranks = append(c.Ranks, Peer{IP: inet.Addr{10, 10, 10, byte(i + 1)}, MAC: inet.MAC{2, 0, 0, 0, 10, byte(i + 1)}})
	}
	return c
}

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

// encode and decode are the memory format of elements whose values are in x: exact for the types of up to 53 bits. An
// int64 keeps its bits in a float64's, see values.
func encode(t Type, x []float64) (b []byte) {
	for _, v := range x {
		switch t {
		case Float32:
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(v)))
		case Float16:
			b = binary.LittleEndian.AppendUint16(b, halfBits(v))
		case Float64:
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
		case Int32:
			b = binary.LittleEndian.AppendUint32(b, uint32(int32(int64(v))))
		case Int64:
			b = binary.LittleEndian.AppendUint64(b, uint64(int64(v)))
		}
	}
	return b
}

func decode(t Type, b []byte) (x []float64) {
	for i := 0; i < len(b); i += t.Size() {
		switch t {
		case Float32:
			x = append(x, float64(math.Float32frombits(binary.LittleEndian.Uint32(b[i:]))))
		case Float16:
			x = append(x, halfValue(binary.LittleEndian.Uint16(b[i:])))
		case Float64:
			x = append(x, math.Float64frombits(binary.LittleEndian.Uint64(b[i:])))
		case Int32:
			x = append(x, float64(int32(binary.LittleEndian.Uint32(b[i:]))))
		case Int64:
			x = append(x, float64(int64(binary.LittleEndian.Uint64(b[i:]))))
		}
	}
	return x
}

// combine is own op received in a type's arithmetic.
func combine(t Type, op Op, own, received float64) float64 {
	if op == Max {
		return max(own, received)
	}
	switch s := own + received; t {
	case Float16:
		return half16(s)
	case Float32:
		return float64(float32(s))
	case Int32:
		return float64(int32(int64(s)))
	default:
		return s
	}
}

// values are reproducible elements of one rank: integers and fractions whose sums round.
func values(t Type, n, rank int, seed uint64) []float64 {
	r := rand.New(rand.NewPCG(seed, uint64(rank)<<8|uint64(t)))
	x := make([]float64, n)
	for i := range x {
		switch t {
		case Int32:
			x[i] = float64(int32(r.Uint32()))
		case Int64:
			x[i] = float64(r.Int64N(1<<50) - 1<<49)
		case Float16:
			x[i] = half16(r.NormFloat64())
		case Float32:
			x[i] = float64(float32(r.NormFloat64()))
		default:
			x[i] = r.NormFloat64()
		}
	}
	return x
}

// reference is what a rank must have in Dst after a collective, from all ranks' Src. order(i) is the ranks in the order
// in which element i was combined: the first one's value, then own + received at each of the others.
func reference(c Call, ranks, rank int, src [][]float64) []float64 {
	n := c.Count
	onWire := func(v float64) float64 {
		if c.Half {
			return half16(float64(float32(v)))
		}
		return v
	}
	fold := func(at int, order []int) float64 {
		t := c.Type
		if c.Half {
			t = Float16
		}
		v := onWire(src[order[0]][at])
		for _, r := range order[1:] {
			v = combine(t, c.Op, onWire(src[r][at]), v)
		}
		return v
	}
	ring := func(first int) (order []int) {
		for i := range ranks {
			order = append(order, (first+i)%ranks)
		}
		return order
	}
	out := []float64{}
	switch c.Collective {
	case Send:
	case Recv, Bcast:
		if rank != c.Root || c.Collective == Recv {
			for _, v := range src[c.Root][:n] {
				out = append(out, onWire(v))
			}
		}
	case Scatter:
		for _, v := range src[c.Root][rank*n : (rank+1)*n] {
			if rank != c.Root {
				v = onWire(v)
			}
			out = append(out, v)
		}
	case Gather, AllGather:
		if c.Collective == Gather && rank != c.Root {
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
	case Reduce:
		if rank == c.Root {
			for i := range n {
				out = append(out, fold(i, ring(c.Root+1)))
			}
		}
	case ReduceScatter:
		for i := range n {
			out = append(out, fold(rank*n+i, ring(rank+1)))
		}
	case AllReduce:
		// Chunk i of a segment starts at rank i and ends at rank i-1.
		seg := DefaultSegment / c.Type.Size()
		seg -= seg % ranks
		for i := range n {
			begin := i / seg * seg
			bulk := (min(seg, n-begin) + ranks - 1) / ranks
			out = append(out, fold(i, ring((i-begin)/bulk)))
		}
	default:
		panic(fmt.Sprint("no reference for ", c.Collective))
	}
	return out
}
