package bump

import (
	"encoding/binary"

	"gradnic/codec"
	wire "gradnic/wire/bump"
	"gradnic/wire/inet"
)

// decode restores the host frames of a data frame. Items that cannot be are counted and left out; the frame as a whole is
// refused when none can.
func (e *Engine) decode(body []byte, h *wire.Header) wire.Fault {
	e.received(h)
	r := wire.NewReader(body, h)
	var it wire.Item
	good, bad := false, wire.OK
	for more := true; more; {
		var f wire.Fault
		if more, f = r.Next(&it); more {
			f = e.restore(&it, h)
			good = good || f == wire.OK
		}
		if f != wire.OK {
			if bad != wire.OK {
				e.count.Faults[bad]++
			}
			bad = f
		}
	}
	if good && bad != wire.OK {
		e.count.Faults[bad]++
		return wire.OK
	}
	return bad
}

// received follows the sequence of a far end's frames.
func (e *Engine) received(h *wire.Header) {
	c := &e.count.Received
	c.Frames++
	c.Bytes += uint64(h.Length + wire.BodyOffset)
	p := e.pathOf(h.Dst, h.Src)
	if p.inBoot != h.Boot {
		p.inBoot, p.inNext = h.Boot, h.Sequence
	}
	ahead := int32(h.Sequence - p.inNext) // by RFC 1982
	if ahead < 0 {
		e.count.Late++
		return
	}
	e.count.Gaps += uint64(ahead)
	p.inNext = h.Sequence + 1
}

// restore emits one host frame.
func (e *Engine) restore(it *wire.Item, h *wire.Header) wire.Fault {
	length := it.FrameLen()
	if length > e.o.HostFrame {
		return wire.TooLong
	}
	c := e.codecs[it.Codec]
	if c == nil {
		return wire.BadCodec
	}
	lossless := codec.ID(it.Codec) == codec.IDLossless
	if !lossless && (!it.Type.Float() || !it.UDP()) {
		return wire.BadCodec
	}
	e.state.Seed, e.state.Round, e.state.Worker = uint64(h.Seed), uint64(it.Sequence), uint32(it.Flow)
	width := it.Type.Size()
	n := it.Elements()
	values, elements := e.values[:0], e.elements[:n*width]
	var err error
	if lossless {
		err = codec.LosslessDecode(elements, it.Encoded, width, e.state)
	} else {
		values = e.values[:n]
		err = c.Decode(values, it.Encoded, e.state)
	}
	if err != nil {
		return wire.BadPayload
	}
	frame := e.o.Emit(Host, length)
	if frame == nil {
		return wire.NoRoom
	}
	inet.PutEthernet(frame, h.Dst, h.Src, inet.EtherTypeIPv4)
	at := inet.EthernetLen + wire.PutHead(frame[inet.EthernetLen:], it)
	at += copy(frame[at:], it.Raw[:it.Offset])
	into := frame[at : at+n*width]
	if lossless {
		put(into, elements, width, it.BigEndian)
	} else if err := e.fromValues(into, values, it.Type, it.BigEndian); err != nil {
		clear(into) // the length is right, so that this does not happen
	}
	copy(frame[at+n*width:], it.Raw[it.Offset:])
	if it.UDP() {
		datagram := frame[inet.L4Offset:]
		if sum := datagram[udpSumAt:inet.UDPLen]; sum[0]|sum[1] != 0 {
			binary.BigEndian.PutUint16(sum, inet.UDPChecksum(inet.Addr(frame[26:30]), inet.Addr(frame[30:34]), datagram))
		}
	}
	e.count.Restored.Frames++
	e.count.Restored.Bytes += uint64(length)
	e.count.Restored.Payload += uint64(it.Payload)
	return wire.OK
}
