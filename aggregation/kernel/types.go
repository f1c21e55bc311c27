package kernel

import "fmt"

// Type is an element as it is on the wire.
type Type uint8

// The element types, the type of the slot that they are folded in, and what can be lost on the way.
const (
	Int32    Type = iota // slot int32: sums may overflow
	Int64                // slot int64: sums may overflow
	Int8                 // slot int32: exact for 2^24 contributions, may overflow when encoded
	Float32              // slot float32, rounded at every addition
	Float64              // slot float64, rounded at every addition
	Float16              // IEEE 754 binary16; slot float32, rounded to 16 bits once, when encoded
	BFloat16             // upper half of a float32; slot float32, rounded to 16 bits once, when encoded
	types
)

var typeNames = [types]string{"int32", "int64", "int8", "float32", "float64", "float16", "bfloat16"}

func (t Type) String() string {
	if t < types {
		return typeNames[t]
	}
	return fmt.Sprintf("Type(%d)", uint8(t))
}

// Bytes is the size of an element on the wire.
func (t Type) Bytes() int {
	return [types]int{4, 8, 1, 4, 8, 2, 2}[t]
}

// Types lists all element types.
func Types() []Type {
	all := make([]Type, types)
	for i := range all {
		all[i] = Type(i)
	}
	return all
}

// ByteOrder is the order of an element's bytes on the wire.
type ByteOrder uint8

// The byte orders.
const (
	BigEndian    ByteOrder = iota // network order: SwitchML
	LittleEndian                  // host order of GPUs and CPUs: native, ACCL
	orders
)

func (o ByteOrder) String() string {
	if o < orders {
		return [orders]string{"big-endian", "little-endian"}[o]
	}
	return fmt.Sprintf("ByteOrder(%d)", uint8(o))
}

// Op is how contributions are combined. The mean is a Sum, divided when it is complete: see Ops.Divide.
type Op uint8

// The operations. Min and Max of floats are IEEE 754-2019 minimum and maximum: a NaN wins, and -0 is less than +0.
const (
	Sum Op = iota
	Min
	Max
	ops
)

func (o Op) String() string {
	if o < ops {
		return [ops]string{"sum", "min", "max"}[o]
	}
	return fmt.Sprintf("Op(%d)", uint8(o))
}

// Policy is what happens to an element that does not fit. It is counted under either.
type Policy uint8

// The policies.
const (
	// Propagate wraps integers modulo 2^bits and keeps infinities and NaN of floats, as IEEE 754 says.
	Propagate Policy = iota
	// Saturate replaces overflowed integers, and floats that are infinite, by the nearest bound of the type. NaN stays
	// NaN: no number is near it. Saturated sums depend on the order of contributions.
	Saturate
	policies
)

func (p Policy) String() string {
	if p < policies {
		return [policies]string{"propagate", "saturate"}[p]
	}
	return fmt.Sprintf("Policy(%d)", uint8(p))
}

// Element is the type of a slot's elements.
type Element interface {
	int32 | int64 | float32 | float64
}
