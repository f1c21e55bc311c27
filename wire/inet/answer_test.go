package inet

import (
	"bytes"
	"encoding/binary"
	"testing"
)

func arpFrame() []byte {
	b := make([]byte, 60)
	PutARP(b, ARP{Op: ARPRequest, SenderMAC: hostMAC, SenderIP: hostIP, TargetIP: nicIP})
	return b
}

func TestARPReply(t *testing.T) {
	for _, length := range []int{42, 60, 64, 1500} {
		b := append(arpFrame()[:42], make([]byte, length-42)...)
		var a ARP
		if f := ParseARP(b, &a); f != OK {
			t.Fatal(f)
		}
		if want := (ARP{Op: 1, SenderMAC: hostMAC, SenderIP: hostIP, TargetIP: nicIP}); a != want || !a.Answerable(nicIP) {
			t.Fatalf("parsed %+v, want %+v", a, want)
		}
		if n := ReplyARP(b, nicMAC, nicIP); n != min(length, 60) {
			t.Errorf("request of %d bytes: reply of %d", length, n)
		}
		want := make([]byte, 42)
		PutARP(want, ARP{Op: ARPReply, SenderMAC: nicMAC, SenderIP: nicIP, TargetMAC: hostMAC, TargetIP: hostIP})
		if !bytes.Equal(b[:42], want) {
			t.Errorf("\n got %x\nwant %x", b[:42], want)
		}
	}
}

func TestARPRefused(t *testing.T) {
	for n := range 42 {
		var a ARP
		if f := ParseARP(arpFrame()[:n:n], &a); f != Short {
			t.Errorf("%d bytes: %v", n, f)
		}
	}
	for _, c := range []struct {
		name   string
		mutate func([]byte) []byte
	}{
		{"IPv4", put16(12, 0x0800)}, {"hardware type", put16(14, 6)}, {"protocol type", put16(16, 0x86dd)},
		{"hardware length", put8(18, 8)}, {"protocol length", put8(19, 16)},
	} {
		var a ARP
		if f := ParseARP(c.mutate(arpFrame()), &a); f != BadARP {
			t.Errorf("%s: %v, want %v", c.name, f, BadARP)
		}
	}
	for _, c := range []struct {
		name   string
		mutate func([]byte) []byte
	}{
		{"a reply", put16(20, 2)}, {"another's address", put8(41, 253)},
		{"multicast sender", put8(22, 3)}, {"zero sender", func(b []byte) []byte { clear(b[22:28]); return b }},
	} {
		var a ARP
		if f := ParseARP(c.mutate(arpFrame()), &a); f != OK || a.Answerable(nicIP) {
			t.Errorf("%s: %v, answerable %v", c.name, f, a.Answerable(nicIP))
		}
	}
	var a ARP
	probe := func(b []byte) []byte { clear(b[28:32]); return b }
	if ParseARP(probe(arpFrame()), &a) != OK || !a.Answerable(nicIP) {
		t.Error("an address probe is not answered")
	}
}

func echoFrame(data int) []byte {
	n := 42 + data
	b := make([]byte, max(n, 60))
	PutEthernet(b, nicMAC, hostMAC, EtherTypeIPv4)
	PutIPv4(b[14:], IPv4{TTL: 3, ID: 77, Proto: ProtoICMP, Src: hostIP, Dst: nicIP, PayloadLen: 8 + data})
	m := b[34:n]
	m[0] = ICMPEchoRequest
	binary.BigEndian.PutUint16(m[4:], 0x1234)
	binary.BigEndian.PutUint16(m[6:], 9)
	for i := range data {
		m[8+i] = byte(i*7 + 1)
	}
	binary.BigEndian.PutUint16(m[2:], Checksum(m))
	return b
}

func TestEchoReply(t *testing.T) {
	for _, data := range []int{0, 1, 17, 18, 19, 56, 1472} {
		b := echoFrame(data)
		want := bytes.Clone(b[42 : 42+data])
		var p Packet
		var e Echo
		if f := Parse(b, &p); f != OK {
			t.Fatal(f)
		}
		if f := ParseEcho(&p, &e); f != OK || e.ID != 0x1234 || e.Seq != 9 || len(e.Data) != data {
			t.Fatalf("%d bytes of data: %v, %+v", data, f, e)
		}
		if n := ReplyEcho(b, &p); n != max(42+data, 60) {
			t.Errorf("%d bytes of data: reply of %d", data, n)
		}
		if f := Parse(b, &p); f != OK {
			t.Fatalf("reply: %v", f)
		}
		if p.Dst != hostMAC || p.Src != nicMAC || p.DstIP != hostIP || p.SrcIP != nicIP || p.TTL != 64 {
			t.Errorf("reply %+v", p)
		}
		if c := Checksum(b[14:34]); c != 0 {
			t.Errorf("IPv4 header sums to %#x", c)
		}
		m := p.Payload
		if c := Checksum(m); c != 0 {
			t.Errorf("%d bytes of data: ICMP message sums to %#x", data, c)
		}
		if m[0] != 0 || m[1] != 0 || binary.BigEndian.Uint32(m[4:]) != 0x1234_0009 || !bytes.Equal(m[8:], want) {
			t.Errorf("reply message %x", m)
		}
	}
}

// The checksum of a reply is right for every checksum a request can have, and a
// wrong one stays wrong.
func TestEchoChecksumAllValues(t *testing.T) {
	for v := range 1 << 16 {
		b := echoFrame(2)
		binary.BigEndian.PutUint16(b[42:], uint16(v))
		binary.BigEndian.PutUint16(b[36:], 0)
		sum := Checksum(b[34:44])
		for _, wrong := range []uint16{0, 0x0100} {
			f := bytes.Clone(b)
			binary.BigEndian.PutUint16(f[36:], sum^wrong)
			var p Packet
			Parse(f, &p)
			ReplyEcho(f, &p)
			if c := Checksum(f[34:44]); (c == 0) != (wrong == 0) {
				t.Fatalf("data %#04x, request off by %#x: reply sums to %#x", v, wrong, c)
			}
		}
	}
}

func TestEchoReplyPadding(t *testing.T) {
	b := echoFrame(1)[:43:43] // not padded at all
	var p Packet
	if f := Parse(b, &p); f != OK {
		t.Fatal(f)
	}
	if n := ReplyEcho(b, &p); n != 43 {
		t.Errorf("reply of %d bytes to a request of 43", n)
	}
}

func TestEchoRefused(t *testing.T) {
	for _, c := range []struct {
		name   string
		mutate func([]byte) []byte
		want   Fault
	}{
		{"base", func(b []byte) []byte { return b }, OK},
		{"UDP", put8(23, 17), NotEcho},
		{"echo reply", put8(34, 0), NotEcho},
		{"unreachable", put8(34, 3), NotEcho},
		{"code 1", put8(35, 1), NotEcho},
		{"message of 7 bytes", put16(16, 27), BadLength},
		{"message of 0 bytes", put16(16, 20), BadLength},
		{"multicast station", put8(6, 3), NotEcho},
		{"multicast source", put8(26, 224), NotEcho},
		{"broadcast source", put8(26, 255), NotEcho},
		{"no source", put8(26, 0), NotEcho},
	} {
		b := c.mutate(echoFrame(26))
		var p Packet
		var e Echo
		Parse(b, &p)
		if f := ParseEcho(&p, &e); f != c.want {
			t.Errorf("%s: %v, want %v", c.name, f, c.want)
		}
	}
}
