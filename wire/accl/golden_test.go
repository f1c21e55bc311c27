package accl_test

import (
	"testing"

	"gradnic/internal/acclcheck"
	. "gradnic/wire/accl"
)

// golden are the UDP payloads of one all-reduce of 17 float32 by two ranks, x[i] = rank + 1 + i/10, as the card's emulator
// sent them.
func golden(t testing.TB) []acclcheck.Packet {
	t.Helper()
	all, err := acclcheck.Record("testdata/allreduce17-w2.txt")
	if err != nil || len(all) != 4 {
		t.Fatalf("%v, %d packets", err, len(all))
	}
	return all
}

// TestGoldenHeaders: each recorded header has the fields that the page says, and is written again bit for bit.
func TestGoldenHeaders(t *testing.T) {
	seq := map[int]uint32{}
	for i, r := range golden(t) {
		var h Header
		if f := ParseHeader(r.Payload, &h); f != OK {
			t.Fatalf("packet %d: %v", i, f)
		}
		want := Header{Count: []uint32{36, 32, 36, 32}[i], Tag: TagAny, Src: uint32(r.From), Seq: seq[r.From], Session: uint16(r.To)}
		if h != want {
			t.Errorf("packet %d: %+v, want %+v", i, h, want)
		}
		seq[r.From]++
		b := make([]byte, HeaderLen)
		for k := range b {
			b[k] = 0xaa
		}
		if h.Put(b); string(b) != string(r.Payload[:HeaderLen]) {
			t.Errorf("packet %d: header %x", i, b)
		}
		if _, _, n := Piece(int(h.Count), 0); n != len(r.Payload) {
			t.Errorf("packet %d: %d bytes, want %d", i, n, len(r.Payload))
		}
	}
}
