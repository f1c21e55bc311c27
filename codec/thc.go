package codec

import (
	"encoding/binary"
	"fmt"
	"math"

	"gradnic/codec/kernel"
)

// THC is homomorphic compression with a lookup table (Li et al., "THC:
// Accelerating distributed deep learning using tensor homomorphic
// compression", NSDI 2024): workers agree on the largest norm, each turns its
// message with the same random transform and sends a 4-bit index an element;
// the aggregator looks the indices up in a table of small integers and adds
// those; the workers turn the sum back. So the sum costs one table and one
// integer addition an element and loses nothing.
//
// Messages are padded with zeros to whole blocks of 1024.
type THC struct {
	// Granularity is the largest table value; n workers sum to at most
	// n * Granularity.
	Granularity int
	// T is where the transformed values, which are nearly normal with unit
	// variance, are clamped.
	T float32
	// Values is the table: 16 ascending integers from 0 to Granularity.
	Values [16]uint8

	table kernel.Table
}

// thcLimit is T for 16 levels and a share of 1/32 outside of [-T, T].
const thcLimit = 2.1538746940614564

// The tables are never written after this.
var (
	thc30 = makeTHC([16]uint8{0, 3, 5, 7, 9, 11, 13, 14, 16, 17, 19, 21, 23, 25, 27, 30})
	thc16 = makeTHC([16]uint8{0, 2, 3, 4, 5, 6, 7, 8, 8, 9, 10, 11, 12, 13, 14, 16})
)

func makeTHC(values [16]uint8) THC {
	return THC{Granularity: int(values[15]), T: thcLimit, Values: values, table: kernel.NewTable(values, thcLimit)}
}

// NewTHC returns the table for a granularity of 30 (up to 8 workers in 8-bit
// sums) or 16 (up to 15 workers).
func NewTHC(granularity int) (*THC, error) {
	switch granularity {
	case 30:
		t := thc30
		return &t, nil
	case 16:
		t := thc16
		return &t, nil
	}
	return nil, fmt.Errorf("codec: no THC table for granularity %d; there are 16 and 30", granularity)
}

// THCPadded is the number of transformed elements of a message of n.
func THCPadded(n int) int {
	return (n + kernel.HadamardBlock - 1) / kernel.HadamardBlock * kernel.HadamardBlock
}

// THCNorm is what workers exchange first and take the maximum of: the 2-norm
// of the message, rounded to float32. It is not finite when an element is not.
func THCNorm(src []float32) float32 {
	return float32(math.Sqrt(kernel.SumSquares(src)))
}

// A message with a norm below thcLeast counts as zeros, one with a norm of
// thcMost or more as not finite: in between no step of the transform underflows
// or overflows.
const (
	thcLeast = 0x1p-100
	thcMost  = 0x1p120
)

// Encode writes the indices of src, two in a byte with the first in the low
// half: len(dst) must be THCPadded(len(src))/2. norm is the maximum over the
// workers of THCNorm; it must be in [2^-100, 2^120) (below that a message
// counts as zeros and there is nothing to send, above it is not finite). st gives Seed and
// Round, alike at all workers, and Worker.
func (t *THC) Encode(dst []byte, src []float32, norm float32, st *State) {
	padded := THCPadded(len(src))
	if len(dst) != padded/2 {
		panic("codec: THC.Encode: dst is not half a byte an element")
	}
	signs, round := st.stream(purposeSigns), st.stream(purposeRounding)
	scale := float32(math.Sqrt(float64(padded)) / float64(norm))
	var x [kernel.HadamardBlock]float32
	for b := 0; b < padded; b += kernel.HadamardBlock {
		clear(x[copy(x[:], src[b:]):])
		signs.Base = uint32(b / 128)
		kernel.FlipSigns(x[:], &signs)
		kernel.Hadamard(x[:])
		round.Base = uint32(b / 4)
		kernel.RoundTable(dst[b/2:(b+kernel.HadamardBlock)/2], x[:], scale, &t.table, &round)
	}
}

// Add looks the indices up and adds the values to acc, which has one byte a
// transformed element: len(acc) must be 2 * len(indices). It is the
// aggregator's part. The caller keeps the number of messages added at or below
// MaxWorkers, so that no byte wraps.
func (t *THC) Add(acc []uint8, indices []byte) {
	kernel.AddTable(acc, indices, &t.table)
}

// MaxWorkers is the number of messages that fit an 8-bit sum.
func (t *THC) MaxWorkers() int { return 255 / t.Granularity }

// DecodeSum turns the sum of workers messages back: dst gets an estimate of
// the sum of their sources. len(acc) must be THCPadded(len(dst)); norm and the
// Seed and Round of st are those of Encode.
func (t *THC) DecodeSum(dst []float32, acc []uint8, workers int, norm float32, st *State) {
	padded := THCPadded(len(dst))
	if len(acc) != padded {
		panic("codec: THC.DecodeSum: acc is not one byte a padded element")
	}
	signs := st.stream(purposeSigns)
	scale := float32(float64(norm) / math.Sqrt(float64(padded)))
	step := 2 * t.T / float32(t.Granularity)
	offset := float32(workers) * t.T
	var x [kernel.HadamardBlock]float32
	for b := 0; b < padded; b += kernel.HadamardBlock {
		t.restore(&x, acc[b:b+kernel.HadamardBlock], step, offset, scale)
		signs.Base = uint32(b / 128)
		kernel.FlipSigns(x[:], &signs)
		copy(dst[b:], x[:])
	}
}

// restore turns one block of sums back, up to the signs.
func (t *THC) restore(x *[kernel.HadamardBlock]float32, acc []uint8, step, offset, scale float32) {
	kernel.AffineUint8(x[:], acc, step, offset, scale)
	kernel.Hadamard(x[:])
}

// thcCodec is THC between two ends: the sender's own norm goes ahead of the
// indices as a little-endian float32. The infinity stands for a message that
// is not finite and comes back as NaN; 0 for one of zeros.
type thcCodec struct{}

func (thcCodec) Info() Info {
	return Info{Name: "thc", ID: IDTHC, Bits: 4, Block: kernel.HadamardBlock, Fixed: true, Stochastic: true, Feedback: true, Sums: true, Vector: true,
		Bound:     "0.44 norm sqrt(1024/n) + 2-norm of the block of 1024: a worst case that random signs make very unlikely",
		NonFinite: "the whole message decodes to NaN, also when its norm is 2^120 or more",
		Source:    "Li et al., THC, NSDI 2024; 16 levels, granularity 30; Philox4x32-10 decides"}
}

func (thcCodec) MaxEncoded(n int) int { return 4 + THCPadded(n)/2 }

func (c thcCodec) Encode(dst []byte, src []float32, st *State) (int, error) {
	total := c.MaxEncoded(len(src))
	if len(dst) < total {
		return 0, ErrBuffer
	}
	norm := THCNorm(src)
	switch {
	case !(norm < thcMost):
		norm = float32(math.Inf(1))
		clear(dst[4:total])
	case norm < thcLeast:
		norm = 0
		clear(dst[4:total])
	default:
		thc30.Encode(dst[4:total], src, norm, st)
	}
	binary.LittleEndian.PutUint32(dst, math.Float32bits(norm))
	return total, nil
}

func (c thcCodec) Decode(dst []float32, src []byte, st *State) error {
	if len(src) != c.MaxEncoded(len(dst)) {
		return errLength
	}
	bits := binary.LittleEndian.Uint32(src)
	norm := math.Float32frombits(bits)
	switch {
	case bits > 0x7f800000 || bits != 0 && norm < thcLeast || bits != 0x7f800000 && norm >= thcMost:
		return errReserved
	case bits == 0:
		clear(dst)
		return nil
	case bits == 0x7f800000:
		for i := range dst {
			dst[i] = float32(math.NaN())
		}
		return nil
	}
	src = src[4:]
	var acc [kernel.HadamardBlock]uint8
	signs := st.stream(purposeSigns)
	t := &thc30
	scale := float32(float64(norm) / math.Sqrt(float64(THCPadded(len(dst)))))
	step := 2 * t.T / float32(t.Granularity)
	var x [kernel.HadamardBlock]float32
	for b := 0; b < len(dst); b += kernel.HadamardBlock {
		clear(acc[:])
		t.Add(acc[:], src[b/2:(b+kernel.HadamardBlock)/2])
		t.restore(&x, acc[:], step, t.T, scale)
		signs.Base = uint32(b / 128)
		kernel.FlipSigns(x[:], &signs)
		copy(dst[b:], x[:])
	}
	return nil
}

func (thcCodec) Bound(dst []float64, src []float32) {
	norm := float64(THCNorm(src))
	padded := float64(THCPadded(len(src)))
	gap := 2 * float64(thc30.T) * 3 / 30 // the widest step of the table
	for i := 0; i < len(src); i += kernel.HadamardBlock {
		n := min(kernel.HadamardBlock, len(src)-i)
		block := math.Sqrt(kernel.SumSquares(src[i : i+n]))
		// The transform keeps 2-norms: sqrt(1024) times the widest step, and
		// what the clamp may cut off.
		b := (32*gap*norm/math.Sqrt(padded) + block) * (1 + 0x1p-16)
		switch {
		case !(norm < thcMost):
			b = math.Inf(1)
		case norm < thcLeast:
			b = norm
		}
		for j := range n {
			dst[i+j] = b
		}
	}
}
