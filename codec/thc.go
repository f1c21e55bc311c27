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
// elements with the same random transform and sends a 4-bit index an element;
// the aggregator looks the indices up in a table of small integers and adds
// those; the workers turn the sum back. So the sum costs one table and one
// integer addition an element and loses nothing.
//
// The transform and the norm are those of blocks of 1024 elements, because
// layers of a model differ in scale by far: one norm for all would leave most
// blocks with few levels and cut others off. A message is padded with zeros to
// whole blocks.
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

// THCBlocks is the number of blocks, and of norms, of a message of n.
func THCBlocks(n int) int { return THCPadded(n) / kernel.HadamardBlock }

// THCNorms writes what workers exchange first and take the maximum of: the
// 2-norm of every block. It is 0 where the norm is below 2^-100 (such a block
// counts as zeros) and the infinity where it is 2^120 or more or the block is
// not finite (such a block comes back as NaN). len(norms) must be
// THCBlocks(len(src)).
func THCNorms(norms []float32, src []float32) {
	if len(norms) != THCBlocks(len(src)) {
		panic("codec: THCNorms: not one norm a block")
	}
	for i := range norms {
		block := src[i*kernel.HadamardBlock : min((i+1)*kernel.HadamardBlock, len(src))]
		norms[i] = thcNorm(block)
	}
}

func thcNorm(block []float32) float32 {
	norm := float32(math.Sqrt(kernel.SumSquares(block)))
	switch {
	case !(norm < thcMost):
		return float32(math.Inf(1))
	case norm < thcLeast:
		return 0
	}
	return norm
}

// In between no step of the transform underflows or overflows.
const (
	thcLeast = 0x1p-100
	thcMost  = 0x1p120
)

// Encode writes the indices of src, two in a byte with the first in the low
// half: len(dst) must be THCPadded(len(src))/2. norms are the maxima over the
// workers of THCNorms. st gives Seed and Round, alike at all workers, and
// Worker.
func (t *THC) Encode(dst []byte, src, norms []float32, st *State) {
	if len(dst) != THCPadded(len(src))/2 || len(norms) != THCBlocks(len(src)) {
		panic("codec: THC.Encode: dst is not half a byte an element, or norms are not one a block")
	}
	for b, norm := range norms {
		lo := b * kernel.HadamardBlock
		t.encode(dst[lo/2:(lo+kernel.HadamardBlock)/2], src[lo:min(lo+kernel.HadamardBlock, len(src))], norm, b, st)
	}
}

// encode does block number b.
func (t *THC) encode(dst []byte, src []float32, norm float32, b int, st *State) {
	if norm == 0 || norm-norm != 0 {
		clear(dst)
		return
	}
	signs, round := st.stream(purposeSigns), st.stream(purposeRounding)
	signs.Base, round.Base = uint32(b*kernel.HadamardBlock/128), uint32(b*kernel.HadamardBlock/8)
	var x [kernel.HadamardBlock]float32
	copy(x[:], src)
	kernel.FlipSigns(x[:], &signs)
	kernel.Hadamard(x[:])
	kernel.RoundTable(dst, x[:], 32/norm, &t.table, &round)
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
// the sum of their sources. len(acc) must be THCPadded(len(dst)); norms and the
// Seed and Round of st are those of Encode.
func (t *THC) DecodeSum(dst []float32, acc []uint8, workers int, norms []float32, st *State) {
	if len(acc) != THCPadded(len(dst)) || len(norms) != THCBlocks(len(dst)) {
		panic("codec: THC.DecodeSum: acc is not one byte a padded element, or norms are not one a block")
	}
	for b, norm := range norms {
		lo := b * kernel.HadamardBlock
		t.decode(dst[lo:min(lo+kernel.HadamardBlock, len(dst))], acc[lo:lo+kernel.HadamardBlock], workers, norm, b, st)
	}
}

// decode does block number b.
func (t *THC) decode(dst []float32, acc []uint8, workers int, norm float32, b int, st *State) {
	switch {
	case norm == 0:
		clear(dst)
		return
	case norm-norm != 0:
		for i := range dst {
			dst[i] = float32(math.NaN())
		}
		return
	}
	signs := st.stream(purposeSigns)
	signs.Base = uint32(b * kernel.HadamardBlock / 128)
	var x [kernel.HadamardBlock]float32
	kernel.AffineUint8(x[:], acc, 2*t.T/float32(t.Granularity), float32(workers)*t.T, norm/32)
	kernel.Hadamard(x[:])
	kernel.FlipSigns(x[:], &signs)
	copy(dst, x[:])
}

// thcCodec is THC between two ends: the message has the indices of all blocks,
// then the sender's own norms as little-endian float32.
type thcCodec struct{}

func (thcCodec) Info() Info {
	return Info{Name: "thc", ID: IDTHC, Bits: 4 + 32./kernel.HadamardBlock, Block: kernel.HadamardBlock, Fixed: true, Stochastic: true, Feedback: true, Sums: true, Vector: true,
		Bound:     "1.44 times the 2-norm of the block: a worst case that random signs make very unlikely; norms below 2^-100 become zeros",
		NonFinite: "the whole block decodes to NaN, also when its norm is 2^120 or more",
		Source:    "Li et al., THC, NSDI 2024; 16 levels, granularity 30; Philox4x32-10 decides"}
}

func (thcCodec) MaxEncoded(n int) int { return THCPadded(n)/2 + 4*THCBlocks(n) }

func (c thcCodec) Encode(dst []byte, src []float32, st *State) (int, error) {
	total := c.MaxEncoded(len(src))
	if len(dst) < total {
		return 0, ErrBuffer
	}
	indices := THCPadded(len(src)) / 2
	for b := range THCBlocks(len(src)) {
		lo := b * kernel.HadamardBlock
		block := src[lo:min(lo+kernel.HadamardBlock, len(src))]
		norm := thcNorm(block)
		thc30.encode(dst[lo/2:(lo+kernel.HadamardBlock)/2], block, norm, b, st)
		binary.LittleEndian.PutUint32(dst[indices+4*b:], math.Float32bits(norm))
	}
	return total, nil
}

func (c thcCodec) Decode(dst []float32, src []byte, st *State) error {
	if len(src) != c.MaxEncoded(len(dst)) {
		return errLength
	}
	norms := src[THCPadded(len(dst))/2:]
	var acc [kernel.HadamardBlock]uint8
	for b := range THCBlocks(len(dst)) {
		bits := binary.LittleEndian.Uint32(norms[4*b:])
		norm := math.Float32frombits(bits)
		if bits > 0x7f800000 || bits != 0 && norm < thcLeast || bits != 0x7f800000 && norm >= thcMost {
			return errReserved
		}
		lo := b * kernel.HadamardBlock
		clear(acc[:])
		thc30.Add(acc[:], src[lo/2:(lo+kernel.HadamardBlock)/2])
		thc30.decode(dst[lo:min(lo+kernel.HadamardBlock, len(dst))], acc[:], 1, norm, b, st)
	}
	return nil
}

func (thcCodec) Bound(dst []float64, src []float32) {
	gap := 2 * float64(thc30.T) * 3 / 30 // the widest step of the table
	for i := 0; i < len(src); i += kernel.HadamardBlock {
		n := min(kernel.HadamardBlock, len(src)-i)
		norm := thcNorm(src[i : i+n])
		// The transform keeps 2-norms: 1024 errors of the widest step times
		// norm/32 have a 2-norm of gap * norm; the clamp may cut off all.
		b := (gap + 1) * float64(norm) * (1 + 0x1p-16)
		if norm == 0 {
			b = math.Sqrt(kernel.SumSquares(src[i : i+n]))
		}
		for j := range n {
			dst[i+j] = b
		}
	}
}
