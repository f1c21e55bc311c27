// Package element is the one list of element types: their numbers on the native wire, which package aggregation uses as well,
// their names and their sizes.
package element

// Type is a number of the list.
type Type uint8

// The types.
const (
	Int32 Type = iota
	Int64
	Int8
	Float32
	Float64
	Float16
	BFloat16
	BFP16 // blocks of 16 float32 with a shared exponent

	// Count is how many there are.
	Count = int(iota)
)

// Names are the names by number.
func Names() []string {
	return []string{
		Int32: "int32", Int64: "int64", Int8: "int8", Float32: "float32", Float64: "float64", Float16: "float16", BFloat16: "bfloat16", BFP16: "bfp16",
	}
}

// Size is the bytes of one element on the wire; 0 for BFP16, whose elements come in blocks, and for what is no type.
func (t Type) Size() int {
	switch t {
	case Int32, Float32:
		return 4
	case Int64, Float64:
		return 8
	case Float16, BFloat16:
		return 2
	case Int8:
		return 1
	}
	return 0
}
