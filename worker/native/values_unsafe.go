package native

import (
	"encoding/binary"
	"unsafe"
)

// littleEndian is true where values lie in memory as they go on the wire.
var littleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// memory is the bytes that values lie in.
//
// No Element has padding, and every pattern of bits is a value of each; bytes need no alignment. The slice keeps the values
// alive, and has their length and no more.
func memory[T Element](v []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), len(v)*int(unsafe.Sizeof(*new(T))))
}
