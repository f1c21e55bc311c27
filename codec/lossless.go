package codec

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"

	"github.com/klauspost/compress/huff0"
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
	planes [4][losslessChunk]byte
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
		s.splitFloats(src[:k])
		n += s.encodeChunk(dst[n:], k, 4)
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
		used, err := s.decodeChunk(src, k, 4)
		if err != nil {
			return err
		}
		s.mergeFloats(dst[:k])
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
		st.lossless.split(src[:k], width)
		n += st.lossless.encodeChunk(dst[n:], k/width, width)
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
		used, err := st.lossless.decodeChunk(src, k/width, width)
		if err != nil {
			return err
		}
		st.lossless.merge(dst[:k], width)
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

// encodeChunk codes the planes of n elements of width bytes.
func (s *losslessScratch) encodeChunk(dst []byte, n, width int) int {
	done := 0
	for p := width - 1; p >= 0; p-- {
		done += s.encodePlane(dst[done:], s.planes[p][:n])
	}
	return done
}

// splitFloats fills the planes; plane 3 has the exponents.
func (s *losslessScratch) splitFloats(src []float32) {
	p0, p1, p2, p3 := s.planes[0][:len(src)], s.planes[1][:len(src)], s.planes[2][:len(src)], s.planes[3][:len(src)]
	for i, v := range src {
		w := bits.RotateLeft32(math.Float32bits(v), 1)
		p0[i], p1[i], p2[i], p3[i] = byte(w), byte(w>>8), byte(w>>16), byte(w>>24)
	}
}

func (s *losslessScratch) mergeFloats(dst []float32) {
	p0, p1, p2, p3 := s.planes[0][:len(dst)], s.planes[1][:len(dst)], s.planes[2][:len(dst)], s.planes[3][:len(dst)]
	for i := range dst {
		w := uint32(p0[i]) | uint32(p1[i])<<8 | uint32(p2[i])<<16 | uint32(p3[i])<<24
		dst[i] = math.Float32frombits(bits.RotateLeft32(w, -1))
	}
}

func (s *losslessScratch) split(src []byte, width int) {
	n := len(src) / width
	p0, p1, p2, p3 := s.planes[0][:n], s.planes[1][:n], s.planes[2][:n], s.planes[3][:n]
	if width == 2 {
		for i := range p0 {
			w := bits.RotateLeft16(binary.LittleEndian.Uint16(src[2*i:]), 1)
			p0[i], p1[i] = byte(w), byte(w>>8)
		}
		return
	}
	for i := range p0 {
		w := bits.RotateLeft32(binary.LittleEndian.Uint32(src[4*i:]), 1)
		p0[i], p1[i], p2[i], p3[i] = byte(w), byte(w>>8), byte(w>>16), byte(w>>24)
	}
}

func (s *losslessScratch) merge(dst []byte, width int) {
	n := len(dst) / width
	p0, p1, p2, p3 := s.planes[0][:n], s.planes[1][:n], s.planes[2][:n], s.planes[3][:n]
	if width == 2 {
		for i := range p0 {
			w := uint16(p0[i]) | uint16(p1[i])<<8
			binary.LittleEndian.PutUint16(dst[2*i:], bits.RotateLeft16(w, -1))
		}
		return
	}
	for i := range p0 {
		w := uint32(p0[i]) | uint32(p1[i])<<8 | uint32(p2[i])<<16 | uint32(p3[i])<<24
		binary.LittleEndian.PutUint32(dst[4*i:], bits.RotateLeft32(w, -1))
	}
}

// worthwhile guesses from the number of equal pairs whether a plane shrinks by
// more than 1/32 and by more than its Huffman table takes. Pairs give the Renyi
// entropy of order 2, which is never above Shannon's, so that a plane that would
// shrink is not passed over, but for its table.
func worthwhile(plane []byte) bool {
	const table = 40 // bytes, about
	var count [2][256]uint32
	for i, b := range plane {
		count[i&1][b]++
	}
	pairs := uint64(0)
	for b := range 256 {
		c := uint64(count[0][b] + count[1][b])
		pairs += c * (c - min(c, 1))
	}
	n := float64(len(plane))
	if n < 2 || pairs == 0 {
		return false
	}
	saved := 8 + math.Log2(float64(pairs)/(n*(n-1))) // bits an element, at most
	return saved*n/8 > max(n/32, table)
}

func (s *losslessScratch) encodePlane(dst, plane []byte) int {
	var out []byte
	err := huff0.ErrIncompressible
	switch {
	case plane[0] == plane[len(plane)-1] && same(plane):
		err = huff0.ErrUseRLE
	case worthwhile(plane):
		out, _, err = huff0.Compress4X(plane, &s.huff)
	}
	switch {
	case err == huff0.ErrUseRLE:
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

func same(plane []byte) bool {
	for _, b := range plane {
		if b != plane[0] {
			return false
		}
	}
	return true
}

// decodeChunk fills the planes of n elements and returns how much of src they
// took.
func (s *losslessScratch) decodeChunk(src []byte, n, width int) (int, error) {
	total := 0
	for p := width - 1; p >= 0; p-- {
		used, err := s.decodePlane(s.planes[p][:n], src[total:])
		if err != nil {
			return 0, err
		}
		total += used
	}
	return total, nil
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
