package worker

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"gradnic/codec"
)

// payload is what the packets of one job slice carry. fill writes packet k's
// values (4 bytes an element, all of them) and gives its exponents; drain takes
// the result of packet k. fill(k) is called once, and before drain(k); both in
// any order of k that the window allows.
type payload interface {
	fill(k int, values []byte) (e0, e1 int8)
	drain(k int, e0, e1 int8, values []byte)
}

// blocksOf is the number of packets that n elements need.
func blocksOf(n, elements int) int { return (n + elements - 1) / elements }

// int32Payload carries block k in packet k, big endian. dst and src may be the same.
type int32Payload struct {
	elements int
	dst, src []int32
}

func (p *int32Payload) fill(k int, values []byte) (int8, int8) {
	at := k * p.elements
	n := min(p.elements, len(p.src)-at)
	putInt32(values, p.src[at:at+n])
	return 0, 0
}

func (p *int32Payload) drain(k int, _, _ int8, values []byte) {
	at := k * p.elements
	getInt32(p.dst[at:min(at+p.elements, len(p.dst))], values)
}

// putInt32 writes v big endian and zeros after it: a tail is padded, so that
// nothing of an older packet goes out again.
func putInt32(b []byte, v []int32) {
	for i, x := range v {
		binary.BigEndian.PutUint32(b[4*i:4*i+4], uint32(x))
	}
	clear(b[4*len(v):])
}

func getInt32(v []int32, b []byte) {
	for i := range v {
		v[i] = int32(binary.BigEndian.Uint32(b[4*i : 4*i+4]))
	}
}

// float32Payload carries in packet k the exponents of block k, if there is one,
// and the values of block k-batch, from packet batch on. Values of the packets
// before it are zeros. dst and src may be the same: block k is read for the last
// time when packet k+batch is filled and written when its result is drained.
type float32Payload struct {
	elements int
	workers  int
	policy   NonFinite
	dst, src []float32

	blocks int
	batch  int    // packets without values at the start
	agreed []int8 // by block: the exponent of all workers

	ints    []int32   // scratch, one block
	clamped []float32 // scratch, one block

	poisoned  int // first block that came back poisoned or, where that is refused, flagged; -1
	own       int // first element of src that cannot be carried; -1
	ownValue  float32
	saturated uint64
}

// reset prepares for one slice with at most m packets outstanding.
func (p *float32Payload) reset(dst, src []float32, m int) {
	p.dst, p.src = dst, src
	p.blocks = blocksOf(len(src), p.elements)
	p.batch = min(m, p.blocks)
	if cap(p.agreed) < p.blocks {
		p.agreed = make([]int8, p.blocks)
	}
	p.agreed = p.agreed[:p.blocks]
	p.poisoned, p.own, p.saturated = -1, -1, 0
}

// packets is the number of packets of the slice.
func (p *float32Payload) packets() int { return p.blocks + p.batch }

func (p *float32Payload) block(v []float32, b int) []float32 {
	at := b * p.elements
	return v[at:min(at+p.elements, len(v))]
}

func (p *float32Payload) fill(k int, values []byte) (e0, e1 int8) {
	if k < p.batch {
		clear(values)
	} else {
		b := k - p.batch
		in := p.block(p.src, b)
		out := p.ints[:len(in)]
		if p.policy == Saturate {
			in, _ = p.clamp(in)
		}
		codec.Quantise(out, in, p.agreed[b], p.workers)
		putInt32(values, out)
	}
	if k >= p.blocks {
		return codec.MinExponent, 0
	}
	in, changed := p.block(p.src, k), false
	if p.policy == Saturate {
		in, changed = p.clamp(in)
	}
	if changed {
		e1 = FlagExponent
	}
	e0, finite := codec.MaxExponent(in)
	if !finite && (p.own < 0 || k*p.elements < p.own) {
		// Noted here, with its value: in place, the result overwrites it.
		i := slices.IndexFunc(in, func(v float32) bool { return !carries(v) })
		p.own, p.ownValue = k*p.elements+i, in[i]
	}
	return e0, e1
}

func (p *float32Payload) drain(k int, e0, e1 int8, values []byte) {
	if k < p.blocks {
		p.agreed[k] = e0
		if e1 == FlagExponent {
			p.saturated++
		}
		if e0 == codec.PoisonExponent || e1 == FlagExponent && p.policy == Refuse {
			if p.poisoned < 0 || k < p.poisoned {
				p.poisoned = k
			}
		}
	}
	if k < p.batch {
		return
	}
	b := k - p.batch
	out := p.block(p.dst, b)
	ints := p.ints[:len(out)]
	getInt32(ints, values)
	codec.Dequantise(out, ints, p.agreed[b], p.workers)
}

// largest is the largest float32 below 2^126.
var largest = math.Nextafter32(float32(math.Ldexp(1, 126)), 0)

// carries reports whether SwitchML's format can carry v.
func carries(v float32) bool { return v >= -largest && v <= largest }

// clamp returns in, or a copy that [Saturate] made carriable.
func (p *float32Payload) clamp(in []float32) (out []float32, changed bool) {
	for i, v := range in {
		if carries(v) {
			continue
		}
		if !changed {
			changed = true
			copy(p.clamped, in)
		}
		switch {
		case v > largest:
			p.clamped[i] = largest
		case v < -largest:
			p.clamped[i] = -largest
		default:
			p.clamped[i] = 0 // NaN
		}
	}
	if !changed {
		return in, false
	}
	return p.clamped[:len(in)], true
}

// NonFiniteError says that blocks of the array could not be carried; see
// [NonFinite]. The elements of such blocks are NaN in the result, or saturated
// if other workers do that. All other elements are right.
type NonFiniteError struct {
	// Index is the first element of this worker's array that cannot be carried,
	// -1 if it has none and the cause is at another worker; Value is that element.
	Index int
	Value float32
	// First and Last bound the first block that is lost, as elements [First, Last).
	First, Last int
}

func (e *NonFiniteError) Error() string {
	if e.Index >= 0 {
		return fmt.Sprintf("element %d is %v: SwitchML carries magnitudes below 2^126 only; elements %d to %d are lost", e.Index, e.Value, e.First, e.Last-1)
	}
	return fmt.Sprintf("another worker's elements %d to %d hold a NaN, an infinity or a magnitude of 2^126 or more: their sums are lost", e.First, e.Last-1)
}
