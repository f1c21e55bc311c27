package kernel

import "math"

// Format names an element format with a shared scale a block.
type Format uint8

// The block formats that have kernels.
const (
	BFP16  Format = iota // 16 elements, 8-bit integers, nearest even
	Intel                // 16 elements, 8-bit integers, the FPGA design's rules
	E4M3                 // OCP MXFP8 E4M3
	E5M2                 // OCP MXFP8 E5M2
	E2M1                 // OCP MXFP4 E2M1, two elements a byte
	MXInt8               // OCP MXINT8
	formats
)

// Block is the number of elements that share a scale.
func (f Format) Block() int {
	if f <= Intel {
		return BFPBlock
	}
	return MXBlock
}

// Width is the number of bytes that the elements of one block take, without
// the scale.
func (f Format) Width() int {
	if f == E2M1 {
		return MXBlock / 2
	}
	return f.Block()
}

// groupBlocks is the number of blocks that every assembly encoder can take at
// once (the AVX-512 ones take twice as many and leave the rest to AVX2).
const groupBlocks = 8

// maxGroup is the number of elements in the largest group.
const maxGroup = groupBlocks * MXBlock

func (f Format) check(body, scales []byte, values []float32) {
	if f >= formats || len(body) != f.Width()*len(scales) || len(values) != f.Block()*len(scales) {
		panic("codec/kernel: lengths of elements, scales and values do not fit together")
	}
}

// EncodeBlocks encodes src, whole blocks, into body (the elements of all
// blocks, then nothing) and scales (one byte a block).
func EncodeBlocks(f Format, body, scales []byte, src []float32) {
	f.check(body, scales, src)
	block, width := f.Block(), f.Width()
	for level != 0 {
		done := encodeFast(f, body, scales, src)
		body, scales, src = body[done*width:], scales[done:], src[done*block:]
		if len(scales) < groupBlocks {
			break
		}
		// A group that was refused goes to the twin.
		encodeGo(f, body[:groupBlocks*width], scales[:groupBlocks], src[:groupBlocks*block])
		body, scales, src = body[groupBlocks*width:], scales[groupBlocks:], src[groupBlocks*block:]
	}
	left := len(scales)
	if left == 0 {
		return
	}
	if level != 0 && left > 1 {
		var x [maxGroup]float32
		var y [maxGroup]byte
		var s [groupBlocks]byte
		copy(x[:], src)
		if encodeFast(f, y[:groupBlocks*width], s[:], x[:groupBlocks*block]) == groupBlocks {
			copy(body, y[:left*width])
			copy(scales, s[:left])
			return
		}
	}
	encodeGo(f, body, scales, src)
}

// DecodeBlocks is the inverse of [EncodeBlocks]: dst takes whole blocks.
func DecodeBlocks(f Format, dst []float32, body, scales []byte) {
	f.check(body, scales, dst)
	if level != 0 {
		done := decodeFast(f, dst, body, scales)
		dst, body, scales = dst[done*f.Block():], body[done*f.Width():], scales[done:]
	}
	decodeGo(f, dst, body, scales)
}

// AddBlocks adds what [DecodeBlocks] would write to sum, in one pass. A sum is
// that of IEEE 754, rounded to nearest even; of two NaNs that of sum stays, and
// infinities of opposite signs give the NaN 0xffc00000.
func AddBlocks(f Format, sum []float32, body, scales []byte) {
	f.check(body, scales, sum)
	if level != 0 {
		done := addFast(f, sum, body, scales)
		sum, body, scales = sum[done*f.Block():], body[done*f.Width():], scales[done:]
	}
	addGo(f, sum, body, scales)
}

// addGo is the twin.
func addGo(f Format, sum []float32, body, scales []byte) {
	block, width := f.Block(), f.Width()
	var x [MXBlock]float32
	for len(scales) > 0 {
		decodeGo(f, x[:block], body[:width], scales[:1])
		for i, v := range x[:block] {
			sum[i] = addFloats(sum[i], v)
		}
		sum, body, scales = sum[block:], body[width:], scales[1:]
	}
}

// addFloats is one addition, with the NaNs of the vector instruction.
func addFloats(a, b float32) float32 {
	const quiet = 1 << 22
	s := a + b
	switch {
	case s == s:
		return s
	case a != a:
		return math.Float32frombits(math.Float32bits(a) | quiet)
	case b != b:
		return math.Float32frombits(math.Float32bits(b) | quiet)
	}
	return math.Float32frombits(0xffc00000)
}

func encodeGo(f Format, body, scales []byte, src []float32) {
	switch f {
	case BFP16:
		bfp16EncodeGo(body, scales, src)
	case Intel:
		intelEncodeGo(body, scales, src)
	case E4M3:
		mxEncodeGo(&e4m3, body, scales, src)
	case E5M2:
		mxEncodeGo(&e5m2, body, scales, src)
	case E2M1:
		mxEncodeGo(&e2m1, body, scales, src)
	case MXInt8:
		mxInt8EncodeGo(body, scales, src)
	}
}

func decodeGo(f Format, dst []float32, body, scales []byte) {
	switch f {
	case BFP16:
		bfp16DecodeGo(dst, body, scales)
	case Intel:
		intelDecodeGo(dst, body, scales)
	case E4M3:
		mxDecodeGo(&e4m3, dst, body, scales)
	case E5M2:
		mxDecodeGo(&e5m2, dst, body, scales)
	case E2M1:
		mxDecodeGo(&e2m1, dst, body, scales)
	case MXInt8:
		mxInt8DecodeGo(dst, body, scales)
	}
}
