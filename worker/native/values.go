package native

import (
	"encoding/binary"
	"fmt"
	"math"

	wire "gradnic/wire/native"
)

// Element is the Go type of a job's elements. float16 and bfloat16 go as their bits, in uint16.
type Element interface {
	int32 | int64 | int8 | float32 | float64 | uint16
}

// fits reports whether slices of T carry a job's element type.
func fits[T Element](t wire.Type) error {
	var ok bool
	var zero T
	switch any(zero).(type) {
	case int32:
		ok = t == wire.Int32
	case int64:
		ok = t == wire.Int64
	case int8:
		ok = t == wire.Int8
	case float32:
		ok = t == wire.Float32 || t == wire.BFP16
	case float64:
		ok = t == wire.Float64
	case uint16:
		ok = t == wire.Float16 || t == wire.BFloat16
	}
	if !ok {
		return fmt.Errorf("the job's elements are %v: %T does not carry them", t, zero)
	}
	return nil
}

// put writes values little endian.
func put[T Element](b []byte, v []T) {
	if littleEndian {
		copy(b[:len(memory(v))], memory(v))
		return
	}
	putEach(b, v)
}

// get reads values.
func get[T Element](v []T, b []byte) {
	if littleEndian {
		copy(memory(v), b[:len(memory(v))])
		return
	}
	getEach(v, b)
}

// putEach is put for any machine.
func putEach[T Element](b []byte, v []T) {
	switch v := any(v).(type) {
	case []int32:
		for i, x := range v {
			binary.LittleEndian.PutUint32(b[4*i:4*i+4], uint32(x))
		}
	case []int64:
		for i, x := range v {
			binary.LittleEndian.PutUint64(b[8*i:8*i+8], uint64(x))
		}
	case []int8:
		b = b[:len(v)]
		for i, x := range v {
			b[i] = byte(x)
		}
	case []float32:
		for i, x := range v {
			binary.LittleEndian.PutUint32(b[4*i:4*i+4], math.Float32bits(x))
		}
	case []float64:
		for i, x := range v {
			binary.LittleEndian.PutUint64(b[8*i:8*i+8], math.Float64bits(x))
		}
	case []uint16:
		for i, x := range v {
			binary.LittleEndian.PutUint16(b[2*i:2*i+2], x)
		}
	}
}

// getEach is get for any machine.
func getEach[T Element](v []T, b []byte) {
	switch v := any(v).(type) {
	case []int32:
		for i := range v {
			v[i] = int32(binary.LittleEndian.Uint32(b[4*i : 4*i+4]))
		}
	case []int64:
		for i := range v {
			v[i] = int64(binary.LittleEndian.Uint64(b[8*i : 8*i+8]))
		}
	case []int8:
		b = b[:len(v)]
		for i := range v {
			v[i] = int8(b[i])
		}
	case []float32:
		for i := range v {
			v[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i : 4*i+4]))
		}
	case []float64:
		for i := range v {
			v[i] = math.Float64frombits(binary.LittleEndian.Uint64(b[8*i : 8*i+8]))
		}
	case []uint16:
		for i := range v {
			v[i] = binary.LittleEndian.Uint16(b[2*i : 2*i+2])
		}
	}
}

// identity is the element that changes nothing under the job's operation: what a worker contributes where it has nothing
// to say. For sums of floats that is -0, since -0 + 0 is 0. Where infinities are clamped it is the largest finite number.
func identity(j *Job) ([]byte, error) {
	float := func(bits int, inf, largest uint64) uint64 {
		sign := uint64(1) << (bits - 1)
		bound := inf
		if j.Saturate {
			bound = largest
		}
		switch j.Op {
		case Min:
			return bound
		case Max:
			return sign | bound
		}
		return sign
	}
	integer := func(bits int) uint64 {
		switch j.Op {
		case Min:
			return 1<<(bits-1) - 1
		case Max:
			return 1 << (bits - 1)
		}
		return 0
	}
	if j.Op == Mean {
		return nil, fmt.Errorf("the job computes means: nothing can be contributed that does not count")
	}
	if j.compressed() {
		if j.sparse {
			return nil, fmt.Errorf("codec %s: it would leave out most of what is to be copied", j.Codec)
		}
		if j.Op != Sum {
			return nil, fmt.Errorf("the job computes the %v over codec %s, which has no room for infinities beside other values", j.Op, j.Codec)
		}
		return []byte{0, 0, 0, 0x80}, nil
	}
	var v uint64
	switch j.Type {
	case wire.Int32:
		v = integer(32)
	case wire.Int64:
		v = integer(64)
	case wire.Int8:
		v = integer(8)
	case wire.Float32:
		v = float(32, 0x7f800000, 0x7f7fffff)
	case wire.Float64:
		v = float(64, 0x7ff0000000000000, 0x7fefffffffffffff)
	case wire.Float16:
		v = float(16, 0x7c00, 0x7bff)
	case wire.BFloat16:
		v = float(16, 0x7f80, 0x7f7f)
	}
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], v)
	return b[:j.elementBytes()], nil
}
