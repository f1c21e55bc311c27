package interop

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"

	"gradnic/wire/inet"
)

// putLower writes Ethernet, IPv4 and UDP of a frame that is whole otherwise.
func putLower(b []byte, f *Frame, src, dst *Station) {
	inet.PutEthernet(b, dst.MAC, src.MAC, inet.EtherTypeIPv4)
	h := inet.IPv4{Proto: inet.ProtoUDP, Src: src.IP, Dst: dst.IP, PayloadLen: len(b) - inet.L4Offset}
	u := inet.UDP{Src: src.Port, Dst: dst.Port, PayloadLen: len(b) - inet.PayloadOffset}
	if x := f.IP; x != nil {
		h.TOS, h.ID, h.TTL, h.DontFragment = uint8(x.TOS), uint16(x.ID), uint8(x.TTL), x.DF
		if x.Protocol != 0 {
			h.Proto = uint8(x.Protocol)
		}
		if a, err := inet.ParseAddr(x.Src); err == nil {
			h.Src = a
		}
		if a, err := inet.ParseAddr(x.Dst); err == nil {
			h.Dst = a
		}
	}
	if x := f.UDP; x != nil {
		if x.Src != 0 {
			u.Src = uint16(x.Src)
		}
		if x.Dst != 0 {
			u.Dst = uint16(x.Dst)
		}
	}
	inet.PutIPv4(b[inet.L3Offset:], h)
	inet.PutUDP(b[inet.L4Offset:], u)
	changeEther(b, f.Ether)
}

// changeEther changes an Ethernet header as described.
func changeEther(b []byte, x *Ether) {
	if x == nil {
		return
	}
	if m, err := inet.ParseMAC(x.Dst); err == nil {
		copy(b[0:6], m[:])
	}
	if m, err := inet.ParseMAC(x.Src); err == nil {
		copy(b[6:12], m[:])
	}
	if x.Type != 0 {
		binary.BigEndian.PutUint16(b[12:], uint16(x.Type))
	}
}

// finishLower does to a frame that is sent what its description says of lengths and checksums.
func finishLower(b []byte, f *Frame) error {
	ip := b[inet.L3Offset:inet.L4Offset]
	if x := f.IP; x != nil {
		binary.BigEndian.PutUint16(ip[2:], uint16(int(binary.BigEndian.Uint16(ip[2:]))+x.Longer))
		if x.Fragment != 0 {
			binary.BigEndian.PutUint16(ip[6:], uint16(x.Fragment))
		}
		inet.SetIPv4Checksum(ip)
		switch x.Checksum {
		case "", "good":
		case "bad":
			ip[10] ^= 0x5a
		case "zero":
			ip[10], ip[11] = 0, 0
		default:
			return fmt.Errorf("ip checksum %q: good, bad or zero", x.Checksum)
		}
	}
	x := f.UDP
	if x == nil {
		return nil
	}
	datagram := b[inet.L4Offset:]
	binary.BigEndian.PutUint16(datagram[4:], uint16(int(binary.BigEndian.Uint16(datagram[4:]))+x.Longer))
	src, dst := inet.Addr(ip[12:16]), inet.Addr(ip[16:20])
	switch x.Checksum {
	case "", "none":
	case "good":
		binary.BigEndian.PutUint16(datagram[6:], inet.UDPChecksum(src, dst, datagram))
	case "bad":
		binary.BigEndian.PutUint16(datagram[6:], inet.UDPChecksum(src, dst, datagram)^0x5a5a)
	case "pseudo":
		binary.BigEndian.PutUint16(datagram[6:], inet.PseudoHeaderSum(src, dst, inet.ProtoUDP, len(datagram)))
	default:
		return fmt.Errorf("udp checksum %q: none, good, bad or pseudo", x.Checksum)
	}
	return nil
}

// shape puts in IPv4 options and a VLAN tag, and brings the frame to its size.
func (b *built) shape(f *Frame) {
	insert := func(at int, bytes ...byte) {
		b.frame = append(b.frame[:at:at], append(bytes, b.frame[at:]...)...)
		b.mask = append(b.mask[:at:at], append([]byte(strings.Repeat("\xff", len(bytes))), b.mask[at:]...)...)
	}
	if f.IP != nil && f.IP.Options {
		insert(inet.L4Offset, 1, 1, 1, 1) // no-operation
		ip := b.frame[inet.L3Offset:]
		ip[0] = 0x46
		binary.BigEndian.PutUint16(ip[2:], binary.BigEndian.Uint16(ip[2:])+4)
		ip[10], ip[11] = 0, 0
		binary.BigEndian.PutUint16(ip[10:], inet.Checksum(ip[:24]))
	}
	if f.VLAN != 0 {
		insert(12, 0x81, 0x00, byte(f.VLAN>>8), byte(f.VLAN))
	}
	if f.Size == 0 {
		return
	}
	for len(b.frame) < f.Size {
		b.frame, b.mask = append(b.frame, f.Fill), append(b.mask, 0xff)
	}
	b.frame, b.mask = b.frame[:f.Size], b.mask[:f.Size]
}

// buildHex is a frame that is given whole.
func (sc *scope) buildHex(f *Frame) (*built, error) {
	text := strings.Join(strings.Fields(f.Hex), "")
	stations := map[string]Station{"nic": sc.o.NIC}
	for r := range sc.o.workers() {
		stations[fmt.Sprintf("w%d", r)] = sc.worker(r)
	}
	for name, s := range stations {
		text = strings.ReplaceAll(text, "{"+name+".mac}", hex.EncodeToString(s.MAC[:]))
		text = strings.ReplaceAll(text, "{"+name+".ip}", hex.EncodeToString(s.IP[:]))
	}
	// Bytes that are not compared are written as "..".
	mask := make([]byte, 0, len(text)/2)
	for i := 0; i+1 < len(text); i += 2 {
		if text[i:i+2] == ".." {
			mask = append(mask, 0)
		} else {
			mask = append(mask, 0xff)
		}
	}
	frame, err := hex.DecodeString(strings.ReplaceAll(text, ".", "0"))
	if err != nil {
		return nil, fmt.Errorf("hex: %w", err)
	}
	b := &built{frame: frame, mask: mask, what: "as bytes"}
	b.shape(f)
	return b, nil
}
