package host

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"gradnic/service/ring"
)

// Version is that of the control page.
const Version = 1

// Places is how many requests are outstanding at most, as on the card.
const Places = ring.Outstanding

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
	controlBytes = 8192
	offArena     = 8
	offPosted    = 64
	offDone      = 128
	offRequests  = 256
	requestBytes = 64
	offResults   = 1024
	resultBytes  = 512
	resultText   = 40 // offset of the error's text in a result
)

const magic = "gradnic\x01"

// Values of a done flag.
const (
	flagOpen   = 0
	flagDone   = 1
	flagFailed = 2
)

// noWeights is the offset of weights that there are not.
const noWeights = math.MaxUint64

// wireRequest is a request as it lies in the control page.
//
//	 0 uint64 offset of the gradients in the arena, in bytes
//	 8 uint64 elements
//	16 uint64 offset of the weights, noWeights for none
//	24 uint64 deadline in ns, 0: the NIC's own
//	32 uint32 learning rate, the bits of a float32
//	36 28 bytes name of the codec, padded with zeros
type wireRequest struct {
	data, elements, weights uint64
	deadline                time.Duration
	rate                    float32
	codec                   string
}

func (r *wireRequest) put(b []byte) error {
	if len(r.codec) > requestBytes-36 {
		return fmt.Errorf("codec %q: its name is too long", r.codec)
	}
	e := binary.NativeEndian
	e.PutUint64(b, r.data)
	e.PutUint64(b[8:], r.elements)
	e.PutUint64(b[16:], r.weights)
	e.PutUint64(b[24:], uint64(r.deadline))
	e.PutUint32(b[32:], math.Float32bits(r.rate))
	clear(b[36:requestBytes])
	copy(b[36:requestBytes], r.codec)
	return nil
}

// parse reads a request from a copy of its bytes, and checks that its buffers lie in an arena of so many bytes.
func (r *wireRequest) parse(b []byte, arena uint64) error {
	e := binary.NativeEndian
	r.data, r.elements, r.weights = e.Uint64(b), e.Uint64(b[8:]), e.Uint64(b[16:])
	r.deadline, r.rate = time.Duration(e.Uint64(b[24:])), math.Float32frombits(e.Uint32(b[32:]))
	name := b[36:requestBytes]
	for i, c := range name {
		if c == 0 {
			name = name[:i]
			break
		}
	}
	r.codec = string(name)
	if err := inArena("gradients", r.data, r.elements, arena); err != nil {
		return err
	}
	if r.weights == noWeights {
		return nil
	}
	if err := inArena("weights", r.weights, r.elements, arena); err != nil {
		return err
	}
	if bytes := 4 * r.elements; r.data < r.weights+bytes && r.weights < r.data+bytes {
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

// putResult writes how a request ended.
func putResult(b []byte, s *ring.Stats, err error) {
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

func parseResult(b []byte) (s ring.Stats, text string) {
	e := binary.NativeEndian
	s = ring.Stats{
		Elapsed: time.Duration(e.Uint64(b)), Waited: time.Duration(e.Uint64(b[8:])), Blocks: int(e.Uint64(b[16:])), NonFinite: e.Uint64(b[24:]),
	}
	n := min(e.Uint32(b[32:]), resultBytes-resultText)
	return s, string(b[resultText : resultText+n])
}

// checkHeader says why a control page is not one.
func checkHeader(b []byte, size uint64) error {
	switch {
	case string(b[:len(magic)]) != magic:
		return errors.New("the memory is not one of a gradnic client, or of another version")
	case binary.NativeEndian.Uint64(b[offArena:]) != size-controlBytes:
		return fmt.Errorf("an arena of %d bytes in a file of %d", binary.NativeEndian.Uint64(b[offArena:]), size)
	}
	return nil
}
