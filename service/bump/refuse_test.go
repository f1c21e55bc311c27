package bump

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"gradnic/codec"
	wire "gradnic/wire/bump"
	"gradnic/wire/inet"
)

// An item of a TCP segment is lossless or refused, whatever the far end's rules have become.
func TestLossyTCPRefused(t *testing.T) {
	p := newPair(t, "tcp dport=5001 codec=lossless")
	values := make([]float32, 64)
	c, err := codec.ByName("bfp16")
	if err != nil {
		t.Fatal(err)
	}
	encoded := make([]byte, c.MaxEncoded(len(values)))
	n, err := c.Encode(encoded, values, nil)
	if err != nil {
		t.Fatal(err)
	}
	head, payload, ok := wire.Head(segment(0, 1, 5001, 7, 9, make([]byte, 4*len(values))))
	if !ok {
		t.Fatal("no head")
	}
	it := wire.Item{Codec: uint8(codec.IDBFP16), Type: wire.Float32, Payload: len(payload), Head: head}
	frame := make([]byte, wire.BodyOffset+it.HeadLen()+n)
	item := frame[wire.BodyOffset:]
	copy(item[wire.PutItem(item, &it):], encoded[:n])
	wire.SetItemSize(item, len(item))
	wire.Seal(frame, &wire.Header{Dst: hostMAC[1], Src: hostMAC[0], Kind: wire.Data, Items: 1, Boot: 5})
	if v, fault := p.e[1].FromWire(frame, 1); v != Refuse || fault != wire.BadCodec || len(p.toHost[1]) != 0 {
		t.Errorf("verdict %d, %v, %d frames to the host", v, fault, len(p.toHost[1]))
	}
}

// A checksum that comes out as 0 goes as 0xffff: 0 would say that UDP has none.
func TestCompletedChecksumIsNeverZero(t *testing.T) {
	f := datagram(0, 4000, 9000, 1, make([]byte, 4))
	segment := f[inet.L4Offset:]
	pseudo := inet.PseudoHeaderSum(hostIP[0], hostIP[1], inet.ProtoUDP, len(segment))
	binary.BigEndian.PutUint16(segment[udpSumAt:], 0)
	rest := uint16(inet.Sum(uint32(pseudo), segment))
	binary.BigEndian.PutUint16(segment[inet.UDPLen:], ^rest) // all adds up to 0xffff, the checksum to 0
	binary.BigEndian.PutUint16(segment[udpSumAt:], pseudo)
	if !complete(f) {
		t.Fatal("not completed")
	}
	if sum := binary.BigEndian.Uint16(segment[udpSumAt:]); sum != 0xffff {
		t.Errorf("checksum %#04x", sum)
	}
}

func TestMissingRightIsNamed(t *testing.T) {
	if err := withRight(unix.EPERM); !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), "root") {
		t.Error(err)
	}
	if err := withRight(unix.ENOBUFS); err != unix.ENOBUFS {
		t.Error(err)
	}
}
