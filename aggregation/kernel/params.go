package kernel

import (
	"encoding/binary"
	"math"

	"gradnic/internal/cpu"
)

// params is what the assembly's loops read beside the elements: the byte order as shuffle controls, and the policy as
// bounds. Its layout is in the generated tables; an array of bytes has no padding to doubt.
type params = [paramBytes]byte

// bounds are what the policy clamps to. They do nothing under Propagate.
type bounds[A Element] struct {
	slot, wire [2]A // smallest, largest
}

// kind is the type of a slot.
type kind uint8

const (
	kindInt32 kind = iota
	kindInt64
	kindFloat32
	kindFloat64
)

func (k kind) String() string { return [...]string{"int32", "int64", "float32", "float64"}[k] }

func kindOf[A Element]() kind {
	var zero A
	switch any(zero).(type) {
	case int32:
		return kindInt32
	case int64:
		return kindInt64
	case float32:
		return kindFloat32
	}
	return kindFloat64
}

func slotOf(t Type) kind {
	return [types]kind{kindInt32, kindInt64, kindInt32, kindFloat32, kindFloat64, kindFloat32, kindFloat32}[t]
}

func boundsOf[A Element](s Spec) (b bounds[A]) {
	switch b := any(&b).(type) {
	case *bounds[int32]:
		b.slot = [2]int32{math.MinInt32, math.MaxInt32}
		b.wire = b.slot
		if s.Type == Int8 && s.Policy == Saturate {
			b.wire = [2]int32{math.MinInt8, math.MaxInt8}
		}
	case *bounds[int64]:
		b.slot = [2]int64{math.MinInt64, math.MaxInt64}
		b.wire = b.slot
	case *bounds[float32]:
		slot, wire := float32(math.Inf(1)), float32(math.Inf(1))
		if s.Policy == Saturate {
			slot, wire = math.MaxFloat32, math.MaxFloat32
			switch s.Type {
			case Float16:
				wire = maxFloat16
			case BFloat16:
				wire = maxBFloat16
			}
		}
		b.slot, b.wire = [2]float32{-slot, slot}, [2]float32{-wire, wire}
	case *bounds[float64]:
		limit := math.Inf(1)
		if s.Policy == Saturate {
			limit = math.MaxFloat64
		}
		b.slot = [2]float64{-limit, limit}
		b.wire = b.slot
	}
	return b
}

// bitsOf gives an element's bits in the low bytes.
func bitsOf[A Element](v A) uint64 {
	switch v := any(v).(type) {
	case int32:
		return uint64(uint32(v))
	case int64:
		return uint64(v)
	case float32:
		return uint64(math.Float32bits(v))
	case float64:
		return math.Float64bits(v)
	}
	return 0
}

func encodeParams[A Element](s Spec, tier cpu.Tier, b bounds[A]) (p params) {
	for i := range 64 {
		p[paramDecode+i], p[paramEncode+i] = shuffle(s, tier, i)
	}
	put := func(offset int, bits uint64) { binary.LittleEndian.PutUint64(p[offset:], bits) }
	put(paramSlotMin, bitsOf(b.slot[0]))
	put(paramSlotMax, bitsOf(b.slot[1]))
	put(paramWireMin, bitsOf(b.wire[0]))
	put(paramWireMax, bitsOf(b.wire[1]))
	if kindOf[A]() <= kindInt64 {
		// Sums of integers have no bounds to look up, but a mask that says whether to saturate.
		put(paramSlotMax, 0)
		if s.Policy == Saturate {
			put(paramSlotMax, math.MaxUint64)
		}
	}
	return p
}

const zeroByte = 0x80 // shuffle control: the result byte is 0

// shuffle gives byte i of the controls that decode and encode.
func shuffle(s Spec, tier cpu.Tier, i int) (decode, encode byte) {
	size := s.Type.Bytes()
	swapped := func(i int) byte { // byte i of elements that are side by side
		if s.Order == BigEndian {
			return byte(i ^ (size - 1))
		}
		return byte(i)
	}
	in := i % 16 // a shuffle acts within 16 bytes
	switch s.Type {
	case Int8: // AVX2 packs the low bytes of four dwords
		if in < 4 {
			return zeroByte, byte(4 * in)
		}
		return zeroByte, zeroByte
	case BFloat16:
		// Decoding puts four of the lane's eight words into the upper halves of dwords: the first four in even lanes,
		// the others in odd ones. Encoding packs the upper halves of four dwords.
		decode, encode = zeroByte, zeroByte
		if in%4 >= 2 {
			decode = swapped(8*(i/16%2) + in/4*2 + in%2)
		}
		if in < 8 {
			encode = byte(in/2*4+2) + swapped(in)%2
		}
		return decode, encode
	}
	return swapped(in), swapped(in)
}
