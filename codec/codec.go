package codec

import (
	"errors"
	"fmt"

	"gradnic/codec/kernel"
)

// ID names a codec on the wire, in one byte. IDs are never reused.
type ID uint8

// The wire ids. 0 is plain float32.
const (
	IDNone     ID = 0
	IDBFP16    ID = 1
	IDIntel    ID = 2
	IDFP16     ID = 3
	IDBF16     ID = 4
	IDE4M3     ID = 5
	IDE5M2     ID = 6
	IDMXFP4    ID = 7
	IDMXInt8   ID = 8
	IDInt8     ID = 9
	IDBlock    ID = 10
	IDTopK     ID = 11
	IDQSGD     ID = 12
	IDTHC      ID = 13
	IDLossless ID = 14
)

// Info describes a codec. All texts are one line.
type Info struct {
	Name string `json:"name"`
	ID   ID     `json:"id"`
	// Bits is the size of an element on the wire in a long message. For codecs
	// whose size depends on the data it is the worst case.
	Bits float64 `json:"bits_per_value"`
	// Block is the number of elements that share a scale or are treated
	// together; 1 when each element stands alone, 0 for the whole message.
	Block int `json:"block"`
	// Fixed says that Encode always writes MaxEncoded bytes.
	Fixed bool `json:"fixed_size"`
	// Lossless says that every bit comes back.
	Lossless bool `json:"lossless"`
	// Stochastic says that the result depends on the State's seed.
	Stochastic bool `json:"stochastic"`
	// Feedback says that the codec is meant to be used with error feedback.
	Feedback bool `json:"feedback"`
	// Sums says that encoded messages of several workers can be added without
	// decoding them.
	Sums bool `json:"sums"`
	// Vector says that there are vector kernels for it.
	Vector bool `json:"vector"`
	// Bound is the error bound in words; Codec.Bound computes it.
	Bound string `json:"bound"`
	// NonFinite says what becomes of infinities and NaNs.
	NonFinite string `json:"non_finite"`
	// Source is the specification or paper.
	Source string `json:"source"`
}

// Ratio is the compression against float32.
func (i Info) Ratio() float64 { return 32 / i.Bits }

// Codec turns a message of float32 into bytes and back. Implementations hold no
// state and may be used by any number of goroutines, each with a State of its
// own. Neither method keeps or allocates memory.
type Codec interface {
	Info() Info

	// MaxEncoded is the worst-case number of bytes for n elements, and the
	// exact number when Info says Fixed.
	MaxEncoded(n int) int

	// Encode writes src to dst and returns the number of bytes written. It
	// fails with ErrBuffer when dst is shorter than MaxEncoded(len(src)) and
	// with ErrState when it needs a State that it was not given. Bytes of dst
	// after the message may be overwritten. src is not changed.
	Encode(dst []byte, src []float32, st *State) (int, error)

	// Decode fills dst from the message src, which was made from exactly
	// len(dst) elements. A message that cannot have come from Encode for that
	// length gives an error that wraps ErrCorrupt; dst is then undefined. It
	// never reads outside of src, and no length inside of src makes it
	// allocate.
	Decode(dst []float32, src []byte, st *State) error

	// Bound writes to dst the largest absolute error that each element of src
	// can have after Encode and Decode (without error feedback); an infinity
	// where there is no bound because the element comes back as an infinity or
	// a NaN. For tests and tables: it is not fast.
	// len(dst) must be len(src).
	Bound(dst []float64, src []float32)
}

// The errors of the package. Errors returned by codecs wrap one of them.
var (
	ErrBuffer  = errors.New("codec: the buffer is shorter than the worst case of the message")
	ErrCorrupt = errors.New("codec: corrupt message")
	ErrState   = errors.New("codec: this codec needs a State made by NewState for at least this many elements")
	ErrUnknown = errors.New("codec: unknown codec")
)

// Corrupt messages cost no allocation either: the errors are made once.
var (
	errLength   = fmt.Errorf("%w: its length does not fit the number of elements", ErrCorrupt)
	errHeader   = fmt.Errorf("%w: a header field is out of range", ErrCorrupt)
	errIndex    = fmt.Errorf("%w: element indices do not ascend within the message", ErrCorrupt)
	errEntropy  = fmt.Errorf("%w: the entropy-coded data is damaged", ErrCorrupt)
	errReserved = fmt.Errorf("%w: a reserved or non-canonical code", ErrCorrupt)
)

// State is what one sender of one job (or one receiver) has beside the codec:
// the random stream, the residual of error feedback, and scratch memory. A nil
// *State means seed, round and worker 0; codecs that need scratch refuse it.
// A State belongs to one goroutine at a time.
type State struct {
	// Seed is the key of all random numbers: the same for all workers of a
	// job, and for encoder and decoder.
	Seed uint64
	// Round tells messages apart. A caller counts it up from message to
	// message, alike at all workers; the lower 56 bits count. With the same
	// Seed, Round and Worker the same input gives the same bytes.
	Round uint64
	// Worker is the rank. It separates the workers' rounding; a random
	// transform that must be alike at all workers does not depend on it.
	Worker uint32

	// Beta and Gamma weigh the residual and the gradient in error feedback:
	// c = Beta * residual + Gamma * gradient.
	Beta, Gamma float32

	residual []float32 // nil without error feedback
	work     []float32
	lossless *losslessScratch
}

// StateOptions are the choices of NewState.
type StateOptions struct {
	Seed   uint64
	Worker uint32
	// Feedback keeps what compression lost and adds it to the next message.
	Feedback bool
	// Beta and Gamma are the weights of error feedback; 0 means 1.
	Beta, Gamma float32
}

// NewState allocates the state for messages of up to n elements with codec c:
// StateBytes(c, n, o.Feedback) bytes, and nothing is allocated later.
func NewState(c Codec, n int, o StateOptions) *State {
	st := &State{Seed: o.Seed, Worker: o.Worker, Beta: o.Beta, Gamma: o.Gamma}
	if st.Beta == 0 {
		st.Beta = 1
	}
	if st.Gamma == 0 {
		st.Gamma = 1
	}
	if o.Feedback {
		st.residual = make([]float32, n)
		st.work = make([]float32, n)
	}
	if c.Info().ID == IDLossless {
		st.lossless = newLosslessScratch()
	}
	return st
}

// StateBytes is the memory that NewState takes, for admission: with feedback a
// residual and a work buffer of n float32 each, and for the lossless codec its
// scratch.
func StateBytes(c Codec, n int, feedback bool) int64 {
	var b int64
	if feedback {
		b += 8 * int64(n)
	}
	if c.Info().ID == IDLossless {
		b += losslessScratchBytes
	}
	return b
}

// Residual is the residual of error feedback, nil without it. A caller that
// moves a job to another sender moves it along.
func (st *State) Residual() []float32 { return st.residual }

// Reset forgets the residual.
func (st *State) Reset() { clear(st.residual) }

// What random numbers are for: the top byte of the counter.
const (
	purposeRounding = 1 // depends on the worker
	purposeSigns    = 2 // alike at all workers
)

// stream is the random stream of a message for one purpose.
func (st *State) stream(purpose uint32) kernel.Philox {
	var p kernel.Philox
	p.Counter[2] = purpose << 24
	if st == nil {
		return p
	}
	p.Key = [2]uint32{uint32(st.Seed), uint32(st.Seed >> 32)}
	if purpose == purposeRounding {
		p.Counter[0] = st.Worker
	}
	p.Counter[1] = uint32(st.Round)
	p.Counter[2] |= uint32(st.Round>>32) & 0xffffff
	return p
}

// EncodeFeedback encodes src with error feedback: it sends
// c = Beta * residual + Gamma * src and keeps residual = c - Decode(Encode(c)).
// Elements that are not finite, and what the codec made non-finite, leave a
// residual of 0, so that one bad step does not poison all later ones. The bytes
// are to be kept for a resend: a second call would count src twice.
//
// st must come from NewState with Feedback for at least len(src) elements.
func EncodeFeedback(c Codec, dst []byte, src []float32, st *State) (int, error) {
	if st == nil || len(st.residual) < len(src) || len(st.work) < len(src) {
		return 0, ErrState
	}
	if len(dst) < c.MaxEncoded(len(src)) {
		return 0, ErrBuffer
	}
	return encodeResidual(c, dst, src, st.residual[:len(src)], st.work[:len(src)], st)
}

// EncodeResidual is EncodeFeedback with a residual that the caller keeps, for
// messages that are parts of a larger array. residual and work have the length
// of src; work is scratch. Beta and Gamma of a State that was not made by
// NewState must be set.
func EncodeResidual(c Codec, dst []byte, src, residual, work []float32, st *State) (int, error) {
	switch {
	case st == nil || len(residual) != len(src) || len(work) != len(src):
		return 0, ErrState
	case len(dst) < c.MaxEncoded(len(src)):
		return 0, ErrBuffer
	}
	return encodeResidual(c, dst, src, residual, work, st)
}

func encodeResidual(c Codec, dst []byte, src, r, w []float32, st *State) (int, error) {
	for i, g := range src {
		w[i] = float32(st.Beta*r[i]) + float32(st.Gamma*g)
	}
	n, err := c.Encode(dst, w, st)
	if err != nil {
		return 0, err
	}
	if err := c.Decode(r, dst[:n], st); err != nil {
		return 0, fmt.Errorf("decode the own message of %s: %w", c.Info().Name, err)
	}
	for i, v := range r {
		d := w[i] - v
		if d-d != 0 {
			d = 0
		}
		r[i] = d
	}
	return n, nil
}
