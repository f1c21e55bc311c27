package bump

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"gradnic/wire/inet"
)

// TestPartialChecksums: what Linux hands to a veth, with the pseudo header's sum only, leaves with the checksum that an
// independent library computes; what has one, or a wrong one, leaves as it came.
func TestPartialChecksums(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	src6, dst6 := bytes.Repeat([]byte{0xfd}, 16), bytes.Repeat([]byte{0xfe}, 16)
	for i := range 400 {
		payload := make([]byte, 30+r.IntN(60)) // long enough that nothing is padded
		for k := range payload {
			payload[k] = byte(r.Uint32())
		}
		var ip gopacket.NetworkLayer
		var ls []gopacket.SerializableLayer
		next := layers.EthernetTypeIPv4
		proto := layers.IPProtocolUDP
		if i&1 == 1 {
			proto = layers.IPProtocolTCP
		}
		if i&2 == 0 {
			v4 := &layers.IPv4{Version: 4, TTL: 9, Protocol: proto, SrcIP: hostIP[0][:], DstIP: hostIP[1][:]}
			ip, ls = v4, append(ls, v4)
		} else {
			next = layers.EthernetTypeIPv6
			v6 := &layers.IPv6{Version: 6, HopLimit: 9, NextHeader: proto, SrcIP: src6, DstIP: dst6}
			ip, ls = v6, append(ls, v6)
		}
		at := udpSumAt
		if proto == layers.IPProtocolUDP {
			u := &layers.UDP{SrcPort: 5, DstPort: layers.UDPPort(r.IntN(65536))}
			if err := u.SetNetworkLayerForChecksum(ip); err != nil {
				t.Fatal(err)
			}
			ls = append(ls, u)
		} else {
			at = tcpSumAt
			u := &layers.TCP{SrcPort: 5, DstPort: layers.TCPPort(r.IntN(65536)), Seq: r.Uint32()}
			if err := u.SetNetworkLayerForChecksum(ip); err != nil {
				t.Fatal(err)
			}
			ls = append(ls, u)
		}
		eth := &layers.Ethernet{SrcMAC: hostMAC[0][:], DstMAC: hostMAC[1][:], EthernetType: next}
		head := []gopacket.SerializableLayer{eth}
		if i&4 != 0 {
			eth.EthernetType = layers.EthernetTypeDot1Q
			head = append(head, &layers.Dot1Q{VLANIdentifier: 7, Type: next})
		}
		buf := gopacket.NewSerializeBuffer()
		err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, append(append(head, ls...), gopacket.Payload(payload))...)
		if err != nil {
			t.Fatal(err)
		}
		want := buf.Bytes()
		l4 := len(want) - len(payload) - 8
		if proto == layers.IPProtocolTCP {
			l4 -= 12
		}
		length := len(want) - l4
		var addresses []byte
		if i&2 == 0 {
			addresses = append(hostIP[0][:], hostIP[1][:]...)
		} else {
			addresses = append(bytes.Clone(src6), dst6...)
		}
		pseudo := inet.Sum(inet.Sum(0, addresses), []byte{byte(length >> 8), byte(length), 0, byte(proto)})
		frame := bytes.Clone(want)
		binary.BigEndian.PutUint16(frame[l4+at:], uint16(pseudo))
		if !complete(frame) || !bytes.Equal(frame, want) {
			t.Fatalf("case %d: completed to\n%x, want\n%x", i, frame, want)
		}
		if complete(frame) {
			t.Fatalf("case %d: a right checksum was changed", i)
		}
		frame[l4+at] ^= 0x40
		wrong := bytes.Clone(frame)
		if binary.BigEndian.Uint16(frame[l4+at:]) != uint16(pseudo) && (complete(frame) || !bytes.Equal(frame, wrong)) {
			t.Fatalf("case %d: a wrong checksum was changed", i)
		}
	}
}

// TestPartialOfARule: an item of a frame with a partial checksum is restored with the whole one.
func TestPartialOfARule(t *testing.T) {
	p := newPair(t, "udp dport=9000 offset=0 type=float32 codec=lossless", "tcp dport=9000 codec=lossless")
	p.meet()
	for _, whole := range [][]byte{datagram(0, 1, 9000, 0, make([]byte, 800)), segment(0, 1, 9000, 0, 7, make([]byte, 800))} {
		f := bytes.Clone(whole)
		at := 34 + udpSumAt
		if f[23] == protoTCP {
			at = 34 + tcpSumAt
		}
		binary.BigEndian.PutUint16(f[at:], inet.PseudoHeaderSum(hostIP[0], hostIP[1], f[23], len(f)-34))
		p.toHost[1] = nil
		p.host(0, f)
		p.carry(nil)
		if len(p.toHost[1]) != 1 || !bytes.Equal(p.toHost[1][0], whole) {
			t.Errorf("protocol %d: not restored with a whole checksum", f[23])
		}
	}
	if c := p.e[0].Status().Counters; c.Completed != 2 || c.Compressed.Frames != 2 {
		t.Errorf("%+v", c)
	}
}

// FuzzComplete: no frame panics, and none changes in length or outside of its checksum.
func FuzzComplete(f *testing.F) {
	for _, b := range [][]byte{datagram(0, 1, 2, 3, []byte("abc")), segment(0, 1, 2, 3, 4, []byte("abc")), arpFrom(0)} {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		before := bytes.Clone(b)
		done := complete(b)
		changed := 0
		for i := range b {
			if b[i] != before[i] {
				changed++
			}
		}
		if changed > 2 || !done && changed > 0 {
			t.Errorf("%d bytes changed, completed %v", changed, done)
		}
	})
}
