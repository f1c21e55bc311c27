package layout

import (
	"encoding/binary"

	"gradnic/wire/inet"
	"gradnic/wire/native"
	"gradnic/wire/switchml"
)

// Template is the headers of a card's answer without its destination, for a result that goes to several workers. The zero
// value is none.
type Template struct {
	head [inet.PayloadOffset + MaxRunning]byte
	n    int
	udp  bool
	sum  uint32 // of the IPv4 header without checksum and destination
}

// NewTemplate makes the headers of an answer by rules switchml; the reply's worker is not looked at, and the switch's port is
// SwitchML's own. Values behind them are in the card's byte order: Order brings others there. ok is false when the rules are
// others, or a value does not fit into the card's field.
func (l *Layout) NewTemplate(r *switchml.Reply) (t Template, ok bool) {
	code, ok := switchml.SizeOf(r.Elements)
	if !ok || l.Rules != SwitchML {
		return t, false
	}
	var own span // as Leave would read it
	b := own[7:]
	b[0], b[1], b[8], b[9] = switchml.MessageType<<4|byte(code), r.Job, byte(r.E0), byte(r.E1)
	copy(b[2:6], r.TSI[:])
	binary.BigEndian.PutUint16(b[6:], r.PoolIndex&^(1<<14))
	ok = l.template(&t, &own, r.Switch, inet.IPv4{TTL: switchml.ReplyTTL}, 4*r.Elements)
	return t, ok
}

// NewResult is NewTemplate for a message with so many bytes of values by rules native.
func (l *Layout) NewResult(from *native.Endpoint, h *native.Header, payload int) (t Template, ok bool) {
	if l.Rules != Native {
		return t, false
	}
	var own span
	h.Put(own[7:], payload)
	ok = l.template(&t, &own, switchml.Endpoint(*from), inet.IPv4{TTL: native.TTL, DontFragment: true}, payload)
	return t, ok
}

// template fills t in from an own header. ip says what differs between protocols.
func (l *Layout) template(t *Template, src *span, from switchml.Endpoint, ip inet.IPv4, rest int) bool {
	card := l.c.template
	if !l.answer(src, &card, rest) {
		return false
	}
	t.n, t.udp = l.base+l.Header, l.EtherType == 0
	if t.udp {
		h := t.head[inet.L3Offset:inet.L4Offset]
		ip.Proto, ip.Src, ip.PayloadLen = inet.ProtoUDP, from.IP, t.n+rest-inet.L4Offset
		inet.PutEthernet(t.head[:], inet.MAC{}, from.MAC, inet.EtherTypeIPv4)
		inet.PutIPv4(h, ip)
		inet.PutUDP(t.head[inet.L4Offset:], inet.UDP{Src: from.Port - l.c.ownPort + l.FirstPort, PayloadLen: t.n + rest - inet.PayloadOffset})
		t.sum = uint32(^binary.BigEndian.Uint16(h[10:]))
	} else {
		inet.PutEthernet(t.head[:], inet.MAC{}, from.MAC, l.EtherType)
	}
	putWords(t.head[:t.n], card[:], l.Header)
	return true
}

// Len is the length of the headers; 0 for the zero value.
func (t *Template) Len() int { return t.n }

// Put writes the frame for one worker, headers and values, which lie elsewhere. It panics if frame is shorter than both.
func (t *Template) Put(frame []byte, mac inet.MAC, ip inet.Addr, port uint16, values []byte) {
	frame = frame[:t.n+len(values)]
	if t.n <= 64 && len(frame) >= 64 { // one length for all, which is faster; the values come over what is behind the headers
		*(*[64]byte)(frame) = [64]byte(t.head[:64])
	} else {
		copy(frame, t.head[:t.n])
	}
	t.to(frame, mac, ip, port)
	copy(frame[t.n:], values)
}

// PutHeaders is Put for a frame that has its values.
func (t *Template) PutHeaders(frame []byte, mac inet.MAC, ip inet.Addr, port uint16) {
	copy(frame[:t.n], t.head[:t.n])
	t.to(frame, mac, ip, port)
}

// to writes the destination.
func (t *Template) to(frame []byte, mac inet.MAC, ip inet.Addr, port uint16) {
	*(*inet.MAC)(frame) = mac
	if !t.udp {
		return
	}
	sum := t.sum
	if mac.IsMulticast() { // as native.Template has it
		sum += 0xffff - (uint32(frame[22])-native.MulticastTTL)<<8
		frame[22] = native.MulticastTTL
	}
	*(*inet.Addr)(frame[30:34]) = ip
	binary.BigEndian.PutUint16(frame[24:26], ^uint16(inet.Sum(sum, ip[:])))
	binary.BigEndian.PutUint16(frame[36:38], port)
}

// Order brings values with so many bytes an element from the rules' byte order to the card's, in place.
func (l *Layout) Order(values []byte, size int) {
	if l.swap {
		swap(values, size)
	}
}
