package accl_test

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"os"
	"testing"

	. "gradnic/wire/accl"
)

// recorded are the UDP payloads of one all-reduce of 17 float32 by two ranks, x[i] = rank + 1 + i/10, as the card's
// emulator sent them.
type recorded struct {
	from, to int
	payload  []byte
}

func golden(t testing.TB) (all []recorded) {
	t.Helper()
	f, err := os.Open("testdata/allreduce17-w2.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		var r recorded
		var h string
		if _, err := fmt.Sscan(s.Text(), &r.from, &r.to, &h); err != nil {
			t.Fatal(err)
		}
		if r.payload, err = hex.DecodeString(h); err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	if len(all) != 4 {
		t.Fatalf("%d packets", len(all))
	}
	return all
}

// TestGoldenHeaders: each recorded header has the fields that the page says, and is written again bit for bit.
func TestGoldenHeaders(t *testing.T) {
	seq := map[int]uint32{}
	for i, r := range golden(t) {
		var h Header
		if f := ParseHeader(r.payload, &h); f != OK {
			t.Fatalf("packet %d: %v", i, f)
		}
		want := Header{Count: []uint32{36, 32, 36, 32}[i], Tag: TagAny, Src: uint32(r.from), Seq: seq[r.from], Session: uint16(r.to)}
		if h != want {
			t.Errorf("packet %d: %+v, want %+v", i, h, want)
		}
		seq[r.from]++
		b := make([]byte, HeaderLen)
		for k := range b {
			b[k] = 0xaa
		}
		if h.Put(b); string(b) != string(r.payload[:HeaderLen]) {
			t.Errorf("packet %d: header %x", i, b)
		}
		if _, _, n := Piece(int(h.Count), 0); n != len(r.payload) {
			t.Errorf("packet %d: %d bytes, want %d", i, n, len(r.payload))
		}
	}
}
