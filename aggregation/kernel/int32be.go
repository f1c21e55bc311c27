package kernel

import (
	"encoding/binary"
	"fmt"
)

// checkLen panics when a buffer of wire bytes does not match its slot. The lengths come from the job's geometry, which
// was checked when the frame was parsed, so a mismatch is a mistake of the caller and never of a peer.
func checkLen(wireBytes, elements, size int) {
	if wireBytes != elements*size {
		panic(fmt.Sprintf("kernel: %d wire bytes for %d elements of %d bytes", wireBytes, elements, size))
	}
}

// SetInt32BE decodes big-endian int32 elements into a slot: the first contribution of a round.
// It panics unless len(src) == 4*len(dst).
func SetInt32BE(dst []int32, src []byte) {
	checkLen(len(src), len(dst), 4)
	for i := range dst {
		dst[i] = int32(binary.BigEndian.Uint32(src[4*i:]))
	}
}

// AddInt32BE adds big-endian int32 elements to a slot, wrapping as SwitchML's switch does, and returns how many
// elements overflowed. It panics unless len(src) == 4*len(dst).
func AddInt32BE(dst []int32, src []byte) (wrapped int) {
	checkLen(len(src), len(dst), 4)
	for i, a := range dst {
		b := int32(binary.BigEndian.Uint32(src[4*i:]))
		s := a + b
		wrapped += int(uint32((a^s)&(b^s)) >> 31)
		dst[i] = s
	}
	return wrapped
}

// PutInt32BE encodes a slot as big-endian int32 elements: the values of a result.
// It panics unless len(dst) == 4*len(src).
func PutInt32BE(dst []byte, src []int32) {
	checkLen(len(dst), len(src), 4)
	for i, v := range src {
		binary.BigEndian.PutUint32(dst[4*i:], uint32(v))
	}
}

// AddPutInt32BE is AddInt32BE followed by PutInt32BE in one pass: the last contribution of a round is added to the slot
// acc and the sum is encoded into out. out and src may be the same buffer, but must not overlap otherwise.
// It panics unless len(out) == len(src) == 4*len(acc).
func AddPutInt32BE(out []byte, acc []int32, src []byte) (wrapped int) {
	checkLen(len(src), len(acc), 4)
	checkLen(len(out), len(acc), 4)
	for i, a := range acc {
		b := int32(binary.BigEndian.Uint32(src[4*i:]))
		s := a + b
		wrapped += int(uint32((a^s)&(b^s)) >> 31)
		acc[i] = s
		binary.BigEndian.PutUint32(out[4*i:], uint32(s))
	}
	return wrapped
}
