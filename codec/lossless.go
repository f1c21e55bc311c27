package codec

import (
	"encoding/binary"
	"fmt"

	"github.com/klauspost/compress/huff0"
	"gradnic/codec/kernel"
)

const (
	// losslessChunk is the number of elements whose planes are coded together.
	losslessChunk = 16384
	// losslessScratchBytes bounds the memory of newLosslessScratch, with what
	// the entropy coder keeps inside.
	losslessScratchBytes = 160 << 10

	planeRaw  = 0 // the bytes follow
	planeSame = 1 // one byte follows: all are alike
	planeHuff = 2 // uint16 length, then a Huffman table and four streams
)

// losslessCodec splits elements into byte planes and codes each plane by
// itself. An element is first rotated left by one bit, so that its exponent
// fills the upper byte and the sign joins the mantissa: exponents of gradients
// take few values and compress well, mantissas hardly do and go raw.
//
// The message is a chunk after the other of up to 16384 elements; in a chunk a
// plane after the other from the upper byte down; a plane has a mode byte and
// then, by the mode, its bytes, one byte, or a little-endian uint16 length and
// that many bytes of Huffman coding (huff0 of zstd, four streams).
type losslessCodec struct{}

type losslessScratch struct {
	huff   huff0.Scratch // for encoding; the library swaps tables when one serves both
	unhuff huff0.Scratch
	plane  [losslessChunk]byte
	raw    [losslessChunk * 4]byte
}

func newLosslessScratch() *losslessScratch {
	s := new(losslessScratch)
	s.huff.Reuse = huff0.ReusePolicyNone
	s.huff.WantLogLess = 5 // a plane that shrinks by less than 1/32 goes raw: faster at both ends
	s.huff.Out = make([]byte, 0, losslessChunk+losslessChunk/2)
	s.unhuff.Out = make([]byte, 0, 1)
	return s
}

func (losslessCodec) Info() Info {
	return Info{Name: "lossless", ID: IDLossless, Bits: 32 + 32./losslessChunk, Block: losslessChunk, Lossless: true,
		Bound: "0", NonFinite: "kept bit for bit",
		Source: "byte planes with huff0 of github.com/klauspost/compress"}
}

func (losslessCodec) MaxEncoded(n int) int { return LosslessMax(4*n, 4) }

func (losslessCodec) Encode(dst []byte, src []float32, st *State) (int, error) {
	if st == nil || st.lossless == nil {
		return 0, ErrState
	}
	if len(dst) < LosslessMax(4*len(src), 4) {
		return 0, ErrBuffer
	}
	s := st.lossless
	n := 0
	for len(src) > 0 {
		k := min(losslessChunk, len(src))
		kernel.PutFloats(s.raw[:4*k], src[:k])
		n += s.encodeChunk(dst[n:], s.raw[:4*k], 4)
		src = src[k:]
	}
	return n, nil
}

func (losslessCodec) Decode(dst []float32, src []byte, st *State) error {
	if st == nil || st.lossless == nil {
		return ErrState
	}
	s := st.lossless
	for len(dst) > 0 {
		k := min(losslessChunk, len(dst))
		used, err := s.decodeChunk(s.raw[:4*k], src, 4)
		if err != nil {
			return err
		}
		kernel.GetFloats(dst[:k], s.raw[:4*k])
		dst, src = dst[k:], src[used:]
	}
	if len(src) != 0 {
		return errLength
	}
	return nil
}

func (losslessCodec) Bound(dst []float64, _ []float32) { clear(dst) }

// LosslessMax is the worst case of LosslessEncode for n bytes.
func LosslessMax(n, width int) int {
	chunk := losslessChunk * width
	return n + (n+chunk-1)/chunk*width
}

// LosslessEncode is the lossless codec for raw little-endian elements of width
// 2 (bfloat16, binary16) or 4 (float32) bytes: len(src) must be a multiple of
// width. It returns the number of bytes written to dst, which must have
// LosslessMax(len(src), width). st comes from NewState for the lossless codec.
func LosslessEncode(dst, src []byte, width int, st *State) (int, error) {
	if err := losslessCheck(len(src), width, st); err != nil {
		return 0, err
	}
	if len(dst) < LosslessMax(len(src), width) {
		return 0, ErrBuffer
	}
	n := 0
	for len(src) > 0 {
		k := min(losslessChunk*width, len(src))
		n += st.lossless.encodeChunk(dst[n:], src[:k], width)
		src = src[k:]
	}
	return n, nil
}

// LosslessDecode fills dst from a message of exactly len(dst) bytes of elements.
func LosslessDecode(dst, src []byte, width int, st *State) error {
	if err := losslessCheck(len(dst), width, st); err != nil {
		return err
	}
	for len(dst) > 0 {
		k := min(losslessChunk*width, len(dst))
		used, err := st.lossless.decodeChunk(dst[:k], src, width)
		if err != nil {
			return err
		}
		dst, src = dst[k:], src[used:]
	}
	if len(src) != 0 {
		return errLength
	}
	return nil
}

func losslessCheck(n, width int, st *State) error {
	if st == nil || st.lossless == nil {
		return ErrState
	}
	if width != 2 && width != 4 || n%width != 0 {
		return fmt.Errorf("codec: %d bytes are no whole number of elements of 2 or 4 bytes (width %d)", n, width)
	}
	return nil
}

func (s *losslessScratch) encodeChunk(dst, src []byte, width int) int {
	n := 0
	for p := width - 1; p >= 0; p-- {
		plane := s.plane[:len(src)/width]
		s.extract(plane, src, width, p)
		n += s.encodePlane(dst[n:], plane)
	}
	return n
}

// extract takes byte p of every element after its rotation.
func (s *losslessScratch) extract(plane, src []byte, width, p int) {
	shift := 8 * p
	if width == 2 {
		for i := range plane {
			v := binary.LittleEndian.Uint16(src[2*i:])
			plane[i] = byte((v<<1 | v>>15) >> shift)
		}
		return
	}
	for i := range plane {
		v := binary.LittleEndian.Uint32(src[4*i:])
		plane[i] = byte((v<<1 | v>>31) >> shift)
	}
}

func (s *losslessScratch) encodePlane(dst, plane []byte) int {
	out, _, err := huff0.Compress4X(plane, &s.huff)
	switch {
	case err == huff0.ErrUseRLE || len(plane) == 1:
		dst[0], dst[1] = planeSame, plane[0]
		return 2
	case err == nil && len(out)+2 < len(plane):
		dst[0] = planeHuff
		binary.LittleEndian.PutUint16(dst[1:], uint16(len(out)))
		return 3 + copy(dst[3:], out)
	}
	dst[0] = planeRaw
	return 1 + copy(dst[1:], plane)
}

func (s *losslessScratch) decodeChunk(dst, src []byte, width int) (int, error) {
	total := 0
	clear(dst)
	for p := width - 1; p >= 0; p-- {
		plane := s.plane[:len(dst)/width]
		used, err := s.decodePlane(plane, src)
		if err != nil {
			return 0, err
		}
		src = src[used:]
		total += used
		s.insert(dst, plane, width, p)
	}
	return total, nil
}

// insert ors a plane into the elements, rotated back.
func (s *losslessScratch) insert(dst, plane []byte, width, p int) {
	shift := 8 * p
	if width == 2 {
		for i, b := range plane {
			v := uint16(b) << shift
			v = v>>1 | v<<15
			binary.LittleEndian.PutUint16(dst[2*i:], binary.LittleEndian.Uint16(dst[2*i:])|v)
		}
		return
	}
	for i, b := range plane {
		v := uint32(b) << shift
		v = v>>1 | v<<31
		binary.LittleEndian.PutUint32(dst[4*i:], binary.LittleEndian.Uint32(dst[4*i:])|v)
	}
}

func (s *losslessScratch) decodePlane(plane, src []byte) (int, error) {
	if len(src) < 2 {
		return 0, errLength
	}
	switch src[0] {
	case planeRaw:
		if len(src) < 1+len(plane) {
			return 0, errLength
		}
		return 1 + copy(plane, src[1:]), nil
	case planeSame:
		for i := range plane {
			plane[i] = src[1]
		}
		return 2, nil
	case planeHuff:
		if len(src) < 3 {
			return 0, errLength
		}
		n := int(binary.LittleEndian.Uint16(src[1:]))
		if n == 0 || n > len(src)-3 || n >= len(plane) {
			return 0, errLength
		}
		_, rest, err := huff0.ReadTable(src[3:3+n], &s.unhuff)
		if err != nil {
			return 0, errEntropy
		}
		out, err := s.unhuff.Decoder().Decompress4X(plane[:len(plane):len(plane)], rest)
		if err != nil || len(out) != len(plane) {
			return 0, errEntropy
		}
		return 3 + n, nil
	}
	return 0, errHeader
}
