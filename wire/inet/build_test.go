package inet

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"pgregory.net/rapid"
)

// The example header of RFC 1071's literature: sum and complement known.
func TestChecksumKnown(t *testing.T) {
	b, _ := hex.DecodeString("45000073000040004011b861c0a80001c0a800c7")
	if c := Checksum(b); c != 0 {
		t.Errorf("sum over a header with its checksum is %#x, want 0", c)
	}
	b[10], b[11] = 0, 0
	if c := Checksum(b); c != 0xb861 {
		t.Errorf("checksum %#x, want 0xb861", c)
	}
	// RFC 1071 section 3.
	if s := Sum(0, []byte{0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7}); s != 0xddf2 {
		t.Errorf("sum %#x, want 0xddf2", s)
	}
}

func slowSum(b []byte) uint16 {
	var s uint32
	for i := range b {
		w := uint32(b[i])
		if i%2 == 0 {
			w <<= 8
		}
		s += w
		s = s&0xffff + s>>16
	}
	return uint16(s)
}

func TestSumAgainstBytewise(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.SliceOfN(rapid.Byte(), 0, 1500).Draw(t, "bytes")
		got, want := uint16(Sum(0, b)), slowSum(b)
		if got != want && got^want != 0xffff { // 0 and 0xffff are the same number
			t.Fatalf("sum %#x, want %#x", got, want)
		}
	})
	if s := Sum(0xffff, bytes.Repeat([]byte{0xff}, 65535)); s > 0xffff {
		t.Errorf("sum %#x is not folded", s)
	}
}

// The builders must write what an independent library writes.
func TestBuildersAgainstGopacket(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		src := Addr(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "src"))
		dst := Addr(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "dst"))
		payload := rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "payload")
		h := IPv4{
			TOS: rapid.Byte().Draw(t, "tos"), ID: rapid.Uint16().Draw(t, "id"),
			DontFragment: rapid.Bool().Draw(t, "df"), TTL: rapid.ByteMin(1).Draw(t, "ttl"),
			Proto: ProtoUDP, Src: src, Dst: dst, PayloadLen: UDPLen + len(payload),
		}
		u := UDP{Src: rapid.Uint16().Draw(t, "sport"), Dst: rapid.Uint16().Draw(t, "dport"), PayloadLen: len(payload)}

		ip := &layers.IPv4{Version: 4, TOS: h.TOS, Id: h.ID, TTL: h.TTL, Protocol: layers.IPProtocolUDP, SrcIP: src[:], DstIP: dst[:]}
		if h.DontFragment {
			ip.Flags = layers.IPv4DontFragment
		}
		udp := &layers.UDP{SrcPort: layers.UDPPort(u.Src), DstPort: layers.UDPPort(u.Dst)}
		if err := udp.SetNetworkLayerForChecksum(ip); err != nil {
			t.Fatal(err)
		}
		buf := gopacket.NewSerializeBuffer()
		err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
			&layers.Ethernet{SrcMAC: hostMAC[:], DstMAC: nicMAC[:], EthernetType: layers.EthernetTypeIPv4}, ip, udp, gopacket.Payload(payload))
		if err != nil {
			t.Fatal(err)
		}

		got := bytes.Repeat([]byte{0xaa}, PayloadOffset+len(payload))
		n := PutEthernet(got, nicMAC, hostMAC, EtherTypeIPv4)
		n += PutIPv4(got[n:], h)
		m := n
		n += PutUDP(got[n:], u)
		copy(got[n:], payload)
		binary.BigEndian.PutUint16(got[40:], UDPChecksum(src, dst, got[m:]))
		want := buf.Bytes()[:len(got)]
		if !bytes.Equal(got, want) {
			t.Fatalf("\n got %x\nwant %x", got, want)
		}
	})
}

func TestIPv4DefaultTTL(t *testing.T) {
	b := make([]byte, 20)
	PutIPv4(b, IPv4{})
	if b[8] != 64 {
		t.Errorf("TTL %d, want 64", b[8])
	}
}

// A datagram whose checksum comes out as 0 must carry 0xffff.
func TestUDPChecksumNeverZero(t *testing.T) {
	d := make([]byte, 10)
	PutUDP(d, UDP{Src: 1, Dst: 2, PayloadLen: 2})
	s := uint32(PseudoHeaderSum(hostIP, nicIP, ProtoUDP, 10))
	s = Sum(s, d[:6])
	binary.BigEndian.PutUint16(d[8:], ^uint16(s))
	if c := UDPChecksum(hostIP, nicIP, d); c != 0xffff {
		t.Errorf("checksum %#x, want 0xffff", c)
	}
}

// The value the real client leaves in its frames.
func TestPseudoHeaderSumAsRecorded(t *testing.T) {
	if s := PseudoHeaderSum(hostIP, nicIP, ProtoUDP, 274); s != 0x1686 {
		t.Errorf("sum %#x, want 0x1686", s)
	}
}
