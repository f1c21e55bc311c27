package inet

import (
	"bytes"
	"encoding/binary"
	"testing"
)

var (
	hostMAC = MAC{0x02, 0, 0, 0, 1, 0}
	nicMAC  = MAC{0x06, 0, 0, 0, 0, 0xfe}
	hostIP  = Addr{10, 50, 0, 1}
	nicIP   = Addr{10, 50, 0, 254}
)

// udpFrame is the base packet that the tables mutate: 60 bytes, 18 of payload.
func udpFrame() []byte {
	b := make([]byte, 60)
	n := PutEthernet(b, nicMAC, hostMAC, EtherTypeIPv4)
	n += PutIPv4(b[n:], IPv4{TTL: 7, Proto: ProtoUDP, Src: hostIP, Dst: nicIP, PayloadLen: 26})
	n += PutUDP(b[n:], UDP{Src: 4000, Dst: 48864, PayloadLen: 18})
	for i := range b[n:] {
		b[n+i] = byte(i + 1)
	}
	return b
}

func put16(off int, v uint16) func([]byte) []byte {
	return func(b []byte) []byte { binary.BigEndian.PutUint16(b[off:], v); return b }
}

func put8(off int, v byte) func([]byte) []byte {
	return func(b []byte) []byte { b[off] = v; return b }
}

func tag(tpids ...uint16) func([]byte) []byte {
	return func(b []byte) []byte {
		out := append([]byte{}, b[:12]...)
		for _, id := range tpids {
			out = binary.BigEndian.AppendUint16(out, id)
			out = append(out, 0x20, 0x05)
		}
		return append(out, b[12:]...)
	}
}

func TestParseBase(t *testing.T) {
	b := udpFrame()
	var p Packet
	if f := Parse(b, &p); f != OK {
		t.Fatal(f)
	}
	if p.Dst != nicMAC || p.Src != hostMAC || p.EtherType != 0x0800 || p.SrcIP != hostIP || p.DstIP != nicIP ||
		p.Proto != 17 || p.TTL != 7 || p.SrcPort != 4000 || p.DstPort != 48864 || p.L3 != 14 || p.L4 != 34 {
		t.Errorf("parsed %+v", p)
	}
	if !bytes.Equal(p.Payload, b[42:60]) || &p.Payload[0] != &b[42] || cap(p.Payload) != 18 {
		t.Errorf("payload %x (cap %d) is not the frame's bytes 42..60", p.Payload, cap(p.Payload))
	}
}

// One base packet, one mutation, one verdict.
func TestParseMutations(t *testing.T) {
	same := func(b []byte) []byte { return b }
	for _, c := range []struct {
		name   string
		mutate func([]byte) []byte
		want   Fault
		length int // of the payload when OK
	}{
		{"base", same, OK, 18},
		{"bad IPv4 checksum", put16(24, 0xdead), OK, 18},
		{"bad UDP checksum", put16(40, 0xdead), OK, 18},
		{"type of service", put8(15, 0xff), OK, 18},
		{"don't fragment", put16(20, 0x4000), OK, 18},
		{"reserved flag", put16(20, 0x8000), OK, 18},
		{"more fragments", put16(20, 0x2000), Fragment, 0},
		{"fragment offset 1", put16(20, 0x0001), Fragment, 0},
		{"fragment offset 8191", put16(20, 0x1fff), Fragment, 0},
		{"VLAN", tag(0x8100), Tagged, 0},
		{"service tag", tag(0x88a8), Tagged, 0},
		{"old service tag", tag(0x9100), Tagged, 0},
		{"QinQ", tag(0x88a8, 0x8100), Tagged, 0},
		{"two customer tags", tag(0x8100, 0x8100), Tagged, 0},
		{"ARP", put16(12, 0x0806), NotIPv4, 0},
		{"IPv6", put16(12, 0x86dd), NotIPv4, 0},
		{"LLDP", put16(12, 0x88cc), NotIPv4, 0},
		{"802.3 length", put16(12, 46), NotIPv4, 0},
		{"version 6 under 0x0800", put8(14, 0x65), BadVersion, 0},
		{"version 0", put8(14, 0x05), BadVersion, 0},
		{"header length 4", put8(14, 0x44), BadLength, 0},
		{"header length 0", put8(14, 0x40), BadLength, 0},
		{"options of 4 bytes", put8(14, 0x46), Options, 0},
		{"options of 40 bytes", put8(14, 0x4f), Options, 0},
		{"total length 0", put16(16, 0), BadLength, 0},
		{"total length 19", put16(16, 19), BadLength, 0},
		{"total length 27", put16(16, 27), BadLength, 0},
		{"total length one less", put16(16, 45), BadLength, 0}, // the UDP length does not fit any more
		{"total length one more", put16(16, 47), Short, 0},
		{"total length 65535", put16(16, 65535), Short, 0},
		{"UDP length 0", put16(38, 0), BadLength, 0},
		{"UDP length 7", put16(38, 7), BadLength, 0},
		{"UDP length 8", put16(38, 8), OK, 0},
		{"UDP length one less", put16(38, 25), OK, 17},
		{"UDP length one more", put16(38, 27), BadLength, 0},
		{"UDP length 65535", put16(38, 65535), BadLength, 0},
		{"TCP", put8(23, 6), OK, 26},
		{"ICMP", put8(23, 1), OK, 26},
		{"Ethernet padding", func(b []byte) []byte { return append(b, make([]byte, 40)...) }, OK, 18},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := Packet{Payload: []byte("left from before"), SrcPort: 99, L4: 99}
			if f := Parse(c.mutate(udpFrame()), &p); f != c.want {
				t.Fatalf("got %v, want %v", f, c.want)
			}
			if len(p.Payload) != c.length {
				t.Errorf("payload of %d bytes, want %d", len(p.Payload), c.length)
			}
			if c.want != OK && (p.SrcPort != 0 || p.L4 == 99) {
				t.Errorf("fields from an earlier packet are left: %+v", p)
			}
		})
	}
}

func TestParseShortAtEveryLength(t *testing.T) {
	whole := udpFrame()
	for n := range len(whole) {
		// A slice without spare capacity, so that reading on would panic.
		b := append(make([]byte, 0, n), whole[:n]...)
		var p Packet
		if f := Parse(b[:n:n], &p); f != Short {
			t.Errorf("first %d bytes: %v, want %v", n, f, Short)
		}
	}
	// A datagram without payload and without padding is as short as it gets.
	b := udpFrame()[:42]
	binary.BigEndian.PutUint16(b[16:], 28)
	binary.BigEndian.PutUint16(b[38:], 8)
	var p Packet
	if f := Parse(b, &p); f != OK || len(p.Payload) != 0 {
		t.Errorf("empty datagram: %v with %d bytes", f, len(p.Payload))
	}
}

func TestParseAllocatesNothing(t *testing.T) {
	b := udpFrame()
	var p Packet
	if n := testing.AllocsPerRun(100, func() { Parse(b, &p) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestFaultNames(t *testing.T) {
	seen := map[string]bool{}
	for f := range NumFaults {
		s := Fault(f).String()
		if s == "" || seen[s] {
			t.Errorf("fault %d is called %q", f, s)
		}
		seen[s] = true
	}
	if s := Fault(NumFaults).String(); s != "unknown-fault" {
		t.Errorf("got %q", s)
	}
}

// Whatever the bytes are: no panic, the payload lies in the frame, and the
// verdict agrees with the fields that led to it.
func FuzzParse(f *testing.F) {
	f.Add(udpFrame())
	f.Add(tag(0x88a8, 0x8100)(udpFrame()))
	f.Add(put8(14, 0x46)(udpFrame()))
	f.Add(put16(20, 0x2000)(udpFrame()))
	f.Add(put16(16, 47)(udpFrame()))
	f.Add(echoFrame(5))
	f.Add(arpFrame())
	f.Fuzz(func(t *testing.T, b []byte) {
		b = b[:len(b):len(b)]
		before := bytes.Clone(b)
		var p Packet
		switch fault := Parse(b, &p); fault {
		case OK:
			if p.L3 != 14 || p.L4 != 34 || b[14] != 0x45 {
				t.Fatalf("accepted %x", b)
			}
			start := 34
			if p.Proto == ProtoUDP {
				start = 42
			}
			if start+len(p.Payload) > len(b) || !bytes.Equal(p.Payload, b[start:start+len(p.Payload)]) {
				t.Fatalf("payload is not in the frame: %x", b)
			}
			var e Echo
			if ParseEcho(&p, &e) == OK {
				if n := ReplyEcho(b, &p); n > len(b) || n < 34 || Checksum(b[14:34]) != 0 {
					t.Fatalf("echo reply of %d bytes in a frame of %d, header sum %#x", n, len(b), Checksum(b[14:34]))
				}
				return
			}
		case Short:
			if len(b) >= 34 && 14+int(binary.BigEndian.Uint16(b[16:])) <= len(b) {
				t.Fatalf("short, but is not: %x", b)
			}
		case NotIPv4:
			var a ARP
			if ParseARP(b, &a) == OK && a.Answerable(nicIP) {
				if n := ReplyARP(b, nicMAC, nicIP); n < 42 || n > len(b) {
					t.Fatalf("ARP reply of %d bytes in a frame of %d", n, len(b))
				}
				return
			}
		}
		if !bytes.Equal(b, before) {
			t.Fatal("parsing changed the frame")
		}
	})
}

func BenchmarkParse(b *testing.B) {
	f := udpFrame()
	var p Packet
	for b.Loop() {
		if Parse(f, &p) != OK {
			b.Fatal("refused")
		}
	}
}
