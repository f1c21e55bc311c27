package bump

import (
	"encoding/binary"
	"testing"

	"gradnic/wire/inet"
)

// An IPv4 checksum may be written as 0xffff where it comes out as 0. Headers alike have the one that is computed, so such a
// frame takes its own headers, or it would not be restored as it was.
func TestChecksumOfAllOnesIsNotAlike(t *testing.T) {
	head := make([]byte, UDPHead)
	copy(head, []byte{0x45, 0, 0, 32, 0, 1, 0, 0, 64, inet.ProtoUDP, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 1, 2, 3, 4, 0, 12, 5, 6})
	before := append([]byte(nil), head...)
	inet.SetIPv4Checksum(before)
	for id := range 1 << 16 { // one of them has the sum
		binary.BigEndian.PutUint16(head[4:], uint16(id))
		binary.BigEndian.PutUint16(head[10:], 0xffff)
		if inet.Checksum(head[:inet.IPv4Len]) == 0 {
			break
		}
	}
	frame := append(make([]byte, inet.EthernetLen), head...)
	binary.BigEndian.PutUint16(frame[12:], inet.EtherTypeIPv4)
	frame = append(frame, 1, 2, 3, 4)
	if _, _, ok := Head(frame); !ok {
		t.Fatal("such a frame is right")
	}
	if Alike(head, before) {
		t.Error("headers with a checksum of 0xffff would come back with 0")
	}
	inet.SetIPv4Checksum(head)
	if !Alike(head, before) {
		t.Error("but with 0 they are alike")
	}
}
