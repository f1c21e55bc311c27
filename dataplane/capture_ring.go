package dataplane

import (
	"encoding/binary"
	"sync/atomic"
)

// captureRing carries frames of different lengths from one lane to one reader. A record is captureHeader bytes and the
// frame, padded to 8: the record's size and the frame's length (32 bits each), the time, the kept length (32 bits), port
// (16), stage and reason (8 each). The producer publishes once a batch.
type captureRing struct {
	buf  []byte
	mask uint64
	_    [64]byte
	head atomic.Uint64 // bytes written, published
	next uint64        // the lane's: bytes written
	seen uint64        // the lane's: tail as last seen
	_    [40]byte
	tail atomic.Uint64 // bytes read
	_    [56]byte
}

const captureHeader = 24

func newCaptureRing(size int) *captureRing {
	n := 1
	for n < size {
		n <<= 1
	}
	return &captureRing{buf: make([]byte, n), mask: uint64(n - 1)}
}

// word is the 8 bytes at a position. Positions are multiples of 8, and so is the ring.
func (r *captureRing) word(at uint64) []byte { return r.buf[at&r.mask:][:8] }

// write appends a record of a frame in pieces, of which snap bytes are kept, and returns false when it does not fit.
func (r *captureRing) write(now int64, port uint16, stage CaptureStage, reason Reason, snap, length int, pieces ...[]byte) bool {
	keep := min(snap, length)
	size := uint64(captureHeader+keep+7) &^ 7
	if uint64(len(r.buf))-(r.next-r.seen) < size {
		r.seen = r.tail.Load()
		if uint64(len(r.buf))-(r.next-r.seen) < size {
			return false
		}
	}
	le := binary.LittleEndian
	le.PutUint64(r.word(r.next), size|uint64(length)<<32)
	le.PutUint64(r.word(r.next+8), uint64(now))
	le.PutUint64(r.word(r.next+16), uint64(keep)|uint64(port)<<32|uint64(stage)<<48|uint64(reason)<<56)
	at := r.next + captureHeader
	for _, p := range pieces {
		p = p[:min(len(p), keep)]
		keep -= len(p)
		n := copy(r.buf[at&r.mask:], p)
		copy(r.buf, p[n:])
		at += uint64(len(p))
	}
	r.next += size
	return true
}

// publish lets the reader see what was written.
func (r *captureRing) publish() { r.head.Store(r.next) }

// peek returns the time of the next record.
func (r *captureRing) peek() (now int64, ok bool) {
	tail := r.tail.Load()
	if tail == r.head.Load() {
		return 0, false
	}
	return int64(binary.LittleEndian.Uint64(r.word(tail + 8))), true
}

// read takes the next record, which must be there.
func (r *captureRing) read() CapturedFrame {
	tail := r.tail.Load()
	le := binary.LittleEndian
	a, c := le.Uint64(r.word(tail)), le.Uint64(r.word(tail+16))
	f := CapturedFrame{
		Length: int(a >> 32), Port: int(uint16(c >> 32)), Stage: CaptureStage(uint8(c >> 48)),
		Data: make([]byte, uint32(c)),
	}
	if f.Stage == CaptureDrop {
		f.Reason = Reason(c >> 56).String()
	}
	at := (tail + captureHeader) & r.mask
	n := copy(f.Data, r.buf[at:])
	copy(f.Data[n:], r.buf)
	r.tail.Store(tail + uint64(uint32(a)))
	return f
}
