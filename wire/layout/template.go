package layout

import (
	"encoding/binary"

	"gradnic/wire/inet"
	"gradnic/wire/switchml"
)

// Template is the headers of a card's answer without its destination, for a result of rules switchml that goes to several
// workers. The zero value is none.
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
	var own [8 + switchml.HeaderLen]byte // as Leave would read it
	b := own[8:]
	b[0], b[1], b[8], b[9] = switchml.MessageType<<4|byte(code), r.Job, byte(r.E0), byte(r.E1)
	copy(b[2:6], r.TSI[:])
	binary.BigEndian.PutUint16(b[6:], r.PoolIndex&^(1<<14))
	rest := 4 * r.Elements
	card := l.c.template
	if !l.answer(own[:], &card, rest) {
		return t, false
	}
	t.n, t.udp = l.base+l.Header, l.EtherType == 0
	if t.udp {
		ip := t.head[inet.L3Offset:inet.L4Offset]
		inet.PutEthernet(t.head[:], inet.MAC{}, r.Switch.MAC, inet.EtherTypeIPv4)
		inet.PutIPv4(ip, inet.IPv4{TTL: switchml.ReplyTTL, Proto: inet.ProtoUDP, Src: r.Switch.IP, PayloadLen: t.n + rest - inet.L4Offset})
		inet.PutUDP(t.head[inet.L4Offset:], inet.UDP{Src: r.Switch.Port - l.c.ownPort + l.FirstPort, PayloadLen: t.n + rest - inet.PayloadOffset})
		t.sum = uint32(^binary.BigEndian.Uint16(ip[10:]))
	} else {
		inet.PutEthernet(t.head[:], inet.MAC{}, r.Switch.MAC, l.EtherType)
	}
	putWords(t.head[:t.n], card[:], l.Header)
	return t, true
}

// Len is the length of the headers; 0 for the zero value.
func (t *Template) Len() int { return t.n }

// Put writes the frame for one worker, headers and values. It panics if frame is shorter than both.
func (t *Template) Put(frame []byte, mac inet.MAC, ip inet.Addr, port uint16, values []byte) {
	frame = frame[:t.n+len(values)]
	if t.n <= 64 && len(frame) >= 64 { // one length for all, which is faster; the values come over what is behind the headers
		*(*[64]byte)(frame) = [64]byte(t.head[:64])
	} else {
		copy(frame, t.head[:t.n])
	}
	copy(frame[t.n:], values)
	*(*inet.MAC)(frame) = mac
	if t.udp {
		*(*inet.Addr)(frame[30:34]) = ip
		binary.BigEndian.PutUint16(frame[24:26], ^uint16(inet.Sum(t.sum, ip[:])))
		binary.BigEndian.PutUint16(frame[36:38], port)
	}
}

// Order brings the values of rules switchml to the card's byte order, in place.
func (l *Layout) Order(values []byte) {
	if l.swap {
		swap(values, 4)
	}
}
