package kernel

import (
	"encoding/binary"
	"unsafe"
)

// Contributions that were decoded by a codec are values in memory, which are wire elements in the machine's byte order.

// nativeOrder is the machine's byte order.
var nativeOrder = func() ByteOrder {
	if binary.NativeEndian.Uint16([]byte{1, 0}) == 1 {
		return LittleEndian
	}
	return BigEndian
}()

// ForValues returns the loops that fold float32 values in memory: Set and Fold of them take Bytes of the values.
func ForValues(op Op, policy Policy) (*Ops[float32], error) {
	return For[float32](Spec{Type: Float32, Order: nativeOrder, Op: op, Policy: policy})
}

// Bytes is the memory of values: wire elements for the loops of ForValues.
//
// A float32 has no padding and every pattern of bits is one; bytes have no alignment to break. The slice keeps the
// values alive, and has their length and no more.
func Bytes(values []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(values))), 4*len(values))
}
