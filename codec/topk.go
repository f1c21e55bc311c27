package codec

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
)

// DefaultTopKRatio is the share of elements that "topk" sends.
const DefaultTopKRatio = 0.01

// topkCodec sends the k = max(1, floor(n * ratio)) elements with the largest
// magnitudes; among equal magnitudes the lower index wins. The message is a
// little-endian uint32 k, k ascending uint32 indices and k float32 values.
// What is not sent decodes to zero.
type topkCodec struct {
	ratio float64
	k     int // if not 0: so many elements of every message, whatever its length
}

// NewTopK gives a top-k codec with a ratio in (0, 1].
func NewTopK(ratio float64) (Codec, error) {
	if !(ratio > 0 && ratio <= 1) {
		return nil, fmt.Errorf("codec: top-k ratio %v is not in (0, 1]", ratio)
	}
	return topkCodec{ratio: ratio}, nil
}

// NewTopKCount gives a top-k codec that sends k elements of every message, or
// all of a message that has fewer.
func NewTopKCount(k int) (Codec, error) {
	if k < 1 || k > math.MaxInt32 {
		return nil, fmt.Errorf("codec: top-k of %d elements is not in 1 to 2^31-1", k)
	}
	return topkCodec{k: k}, nil
}

// TopKCount is the number of elements that c sends of n; ok is false when c is
// no top-k codec.
func TopKCount(c Codec, n int) (k int, ok bool) {
	t, ok := c.(topkCodec)
	if !ok {
		return 0, false
	}
	return t.count(n), true
}

func parseTopKCount(s string) (Codec, error) {
	k, err := strconv.Atoi(s)
	if err != nil {
		return nil, fmt.Errorf("codec: top-k count %q is not a number", s)
	}
	return NewTopKCount(k)
}

func parseTopK(s string) (Codec, error) {
	r, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return nil, fmt.Errorf("codec: top-k ratio %q is not a number", s)
	}
	return NewTopK(r)
}

func (c topkCodec) Info() Info {
	name := "topk"
	if c.ratio != DefaultTopKRatio {
		name = "topk:" + strconv.FormatFloat(c.ratio, 'g', -1, 64)
	}
	bits := 64 * c.ratio
	if c.k > 0 {
		// How small a message is depends on its length.
		name, bits = "topk="+strconv.Itoa(c.k), 64
	}
	return Info{Name: name, ID: IDTopK, Bits: bits, Block: 0, Fixed: true, Feedback: true,
		Bound:     "0 for what is sent, else the magnitude itself, at most that of the k-th largest",
		NonFinite: "sent first and kept bit for bit; of more than k only k are sent",
		Source:    "Stich et al., Sparsified SGD with memory, NeurIPS 2018"}
}

// count is k for n elements.
func (c topkCodec) count(n int) int {
	if n == 0 {
		return 0
	}
	if c.k > 0 {
		return min(c.k, n)
	}
	return max(1, int(float64(n)*c.ratio))
}

func (c topkCodec) MaxEncoded(n int) int { return 4 + 8*c.count(n) }

func (c topkCodec) Encode(dst []byte, src []float32, _ *State) (int, error) {
	k := c.count(len(src))
	total := 4 + 8*k
	if len(dst) < total {
		return 0, ErrBuffer
	}
	binary.LittleEndian.PutUint32(dst, uint32(k))
	index, value := dst[4:4+4*k], dst[4+4*k:total]
	least, ties := kthLargest(src, k)
	for i, v := range src {
		w := math.Float32bits(v)
		a := w &^ (1 << 31)
		if a < least {
			continue
		}
		if a == least {
			if ties == 0 {
				continue
			}
			ties--
		}
		binary.LittleEndian.PutUint32(index, uint32(i))
		binary.LittleEndian.PutUint32(value, w)
		index, value = index[4:], value[4:]
	}
	return total, nil
}

// kthLargest returns the magnitude (as bits) of the k-th largest element and
// how many elements of exactly this magnitude belong to the k largest. It
// counts the magnitudes by their upper 11, middle 10 and lower 10 bits, so it
// reads src three times and sorts nothing. k is in [1, len(src)] or len(src)
// is 0.
func kthLargest(src []float32, k int) (least uint32, ties int) {
	left := k
	for _, p := range [...]struct{ shift, width uint }{{20, 11}, {10, 10}, {0, 10}} {
		var count [1 << 11]uint32
		above := p.shift + p.width
		for _, v := range src {
			a := math.Float32bits(v) &^ (1 << 31)
			if a>>above == least>>above {
				count[a>>p.shift&(1<<p.width-1)]++
			}
		}
		b := 1<<p.width - 1
		for b > 0 && int(count[b]) < left {
			left -= int(count[b])
			b--
		}
		least |= uint32(b) << p.shift
	}
	return least, left
}

func (c topkCodec) Decode(dst []float32, src []byte, _ *State) error {
	k, err := topkCount(src, len(dst))
	if err != nil {
		return err
	}
	index, value := src[4:4+4*k], src[4+4*k:]
	clear(dst)
	next := uint32(0)
	for j := 0; j < len(index); j += 4 {
		i := binary.LittleEndian.Uint32(index[j:])
		if i < next || int64(i) >= int64(len(dst)) {
			return errIndex
		}
		dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(value[j:]))
		next = i + 1
	}
	return nil
}

func (c topkCodec) Bound(dst []float64, src []float32) {
	k := c.count(len(src))
	least, ties := kthLargest(src, k)
	for i, v := range src {
		a := math.Float32bits(v) &^ (1 << 31)
		dst[i] = 0
		if a == least && ties > 0 {
			ties--
		} else if a <= least {
			dst[i] = math.Abs(float64(v))
			if !(dst[i] <= math.MaxFloat32) {
				dst[i] = math.Inf(1)
			}
		}
	}
}
