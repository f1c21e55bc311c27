package dataplane

import (
	"os"

	"gradnic/xdp"
)

// A frame larger than a chunk is a chain: several descriptors that follow each other, each but the last with
// xdp.PacketContinues. Between places (rings of the kernel, hand-off, transmit batches) a chain travels as just that.
// In a batch it is one frame: desc has its first piece, and the others, its tail, lie in the batch's pieces. Protocols
// see it as contiguous bytes in a buffer of the lane, which is a copy (flatten); what has no use for the bytes, such as
// forward or sink, makes none. Only a NIC whose longest frame does not fit into a chunk has any of this.

// onePageMTU is the largest MTU at which drivers with one page a buffer (veth, for one) take a program without support
// for several buffers: the page without the kernel's headroom, shared info and Ethernet header, rounded down.
func onePageMTU() int { return os.Getpagesize() - 598 }

// chains is what a lane has for frames of several chunks; nil when there are none.
type chains struct {
	stride int    // bytes of a flat frame
	flat   []byte // room for flatRoom frames
	nflat  int    // used by the batch
	raw    [BatchSize]Desc
	out    [xdp.MaxPieces]Desc // what scatter made last
}

// flatRoom is the most chains of a batch: each has two pieces or more, may be doubled, and delayed ones come back.
const flatRoom = BatchSize + maxHeld + BatchSize

// newChains makes a lane's room for frames of up to longest bytes.
func newChains(longest int) *chains {
	stride := (longest + 63) &^ 63
	return &chains{stride: stride, flat: make([]byte, flatRoom*stride)}
}

// joining is a chain of which the last piece has not come yet.
type joining struct {
	desc [xdp.MaxPieces]Desc
	n    int
	skip bool // it has too many pieces: all of it is dropped
}

// tail is the pieces of frame i after the first.
func (b *batch) tail(i int) []Desc {
	if b.desc[i].Options == 0 {
		return nil
	}
	at := int(b.tailAt[i])
	return b.pieces[at : at+int(b.tailN[i])]
}

// add appends a frame to the batch.
func (b *batch) add(d Desc, tail []Desc) {
	i := b.n
	b.desc[i] = d
	if d.Options != 0 {
		b.tailAt[i], b.tailN[i] = uint16(len(b.pieces)), uint8(len(tail))
		b.pieces = append(b.pieces, tail...)
	}
	b.n = i + 1
}

// begin empties the batch.
func (l *lane) begin() {
	l.batch.n = 0
	if l.chains != nil {
		l.batch.pieces = l.batch.pieces[:0]
		l.chains.nflat = 0
	}
}

// joinChains makes frames of descriptors that were received on a port: single ones and chains, of which the last may go on in
// the next batch. It returns the number of frames that are complete.
func (l *lane) joinChains(j *joining, port int, raw []Desc) (frames int) {
	b := &l.batch
	for _, d := range raw {
		if j.n == 0 && !j.skip && d.Options&xdp.PacketContinues == 0 {
			d.Options = 0
			b.add(d, nil)
			frames++
			continue
		}
		more := d.Options&xdp.PacketContinues != 0
		if j.n < xdp.MaxPieces && !j.skip {
			j.desc[j.n] = d
			j.n++
			l.pieces++
		} else {
			l.tooLong(j)
			l.release(d.Addr)
		}
		if more {
			continue
		}
		frames++
		if j.skip {
			j.skip = false
			l.counts[port][cDrops+int(Chained)]++
			continue
		}
		l.pieces -= j.n
		b.add(j.desc[0], j.desc[1:j.n])
		j.n = 0
	}
	return frames
}

// tooLong gives up a chain.
func (l *lane) tooLong(j *joining) {
	for _, d := range j.desc[:j.n] {
		l.release(d.Addr)
	}
	l.pieces -= j.n
	j.n, j.skip = 0, true
}

// forget frees the pieces of a chain whose rest will not come.
func (l *lane) forget(j *joining) {
	l.tooLong(j)
	j.skip = false
}

// flatten copies frame i, a chain, into one piece of memory that is good until the next batch. ok is false when the frame
// is longer than frames are.
func (l *lane) flatten(i int) (flat []byte, ok bool) {
	b, c := &l.batch, l.chains
	if c.nflat == flatRoom {
		return nil, false
	}
	at := c.nflat * c.stride
	room := c.flat[at : at+c.stride : at+c.stride]
	n := copy(room, l.frame(b.desc[i]))
	length := int(b.desc[i].Len)
	for _, d := range b.tail(i) {
		n += copy(room[n:], l.frame(d))
		length += int(d.Len)
	}
	if n != length {
		return nil, false
	}
	c.nflat++
	b.flat[i] = room[:n]
	return room[:n], true
}

// message is the first length bytes of frame i, to be made an answer in place; outgoing then gives what is to be sent.
func (l *lane) message(i, length int) []byte {
	if d := l.batch.desc[i]; d.Options == 0 {
		return l.area[d.Addr : d.Addr+uint64(length)]
	}
	l.batch.flat[i] = l.batch.flat[i][:length]
	return l.batch.flat[i]
}

// outgoing is the descriptors of frame i when its first length bytes are to be sent.
func (l *lane) outgoing(i, length int) (Desc, []Desc) {
	d := l.batch.desc[i]
	if d.Options != 0 {
		return l.unflatten(i, length)
	}
	d.Len = uint32(length)
	return d, nil
}

// unflatten writes the first length bytes of frame i's flat copy back to its chunks, and frees those that it does not
// need. The frame is to be sent then.
func (l *lane) unflatten(i, length int) (Desc, []Desc) {
	b := &l.batch
	flat := b.flat[i][:length]
	head, tail := b.desc[i], b.tail(i)
	flat = flat[copy(l.frame(head), flat):]
	head.Len = uint32(length - len(flat))
	n := 0
	for k := range tail {
		d := &tail[k]
		if len(flat) == 0 {
			l.release(d.Addr)
			continue
		}
		d.Len = uint32(copy(l.frame(*d), flat))
		d.Options = xdp.PacketContinues
		flat = flat[d.Len:]
		n++
	}
	tail = tail[:n]
	head.Options = xdp.PacketContinues
	if n == 0 {
		head.Options = 0
	} else {
		tail[n-1].Options = 0
	}
	return head, tail
}

// scatter copies a frame that was made elsewhere into free chunks, as many as it needs. The tail is good until the next
// call.
func (l *lane) scatter(flat []byte) (head Desc, tail []Desc, ok bool) {
	need := (len(flat) + int(l.chunk) - 1) / int(l.chunk)
	if len(l.free) < need || need > len(l.chains.out) {
		return Desc{}, nil, false
	}
	out := l.chains.out[:need]
	for k := range out {
		addr, _ := l.take()
		n := copy(l.area[addr:addr+l.chunk], flat)
		out[k] = Desc{Addr: addr, Len: uint32(n), Options: xdp.PacketContinues}
		flat = flat[n:]
	}
	out[need-1].Options = 0
	return out[0], out[1:], true
}

func (l *lane) freePieces(head Desc, tail []Desc) {
	l.release(head.Addr)
	for _, d := range tail {
		l.release(d.Addr)
	}
}

// freeFrame frees the chunks of frame i of the batch.
func (l *lane) freeFrame(i int) {
	b := &l.batch
	l.release(b.desc[i].Addr)
	for _, d := range b.tail(i) {
		l.release(d.Addr)
	}
}

// wholeFrames is the longest front of descs that does not end in the middle of a chain.
func wholeFrames(descs []Desc) int {
	n := len(descs)
	for n > 0 && descs[n-1].Options != 0 {
		n--
	}
	return n
}

// framesIn is how many frames descriptors make that end with a whole one.
func framesIn(descs []Desc) (frames int) {
	for _, d := range descs {
		if d.Options == 0 {
			frames++
		}
	}
	return frames
}
