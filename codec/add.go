package codec

import (
	"encoding/binary"
	"math"

	"gradnic/codec/kernel"
)

// Adder is a codec whose messages can be added to a sum in one pass over it,
// without decoding them to somewhere else first.
type Adder interface {
	Codec

	// Check says whether src is a message of n elements that Decode takes, by a
	// look at its encoded bytes. The error wraps ErrCorrupt.
	Check(src []byte, n int) error

	// Add adds the elements of src to sum, each rounded once as float32
	// additions are. src must have passed Check for len(sum) elements; it
	// panics, or leaves sum half done, otherwise.
	Add(sum []float32, src []byte)
}

// Check implements [Adder]: every message of the right length is one.
func (c *blockCodec) Check(src []byte, n int) error {
	if len(src) != c.MaxEncoded(n) {
		return errLength
	}
	return nil
}

// Add implements [Adder].
func (c *blockCodec) Add(sum []float32, src []byte) {
	if c.flits == 0 {
		c.add(sum, src, c.blocks(len(sum)))
		return
	}
	group := c.flits * c.format.Block()
	bytes := c.flits * (c.format.Width() + 1)
	for len(sum) >= group {
		c.add(sum[:group], src[:bytes], c.flits)
		sum, src = sum[group:], src[bytes:]
	}
	if len(sum) > 0 {
		c.add(sum, src, c.flits)
	}
}

func (c *blockCodec) add(sum []float32, src []byte, blocks int) {
	block, width := c.format.Block(), c.format.Width()
	body, scales := src[:blocks*width], src[blocks*width:]
	whole := len(sum) >> c.shift()
	kernel.AddBlocks(c.format, sum[:whole*block], body[:whole*width], scales[:whole])
	if rest := sum[whole*block:]; len(rest) > 0 {
		var pad [kernel.MXBlock]float32
		copy(pad[:], rest)
		kernel.AddBlocks(c.format, pad[:block], body[whole*width:(whole+1)*width], scales[whole:whole+1])
		copy(rest, pad[:])
	}
}

// Check implements [Adder].
func (c topkCodec) Check(src []byte, n int) error {
	k, err := topkCount(src, n)
	if err != nil {
		return err
	}
	last := int64(-1)
	for i := range k {
		at := int64(binary.LittleEndian.Uint32(src[4+4*i:]))
		if at <= last || at >= int64(n) {
			return errIndex
		}
		last = at
	}
	return nil
}

// topkCount reads and checks the number of elements in a message.
func topkCount(src []byte, n int) (k int, err error) {
	if len(src) < 4 {
		return 0, errLength
	}
	w := uint64(binary.LittleEndian.Uint32(src))
	if w > uint64(n) {
		return 0, errHeader
	}
	if uint64(len(src)) != 4+8*w {
		return 0, errLength
	}
	return int(w), nil
}

// Add implements [Adder]. What was not sent is not added, so a sum of -0 stays
// -0 there.
func (c topkCodec) Add(sum []float32, src []byte) {
	k := (len(src) - 4) / 8
	index, value := src[4:4+4*k], src[4+4*k:]
	for len(index) >= 4 && len(value) >= 4 {
		sum[binary.LittleEndian.Uint32(index)] += math.Float32frombits(binary.LittleEndian.Uint32(value))
		index, value = index[4:], value[4:]
	}
}
