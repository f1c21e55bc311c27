package shm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"
)

// Version is that of the control page.
const Version = 1

// Places is how many requests are outstanding at most, as on the card.
const Places = 8

// The control page. All numbers are in the machine's byte order, since both ends are on it; the fields that both sides use
// while the other may write are 32-bit words on addresses of their own.
//
//	  0  8 bytes   "gradnic\x01"                          client, before the hello
//	  8  uint64    bytes of the arena                     client, before the hello
//	 64  uint32    requests posted so far                 client
//	128  8*uint32  done: 0 not yet, 1 done, 2 failed      NIC; the client sets it to 0 before it posts
//	256  8*64      requests                               client
//	1024 8*512     results                                NIC, before it sets done
const (
	// ControlBytes is the length of the control page; the arena follows it.
	ControlBytes = 8192
	// RequestBytes is the length of a request.
	RequestBytes = 64

	offArena    = 8
	offPosted   = 64
	offDone     = 128
	offRequests = 256
	offResults  = 1024
	resultBytes = 512
	resultText  = 40 // offset of the error's text in a result
)

const magic = "gradnic\x01"

// Values of a done flag.
const (
	Open   = 0
	Done   = 1
	Failed = 2
)

// NoWeights is the offset of weights that there are not.
const NoWeights = math.MaxUint64

// Stats is what one request took, as ring.Stats has it.
type Stats struct {
	Elapsed   time.Duration // from when the NIC took it up to its end
	Waited    time.Duration // of that, until its first slice was ready to send
	Blocks    int           // blocks of N slices, with padding
	NonFinite uint64        // sums computed at this node that were infinite or NaN
}

// Posted is the number of requests that the client has posted.
func (m *Memory) Posted() *atomic.Uint32 { return m.word(offPosted) }

// DoneFlag is the flag of the request in a place, 0 to Places-1.
func (m *Memory) DoneFlag(place int) *atomic.Uint32 { return m.word(offDone + 4*place) }

// Request is the bytes of the request in a place.
func (m *Memory) Request(place int) []byte {
	return m.Control[offRequests+place*RequestBytes:][:RequestBytes]
}

// Result is the bytes of the result in a place.
func (m *Memory) Result(place int) []byte {
	return m.Control[offResults+place*resultBytes:][:resultBytes]
}

// Request is a request as it lies in the control page.
//
//	 0 uint64 offset of the gradients in the arena, in bytes
//	 8 uint64 elements
//	16 uint64 offset of the weights, NoWeights for none
//	24 uint64 deadline in ns, 0: the NIC's own
//	32 uint32 learning rate, the bits of a float32
//	36 28 bytes name of the codec, padded with zeros
type Request struct {
	Data, Elements, Weights uint64
	Deadline                time.Duration
	Rate                    float32
	Codec                   string
}

// Put writes the request. It fails when the codec's name is too long.
func (r *Request) Put(b []byte) error {
	if len(r.Codec) > RequestBytes-36 {
		return fmt.Errorf("codec %q: its name is too long", r.Codec)
	}
	e := binary.NativeEndian
	e.PutUint64(b, r.Data)
	e.PutUint64(b[8:], r.Elements)
	e.PutUint64(b[16:], r.Weights)
	e.PutUint64(b[24:], uint64(r.Deadline))
	e.PutUint32(b[32:], math.Float32bits(r.Rate))
	clear(b[36:RequestBytes])
	copy(b[36:RequestBytes], r.Codec)
	return nil
}

// Parse reads a request from a copy of its bytes, and checks that its buffers lie in an arena of so many bytes.
func (r *Request) Parse(b []byte, arena uint64) error {
	e := binary.NativeEndian
	r.Data, r.Elements, r.Weights = e.Uint64(b), e.Uint64(b[8:]), e.Uint64(b[16:])
	r.Deadline, r.Rate = time.Duration(e.Uint64(b[24:])), math.Float32frombits(e.Uint32(b[32:]))
	name := b[36:RequestBytes]
	for i, c := range name {
		if c == 0 {
			name = name[:i]
			break
		}
	}
	r.Codec = string(name)
	if err := inArena("gradients", r.Data, r.Elements, arena); err != nil {
		return err
	}
	if r.Weights == NoWeights {
		return nil
	}
	if err := inArena("weights", r.Weights, r.Elements, arena); err != nil {
		return err
	}
	if bytes := 4 * r.Elements; r.Data < r.Weights+bytes && r.Weights < r.Data+bytes {
		return errors.New("gradients and weights overlap")
	}
	return nil
}

func inArena(what string, at, elements, arena uint64) error {
	switch {
	case at%4 != 0:
		return fmt.Errorf("%s at offset %d: it must be a multiple of 4", what, at)
	case at > arena || elements > (arena-at)/4:
		return fmt.Errorf("%s of %d elements at offset %d: the arena has %d bytes", what, elements, at, arena)
	}
	return nil
}

// PutResult writes how a request ended.
func PutResult(b []byte, s *Stats, err error) {
	e := binary.NativeEndian
	e.PutUint64(b, uint64(s.Elapsed))
	e.PutUint64(b[8:], uint64(s.Waited))
	e.PutUint64(b[16:], uint64(s.Blocks))
	e.PutUint64(b[24:], s.NonFinite)
	n := 0
	if err != nil {
		n = copy(b[resultText:resultBytes], err.Error())
	}
	e.PutUint32(b[32:], uint32(n))
}

// ParseResult reads a result; the text is the error's, as far as there is room for it.
func ParseResult(b []byte) (s Stats, text string) {
	e := binary.NativeEndian
	s = Stats{
		Elapsed: time.Duration(e.Uint64(b)), Waited: time.Duration(e.Uint64(b[8:])), Blocks: int(e.Uint64(b[16:])), NonFinite: e.Uint64(b[24:]),
	}
	n := min(e.Uint32(b[32:]), resultBytes-resultText)
	return s, string(b[resultText : resultText+n])
}

// PutHeader writes the head of a control page of a file of size bytes.
func PutHeader(b []byte, size uint64) {
	copy(b, magic)
	binary.NativeEndian.PutUint64(b[offArena:], size-ControlBytes)
}

// CheckHeader says why a control page is not one.
func CheckHeader(b []byte, size uint64) error {
	switch {
	case string(b[:len(magic)]) != magic:
		return errors.New("the memory is not one of a gradnic client, or of another version")
	case binary.NativeEndian.Uint64(b[offArena:]) != size-ControlBytes:
		return fmt.Errorf("an arena of %d bytes in a file of %d", binary.NativeEndian.Uint64(b[offArena:]), size)
	}
	return nil
}
