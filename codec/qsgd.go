package codec

import (
	"encoding/binary"
	"math"

	"gradnic/codec/kernel"
)

const (
	// qsgdBucket is the number of elements that share a norm.
	qsgdBucket = 512
	// qsgdLevels is s: levels are integers in [-s, s], one byte each.
	qsgdLevels = 127
	// qsgdLeast is the norm below which a bucket is sent as zeros, so that
	// s / norm is a finite float32.
	qsgdLeast = 0x1p-118
	// qsgdMost is the norm from which on a bucket counts as not finite, so
	// that no level overflows in the decoder.
	qsgdMost = 0x1p127
)

// qsgdCodec is QSGD (Alistarh et al., NeurIPS 2017) with 127 levels a sign and
// buckets of 512. The message has a level byte for every element, then the
// little-endian float32 norms of all buckets.
type qsgdCodec struct{}

func (qsgdCodec) Info() Info {
	return Info{Name: "qsgd", ID: IDQSGD, Bits: 8.0625, Block: qsgdBucket, Fixed: true, Stochastic: true, Vector: true,
		Bound:     "one level: norm/127 (1 + 2^-20), norm = 2-norm of the bucket; without bias; norms below 2^-118 become zeros",
		NonFinite: "the whole bucket decodes to NaN, also when its norm is 2^127 or more",
		Source:    "Alistarh et al., QSGD, NeurIPS 2017, s = 127; Philox4x32-10 decides"}
}

func (qsgdCodec) MaxEncoded(n int) int { return n + (n+qsgdBucket-1)/qsgdBucket*4 }

func (c qsgdCodec) Encode(dst []byte, src []float32, st *State) (int, error) {
	total := c.MaxEncoded(len(src))
	if len(dst) < total {
		return 0, ErrBuffer
	}
	body, norms := dst[:len(src)], dst[len(src):total]
	r := st.stream(purposeRounding)
	for i := 0; i < len(src); i += qsgdBucket {
		n := min(qsgdBucket, len(src)-i)
		x, q := src[i:i+n], body[i:i+n]
		norm := float32(math.Sqrt(kernel.SumSquares(x)))
		switch {
		case !(norm < qsgdMost): // or a NaN
			clear(q)
			norm = float32(math.Inf(1))
		case norm < qsgdLeast:
			clear(q)
			norm = 0
		default:
			r.Base = uint32(i / 4)
			kernel.StochasticInt8(q, x, qsgdLevels/norm, &r)
		}
		binary.LittleEndian.PutUint32(norms[i/qsgdBucket*4:], math.Float32bits(norm))
	}
	return total, nil
}

func (c qsgdCodec) Decode(dst []float32, src []byte, _ *State) error {
	if len(src) != c.MaxEncoded(len(dst)) {
		return errLength
	}
	body, norms := src[:len(dst)], src[len(dst):]
	for i := 0; i < len(dst); i += qsgdBucket {
		n := min(qsgdBucket, len(dst)-i)
		norm := math.Float32frombits(binary.LittleEndian.Uint32(norms[i/qsgdBucket*4:]))
		if err := scaleInt8(dst[i:i+n], body[i:i+n], norm/qsgdLevels); err != nil {
			return err
		}
	}
	return nil
}

func (qsgdCodec) Bound(dst []float64, src []float32) {
	for i := 0; i < len(src); i += qsgdBucket {
		n := min(qsgdBucket, len(src)-i)
		norm := float64(float32(math.Sqrt(kernel.SumSquares(src[i : i+n]))))
		b := norm / qsgdLevels * (1 + 0x1p-20)
		switch {
		case !(norm < qsgdMost):
			b = math.Inf(1)
		case norm < qsgdLeast:
			b = norm
		}
		for j := range n {
			dst[i+j] = b
		}
	}
}
