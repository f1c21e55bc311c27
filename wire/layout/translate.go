package layout

import (
	"encoding/binary"
	"math/bits"

	"gradnic/wire/inet"
	"gradnic/wire/native"
	"gradnic/wire/switchml"
)

// StationIP is the IPv4 address that a station behind Ethernet alone is known by.
func StationIP(mac inet.MAC) inet.Addr { return inet.Addr{127, mac[3], mac[4], mac[5]} }

// Claims reports whether a frame is of the layout's encapsulation. It looks at no field of the header.
func (l *Layout) Claims(frame []byte) bool {
	if len(frame) < inet.PayloadOffset {
		return l.EtherType != 0 && len(frame) >= inet.EthernetLen && binary.BigEndian.Uint16(frame[12:]) == l.EtherType
	}
	t := binary.BigEndian.Uint16(frame[12:])
	if l.EtherType != 0 {
		return t == l.EtherType
	}
	port := binary.BigEndian.Uint16(frame[36:])
	return t == inet.EtherTypeIPv4 && frame[14] == 0x45 && frame[23] == inet.ProtoUDP && port-l.FirstPort <= l.LastPort-l.FirstPort
}

// datagram is the bytes of UDP payload in a frame that Claims; ok is false when its lengths contradict each other or it is
// a fragment, as inet.Parse has it.
func datagram(frame []byte) (n int, ok bool) {
	total := int(binary.BigEndian.Uint16(frame[16:]))
	udp := int(binary.BigEndian.Uint16(frame[38:]))
	fragment := binary.BigEndian.Uint16(frame[20:]) & 0x3fff
	ok = fragment == 0 && inet.L3Offset+total <= len(frame) && udp >= inet.UDPLen && inet.IPv4Len+udp <= total
	return udp - inet.UDPLen, ok
}

// Enter turns the frame buf[at:at+n] of the card, which Claims, into one of the rules' own protocol to the NIC with this
// address, and returns where that starts and how long it is. p is what inet.Parse would say of that frame; its first
// inet.PayloadOffset bytes are not written, which Lower does for those who need them. It needs up to 60 bytes of room before
// the frame, and buf to go on for MaxRunning bytes from the header's start. On a fault the frame is as it was; Foreign is one
// whose IPv4 and UDP headers are not right.
func (l *Layout) Enter(buf []byte, at, n int, ip inet.Addr, p *inet.Packet) (newAt, newLen int, f Fault) {
	frame := buf[at : at+n]
	c := &l.c
	rest := n - l.base
	if l.EtherType == 0 {
		var ok bool
		if n < inet.PayloadOffset {
			return at, n, Foreign
		}
		if rest, ok = datagram(frame); !ok {
			return at, n, Foreign
		}
	}
	if rest -= l.Header; rest < 0 {
		return at, n, Short
	}
	h, ok := spanAt(buf, at+l.base)
	if !ok {
		return at, n, NoRoom
	}
	fixed := c.fixed
	for i := range fixed {
		x := &fixed[i]
		if (h.load(x.at)^x.want)&x.mask != 0 {
			return at, n, BadFixed
		}
	}
	w := c.start
	in := c.in
	for i := range in {
		m := &in[i]
		v := h.load(m.at) >> (m.down & 63) & m.mask
		if m.how == looked {
			k := m.table[v]
			if v = uint64(uint16(k)); k < 0 {
				return at, n, BadValue
			}
		} else if v, ok = m.own(v); !ok {
			return at, n, BadValue
		}
		w.put(m.to, v)
	}
	c.inRuns.gather(&w, h)
	if m := c.lengthIn; m != nil {
		length := h.load(m.at) >> (m.down & 63) & m.mask
		if m.how == swapped {
			length = bits.ReverseBytes64(length) >> (64 - m.width)
		}
		if length > uint64(rest) || l.EtherType == 0 && length != uint64(rest) {
			return at, n, BadLength
		}
		rest = int(length)
	}
	if rest, f = l.measure(&w, rest); f != OK {
		return at, n, f
	}
	start := at + l.base + l.Header // of the payload, which stays
	lower := inet.PayloadOffset + c.ownLen
	if newAt = start - lower; newAt < 0 {
		return at, n, NoRoom
	}
	newLen = lower + rest
	end := start + rest
	p.Dst, p.Src, p.EtherType = inet.MAC(frame), inet.MAC(frame[6:]), inet.EtherTypeIPv4
	p.Proto, p.L3, p.L4, p.Payload = inet.ProtoUDP, inet.L3Offset, inet.L4Offset, buf[start-c.ownLen:end:end]
	if l.EtherType == 0 {
		p.TTL, p.SrcIP, p.DstIP = frame[22], inet.Addr(frame[26:]), inet.Addr(frame[30:])
		p.SrcPort, p.DstPort = binary.BigEndian.Uint16(frame[34:]), binary.BigEndian.Uint16(frame[36:])-l.FirstPort+c.ownPort
	} else {
		p.TTL, p.DstIP = 64, ip
		// StationIP, without stores that the next load would wait for.
		binary.BigEndian.PutUint32(p.SrcIP[:], 127<<24|binary.BigEndian.Uint32(frame[8:])&0xffffff)
		p.SrcPort, p.DstPort = c.ownPort, c.ownPort
	}
	if l.Rules == SwitchML {
		own := p.Payload[:switchml.HeaderLen]
		binary.BigEndian.PutUint64(own[2:], w[0])
		binary.BigEndian.PutUint16(own, uint16(w[1]))
	} else {
		own := p.Payload[:native.HeaderLen]
		binary.BigEndian.PutUint64(own[24:], w[0])
		binary.BigEndian.PutUint64(own[16:], w[1])
		binary.BigEndian.PutUint64(own[8:], w[2])
		binary.BigEndian.PutUint64(own, w[3])
	}
	swap(buf[start:end], l.valueSize(p.Payload))
	return newAt, newLen, OK
}

// Lower writes the Ethernet, IPv4 and UDP headers of a frame that has entered, from what Enter said of it.
func Lower(frame []byte, p *inet.Packet) {
	inet.PutEthernet(frame, p.Dst, p.Src, p.EtherType)
	inet.PutIPv4(frame[inet.L3Offset:], inet.IPv4{TTL: p.TTL, Proto: p.Proto, Src: p.SrcIP, Dst: p.DstIP, PayloadLen: inet.UDPLen + len(p.Payload)})
	inet.PutUDP(frame[inet.L4Offset:], inet.UDP{Src: p.SrcPort, Dst: p.DstPort, PayloadLen: len(p.Payload)})
	if p.TTL == 0 { // PutIPv4's default is another
		frame[22] = 0
		inet.SetIPv4Checksum(frame[inet.L3Offset:])
	}
}

// spanAt is the span of a header that starts at this byte of buf; ok is false when buf ends too early.
func spanAt(buf []byte, at int) (h *span, ok bool) {
	if buf = buf[at-7:]; len(buf) < len(h) {
		return nil, false
	}
	return (*span)(buf), true
}

// putWords writes n bytes of a header's words so that they end with b.
func putWords(b []byte, w []uint64, n int) {
	for n >= 8 {
		k := len(b) - 8
		binary.BigEndian.PutUint64(b[k:], w[0])
		b, w, n = b[:k], w[1:], n-8
	}
	for ; n > 0; n-- {
		b[len(b)-1] = byte(w[0])
		b = b[:len(b)-1]
		w[0] >>= 8
	}
}

// own is a card's value in the rules' numbers, but for those that are looked up.
func (m *move) own(v uint64) (uint64, bool) {
	switch m.how {
	case oneHot:
		return uint64(bits.TrailingZeros64(v)), bits.OnesCount64(v) == 1
	case swapped:
		v = bits.ReverseBytes64(v) >> (64 - m.width)
	}
	return v, v <= m.limit
}

// measure is the length of the payload, of rest bytes, and what the rules' header says of it.
func (l *Layout) measure(w *words, rest int) (int, Fault) {
	if l.Rules == SwitchML {
		switch {
		case l.by[Size] == nil:
			code, ok := switchml.SizeOf(rest / 4)
			if !ok || rest%4 != 0 {
				return rest, BadLength
			}
			w[1] |= uint64(code) << 8 // byte 0
		case l.EtherType != 0 && l.by[Length] == nil:
			want := 4 * switchml.SizeCode(w[1]>>8&7).Elements()
			if want == 0 || want > rest {
				return rest, BadLength
			}
			rest = want
		}
		return rest, OK
	}
	w[0] |= uint64(rest) << 32 // native: bytes 26 and 27
	if l.c.count {
		if size := native.Type(w[3] >> 40).Size(); size > 0 && carriesValues(native.Kind(w[3]>>56&15)) {
			w[0] |= uint64(rest/size) << 48
		}
	}
	return rest, OK
}

// valueSize is the bytes of the elements whose byte order differs in a message with this own header; 0 for none.
func (l *Layout) valueSize(own []byte) int {
	switch {
	case !l.swap:
		return 0
	case l.Rules == SwitchML:
		return 4
	case own[3] != 0 || !carriesValues(native.Kind(own[0]&15)): // a codec, or a body
		return 0
	}
	return native.Type(own[2]).Size()
}

func carriesValues(k native.Kind) bool {
	return k == native.Contribution || k == native.Result || k == native.Supply
}

// swap turns the bytes of each element around. Bytes that make no whole element stay.
func swap(b []byte, size int) {
	switch size {
	case 2:
		for ; len(b) >= 2; b = b[2:] {
			b[0], b[1] = b[1], b[0]
		}
	case 4:
		for ; len(b) >= 8; b = b[8:] { // two at a time
			v := bits.ReverseBytes64(binary.BigEndian.Uint64(b))
			binary.BigEndian.PutUint64(b, bits.RotateLeft64(v, 32))
		}
		if len(b) >= 4 {
			binary.BigEndian.PutUint32(b, binary.LittleEndian.Uint32(b))
		}
	case 8:
		for ; len(b) >= 8; b = b[8:] {
			binary.BigEndian.PutUint64(b, binary.LittleEndian.Uint64(b))
		}
	}
}

// Leave turns the frame buf[at:at+n] of the rules' own protocol, which the NIC has made, into one of the card. The payload
// stays where it lies when there is room before it, else it moves up. ok is false, and nothing changed, when the frame is
// not of the rules' protocol, a value does not fit into the card's field, or buf is too short.
func (l *Layout) Leave(buf []byte, at, n int) (newAt, newLen int, ok bool) {
	c := &l.c
	h := inet.PayloadOffset + c.ownLen
	if n < h || at+n > len(buf) {
		return at, n, false
	}
	start := at + h
	src, ok := spanAt(buf, start-c.ownLen)
	if !ok {
		return at, n, false
	}
	own := src[7:]
	if l.Rules == Native && own[0]>>4 != native.Version || l.Rules == SwitchML && own[0]>>4 != switchml.MessageType {
		return at, n, false
	}
	size := l.valueSize(own)
	card := c.template // of its own: it is filled in
	head, rest := l.base+l.Header, n-h
	if !l.answer(src, &card, rest) {
		return at, n, false
	}
	newAt, newLen = start-head, head+rest
	if newAt < 0 { // the frame begins with buf, and its payload moves up; at is not behind head, so that nothing is written over
		if newLen > len(buf) {
			return at, n, false
		}
		copy(buf[head:], buf[start:at+n])
		newAt, start = 0, head
	}
	if newAt != at {
		copy(buf[newAt:newAt+l.base], buf[at:at+l.base])
	}
	lower := buf[newAt : newAt+l.base]
	if l.EtherType != 0 {
		binary.BigEndian.PutUint16(lower[12:], l.EtherType)
	} else {
		if c.ownPort != l.FirstPort {
			binary.BigEndian.PutUint16(lower[34:], binary.BigEndian.Uint16(lower[34:])-c.ownPort+l.FirstPort)
		}
		if newLen != n {
			binary.BigEndian.PutUint16(lower[16:], uint16(newLen-inet.L3Offset))
			binary.BigEndian.PutUint16(lower[38:], uint16(newLen-inet.L4Offset))
			inet.SetIPv4Checksum(lower[inet.L3Offset:])
		}
	}
	putWords(buf[:start], card[:], l.Header)
	swap(buf[start:start+rest], size)
	return newAt, newLen, true
}

// answer fills a card's header in from an own one, with rest bytes of payload. It is false when a value does not fit.
func (l *Layout) answer(src *span, card *words, rest int) bool {
	c := &l.c
	result := l.Rules == Native && native.Kind(src[7]&15) == native.Result
	for i := range c.out {
		m := &c.out[i]
		v, ok := m.card(src.load(m.at)>>(m.down&63)&m.mask, result)
		if !ok {
			return false
		}
		card.put(m.to, v)
	}
	c.outRuns.gather(card, src)
	if m := c.length; m != nil {
		v, ok := m.card(uint64(rest), false)
		if !ok {
			return false
		}
		card.put(m.to, v)
	}
	return true
}

// card is a value of the rules in the card's numbers. result is true for a native result, whose worker has the number of
// contributions.
func (m *move) card(v uint64, result bool) (uint64, bool) {
	switch m.how {
	case looked:
		if v >= uint64(len(m.table)) {
			return 0, false
		}
		k := m.table[v]
		return uint64(uint16(k)), k >= 0
	case oneHot:
		switch {
		case result && v <= uint64(m.width):
			return m.limit >> (uint64(m.width) - v), true
		case !result && v < uint64(m.width):
			return 1 << v, true
		}
		return 0, false
	case swapped:
		return bits.ReverseBytes64(v) >> (64 - m.width), v <= m.limit
	}
	return v, v <= m.limit
}
