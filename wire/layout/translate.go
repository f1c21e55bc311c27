package layout

import (
	"encoding/binary"
	"math/bits"

	"gradnic/wire/inet"
	"gradnic/wire/native"
	"gradnic/wire/switchml"
)

// compile makes what Enter and Leave use.
func (l *Layout) compile() {
	answer := make([]byte, 8+l.Header) // 8 bytes before, for the window of the first fields
	for i := range l.Fields {
		f := &l.Fields[i]
		switch {
		case f.Fixed != nil:
			l.fixed = append(l.fixed, f)
			f.Put(answer, 8, *f.Fixed)
		case f.Reply != nil && f.Meaning == None:
			f.Put(answer, 8, *f.Reply)
		}
	}
	l.answer = answer[8:]
	l.swap = l.Payload.Little != (l.Rules == Native)
}

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

// Enter turns the frame buf[at:at+n] of the card into one of the rules' own protocol to the NIC with this address, and
// returns where that starts and how long it is. It needs up to 60 bytes of room before the frame. On a fault other than
// OK the frame is as it was; Foreign is one that Claims does not, or whose IPv4 and UDP headers are not right.
func (l *Layout) Enter(buf []byte, at, n int, ip inet.Addr) (newAt, newLen int, f Fault) {
	frame := buf[at : at+n]
	rest := n - l.base - l.Header // bytes of payload
	udp := l.EtherType == 0
	if udp {
		var p inet.Packet
		if inet.Parse(frame, &p) != inet.OK || p.Proto != inet.ProtoUDP || p.DstPort-l.FirstPort > l.LastPort-l.FirstPort {
			return at, n, Foreign
		}
		rest = len(p.Payload) - l.Header
	} else if !l.Claims(frame) {
		return at, n, Foreign
	}
	if rest < 0 {
		return at, n, Short
	}
	for _, x := range l.fixed {
		if x.Get(frame, l.base) != *x.Fixed {
			return at, n, BadFixed
		}
	}
	var v [NumMeanings]uint64
	for m := Kind; m < NumMeanings; m++ {
		x := l.by[m]
		if x == nil {
			continue
		}
		if v[m], f = x.own(x.Get(frame, l.base)); f != OK {
			return at, n, f
		}
	}
	if l.by[Length] != nil {
		length := int(v[Length])
		if length > rest || udp && length != rest {
			return at, n, BadLength
		}
		rest = length
	}
	if l.Rules == SwitchML {
		if l.by[Size] == nil {
			c, ok := switchml.SizeOf(rest / 4)
			if !ok || rest%4 != 0 {
				return at, n, BadLength
			}
			v[Size] = uint64(c)
		} else if !udp && l.by[Length] == nil {
			want := 4 * switchml.SizeCode(v[Size]).Elements()
			if want == 0 || want > rest {
				return at, n, BadLength
			}
			rest = want
		}
	}
	start := at + l.base + l.Header // of the payload, which stays
	h := inet.PayloadOffset + l.Rules.headerLen()
	newAt = start - h
	if newAt < 0 {
		return at, n, NoRoom
	}
	port := uint16(native.Port)
	if l.Rules == SwitchML {
		port = switchml.PortBase
	}
	if udp {
		port += binary.BigEndian.Uint16(frame[36:]) - l.FirstPort
		copy(buf[newAt:newAt+inet.PayloadOffset], frame[:inet.PayloadOffset])
	} else {
		dst, src := inet.MAC(frame[0:6]), inet.MAC(frame[6:12])
		o := buf[newAt:]
		inet.PutEthernet(o, dst, src, inet.EtherTypeIPv4)
		inet.PutIPv4(o[inet.L3Offset:], inet.IPv4{Proto: inet.ProtoUDP, Src: StationIP(src), Dst: ip})
		binary.BigEndian.PutUint16(o[34:], port)
		binary.BigEndian.PutUint16(o[40:], 0)
	}
	newLen = h + rest
	o := buf[newAt : newAt+newLen]
	binary.BigEndian.PutUint16(o[16:], uint16(newLen-inet.L3Offset))
	binary.BigEndian.PutUint16(o[36:], port)
	binary.BigEndian.PutUint16(o[38:], uint16(newLen-inet.L4Offset))
	l.putOwn(o[inet.PayloadOffset:], &v, rest)
	return newAt, newLen, OK
}

// own is a value of the card in the rules' numbers.
func (x *Field) own(v uint64) (uint64, Fault) {
	if x.forward != nil {
		k := x.forward[v]
		if k < 0 {
			return 0, BadValue
		}
		return uint64(k), OK
	}
	if x.OneHot {
		if bits.OnesCount64(v) != 1 {
			return 0, BadValue
		}
		return uint64(bits.TrailingZeros64(v)), OK
	}
	if v > x.limit {
		return 0, BadValue
	}
	return v, OK
}

// putOwn writes the rules' own header, and brings the values that follow it to the rules' byte order.
func (l *Layout) putOwn(b []byte, v *[NumMeanings]uint64, rest int) {
	if l.Rules == SwitchML {
		b[0] = switchml.MessageType<<4 | byte(v[Size])&7
		b[1] = byte(v[Job])
		binary.BigEndian.PutUint32(b[2:], uint32(v[Tag]))
		binary.BigEndian.PutUint16(b[6:], switchml.PoolIndexOf(int(v[Version]), int(v[Slot])))
		b[8], b[9] = byte(v[Exponent0]), byte(v[Exponent1])
		if l.swap {
			swap(b[switchml.HeaderLen:switchml.HeaderLen+rest], 4)
		}
		return
	}
	typ := l.typ
	if l.by[Type] != nil {
		typ = v[Type]
	}
	if l.by[Job] == nil {
		v[Job] = l.job
	}
	count := v[Count]
	size := native.Type(typ).Size()
	if l.by[Count] == nil && size > 0 && carriesValues(native.Kind(v[Kind])) {
		count = uint64(rest / size)
	}
	h := native.Header{
		Kind: native.Kind(v[Kind]), Flags: native.Flags(v[Flags]), Type: native.Type(typ), Codec: uint8(v[Codec]), Job: uint16(v[Job]),
		Rank: uint16(v[Worker]), Epoch: uint32(v[Epoch]), Round: uint32(v[Round]), Slot: uint32(v[Slot]), Collective: uint32(v[Tag]),
		Elements: uint16(count), Plane: uint8(v[Plane]),
	}
	h.Put(b, rest)
	if l.swap && h.Codec == 0 && carriesValues(h.Kind) {
		swap(b[native.HeaderLen:native.HeaderLen+rest], size)
	}
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
	h := inet.PayloadOffset + l.Rules.headerLen()
	if n < h {
		return at, n, false
	}
	var old [native.ValuesOffset]byte
	copy(old[:], buf[at:at+h])
	own := old[inet.PayloadOffset:h]
	var v [NumMeanings]uint64
	rest := n - h
	if !l.getOwn(own, &v, rest) {
		return at, n, false
	}
	head := l.base + l.Header
	newAt, newLen = at+h-head, head+rest
	// What the fields will hold, before anything is written.
	var put [NumMeanings]uint64
	for m := Kind; m < NumMeanings; m++ {
		x := l.by[m]
		if x == nil {
			continue
		}
		if put[m], ok = x.cards(v[m], l.Rules == Native && native.Kind(v[Kind]) == native.Result); !ok {
			return at, n, false
		}
	}
	if newAt < 0 {
		if newLen > len(buf) {
			return at, n, false
		}
		copy(buf[head:], buf[at+h:at+n])
		newAt = 0
	}
	o := buf[newAt : newAt+newLen]
	copy(o, old[:min(l.base, inet.PayloadOffset)])
	if l.EtherType != 0 {
		binary.BigEndian.PutUint16(o[12:], l.EtherType)
	} else {
		base := uint16(native.Port)
		if l.Rules == SwitchML {
			base = switchml.PortBase
		}
		binary.BigEndian.PutUint16(o[16:], uint16(newLen-inet.L3Offset))
		inet.SetIPv4Checksum(o[inet.L3Offset:])
		binary.BigEndian.PutUint16(o[34:], binary.BigEndian.Uint16(o[34:])-base+l.FirstPort)
		binary.BigEndian.PutUint16(o[38:], uint16(newLen-inet.L4Offset))
	}
	copy(o[l.base:], l.answer)
	for m := Kind; m < NumMeanings; m++ {
		if x := l.by[m]; x != nil {
			x.Put(o, l.base, put[m])
		}
	}
	if l.swap {
		switch {
		case l.Rules == SwitchML:
			swap(o[head:], 4)
		case v[Codec] == 0 && carriesValues(native.Kind(v[Kind])):
			swap(o[head:], native.Type(v[Type]).Size())
		}
	}
	return newAt, newLen, true
}

// cards is a value of the rules in the card's numbers. result is true for a native result, whose worker field has the
// number of contributions.
func (x *Field) cards(v uint64, result bool) (uint64, bool) {
	if x.Reply != nil {
		return *x.Reply, true
	}
	if x.back != nil {
		k := int16(-1)
		if v < uint64(len(x.back)) {
			k = x.back[v]
		}
		return uint64(uint16(k)), k >= 0
	}
	if x.OneHot {
		if result {
			if v > uint64(x.Width) {
				return 0, false
			}
			return x.mask >> (uint64(x.Width) - v), true
		}
		if v >= uint64(x.Width) {
			return 0, false
		}
		return 1 << v, true
	}
	if x.Meaning == Flags { // those that the card has bits for
		return v & x.mask, true
	}
	return v, v&^x.mask == 0
}

// getOwn reads the rules' own header.
func (l *Layout) getOwn(b []byte, v *[NumMeanings]uint64, rest int) bool {
	v[Length] = uint64(rest)
	if l.Rules == SwitchML {
		v[Size], v[Job], v[Tag] = uint64(b[0]&7), uint64(b[1]), uint64(binary.BigEndian.Uint32(b[2:]))
		v[Version], v[Slot] = uint64(b[6]>>7), uint64(binary.BigEndian.Uint16(b[6:])&(switchml.Slots-1))
		v[Exponent0], v[Exponent1] = uint64(b[8]), uint64(b[9])
		return b[0]>>4 == switchml.MessageType
	}
	x := native.View(b)
	v[Kind], v[Flags], v[Type], v[Codec], v[Job], v[Worker] = uint64(x.Kind()), uint64(x.Flags()), uint64(x.Type()), uint64(b[3]), uint64(x.Job()), uint64(x.Rank())
	v[Epoch], v[Round], v[Slot], v[Tag] = uint64(x.Epoch()), uint64(x.Round()), uint64(x.Slot()), uint64(x.Collective())
	v[Count], v[Plane] = uint64(x.Elements()), uint64(b[28])
	return b[0]>>4 == native.Version
}
