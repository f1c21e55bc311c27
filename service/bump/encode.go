package bump

import (
	"gradnic/codec"
	wire "gradnic/wire/bump"
	"gradnic/wire/inet"
)

// encode makes an item of a frame from the host when a rule has it and all is well, and returns false when the frame is to
// go as it is. Items of the path that wait are then sent before, so that a flow stays in order.
func (e *Engine) encode(frame []byte) bool {
	if len(e.rules) == 0 || frame[0]&1 != 0 || e.closed {
		return false
	}
	head, payload, ok := wire.Head(frame)
	if !ok {
		return false
	}
	var k flowKey
	keyOf(frame, head, &k)
	f := e.flowOf(&k)
	if f == nil || f.rule.Raw {
		return false
	}
	if !f.path.is(&k) {
		f.path = e.pathOf(k.src, k.dst)
	}
	p := f.path
	p.used = e.now
	e.touch(p, k.dstIP)
	why := e.put(f, p, frame, head, payload)
	if why == rawNot {
		return true
	}
	e.count.Raw[why]++
	e.flush(p)
	return false
}

// put makes the item, in the path's frame under way.
func (e *Engine) put(f *flow, p *path, frame, head, payload []byte) RawReason {
	if len(payload) == 0 {
		return RawEmpty
	}
	if p.state != Present {
		return RawNoPeer
	}
	if len(frame) > e.o.HostFrame { // than the host's port takes: it is not set so
		return RawTooLong
	}
	segment := frame[inet.EthernetLen+inet.IPv4Len:]
	udp, at := head[9] == inet.ProtoUDP, tcpSumAt
	if udp {
		at = udpSumAt
	}
	switch finishSum(segment, inet.PseudoHeaderSum(f.key.srcIP, f.key.dstIP, head[9], len(segment)), at, udp) {
	case sumWrong:
		return RawChecksum
	case sumPartial:
		e.count.Completed++
	}
	r := f.rule
	c, id := r.Codec, r.id
	if r.CodecAt != NoByte {
		if r.CodecAt >= len(payload) {
			return RawUnsuitable
		}
		id = codec.ID(payload[r.CodecAt])
		if id == codec.IDNone {
			return RawChosen
		}
		if c = e.codecs[id]; c == nil || id != codec.IDLossless && !r.Type.Float() {
			return RawUnsuitable
		}
	}
	if p.decodes>>id&1 == 0 {
		return RawCodec
	}
	it := wire.Item{
		Flow: f.id, Sequence: f.sequence, Codec: uint8(id), Type: r.Type, BigEndian: r.BigEndian, Payload: len(payload),
		Offset: r.Offset, Head: head, ID: uint16(head[4])<<8 | uint16(head[5]),
	}
	if it.Offset > it.Payload || it.Elements() == 0 {
		return RawUnsuitable
	}
	elements := payload[it.Offset : it.Offset+it.Elements()*it.Type.Size()]
	e.state.Seed, e.state.Round, e.state.Worker = uint64(e.o.Seed), uint64(f.sequence), uint32(f.id)
	n, err := e.compress(c, elements, &it)
	if err != nil {
		return RawUnsuitable
	}
	raw := it.RawLen()
	if wire.BodyOffset+it.HeadLen()+raw+n >= len(frame) {
		return RawLonger
	}
	limit := min(e.o.WireFrame, p.longest, len(p.out))
	it.Alike = e.alike(p, f, head)
	if p.items > 0 && (p.n+it.HeadLen()+raw+n > limit || p.items == wire.MaxItems) {
		e.flush(p)
		it.Alike = false
	}
	if p.items == 0 {
		if wire.BodyOffset+it.HeadLen()+raw+n > limit {
			return RawTooLong
		}
		p.n, p.since = wire.BodyOffset, e.now
		e.pending = append(e.pending, p)
	}
	item := p.out[p.n:]
	size := wire.PutItem(item, &it)
	size += copy(item[size:], payload[:it.Offset])
	size += copy(item[size:], payload[it.Offset+len(elements):])
	size += copy(item[size:], e.encoded[:n])
	wire.SetItemSize(item, size)
	p.n += size
	p.items++
	p.last, p.alike = f, udp
	copy(p.lastHead[:], head)
	f.sequence++
	e.count.Compressed.Frames++
	e.count.Compressed.Bytes += uint64(len(frame))
	e.count.Compressed.Payload += uint64(len(payload))
	return rawNot
}

// alike reports whether an item of the flow with this head can refer to the item before it.
func (e *Engine) alike(p *path, f *flow, head []byte) bool {
	return p.items > 0 && p.alike && p.last == f && f.key.proto == inet.ProtoUDP && wire.Alike(head, p.lastHead[:])
}

// compress encodes elements into e.encoded and returns the length.
func (e *Engine) compress(c codec.Codec, elements []byte, it *wire.Item) (int, error) {
	width := it.Type.Size()
	if it.BigEndian {
		put(e.elements, elements, width, true)
		elements = e.elements[:len(elements)]
	}
	if codec.ID(it.Codec) == codec.IDLossless {
		return codec.LosslessEncode(e.encoded, elements, width, e.state)
	}
	values := e.values[:len(elements)/width]
	if err := e.plain[it.Type].Decode(values, elements, nil); err != nil {
		return 0, err
	}
	return c.Encode(e.encoded, values, e.state)
}

// flush sends the frame under way on a path, if there is one.
func (e *Engine) flush(p *path) {
	if p.items == 0 {
		return
	}
	for i, q := range e.pending {
		if q == p {
			e.pending[i] = e.pending[len(e.pending)-1]
			e.pending = e.pending[:len(e.pending)-1]
			break
		}
	}
	h := wire.Header{Dst: p.remote, Src: p.local, Kind: wire.Data, Items: p.items, Boot: e.o.Boot, Sequence: p.sequence, Seed: e.o.Seed}
	wire.Seal(p.out[:p.n], &h)
	p.sequence++
	p.items, p.alike = 0, false
	b := e.o.Emit(Wire, p.n)
	if b == nil {
		e.count.Unsent++
		return
	}
	copy(b, p.out[:p.n])
	e.count.Sent.Frames++
	e.count.Sent.Bytes += uint64(p.n)
}

// flushDue sends what has waited for as long as it may, and returns when the next is due.
func (e *Engine) flushDue() (next int64) {
	next = never
	for i := 0; i < len(e.pending); {
		p := e.pending[i]
		if due := p.since + int64(e.o.Hold); due > e.now {
			next = min(next, due)
			i++
			continue
		}
		e.flush(p) // takes p out of the list
	}
	return next
}
