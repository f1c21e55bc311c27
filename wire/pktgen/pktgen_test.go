package pktgen

import (
	"encoding/hex"
	"testing"
	"time"
)

// A payload as the kernel's pktgen makes it: number 3, at 1700000000.123456 s.
const recorded = "be9be955" + "00000003" + "6553f100" + "0001e240" + "0000"

func TestParse(t *testing.T) {
	b, err := hex.DecodeString(recorded)
	if err != nil {
		t.Fatal(err)
	}
	want := Header{Number: 3, Time: time.Unix(1700000000, 123456000)}
	if h, ok := Parse(b); !ok || !h.Time.Equal(want.Time) || h.Number != want.Number {
		t.Errorf("%+v %v, want %+v", h, ok, want)
	}
	again := make([]byte, len(b))
	want.Put(again)
	if hex.EncodeToString(again) != recorded {
		t.Errorf("%x, want %s", again, recorded)
	}
	for n := range HeaderLen {
		if _, ok := Parse(b[:n]); ok {
			t.Errorf("%d bytes are a header", n)
		}
	}
	b[0] ^= 1
	if _, ok := Parse(b); ok {
		t.Error("another magic word is pktgen's")
	}
}

func TestWithoutTime(t *testing.T) {
	var b [HeaderLen]byte
	Header{Number: 9}.Put(b[:])
	if h, ok := Parse(b[:]); !ok || h.Number != 9 || !h.Time.IsZero() {
		t.Errorf("%+v %v", h, ok)
	}
}

func FuzzParse(f *testing.F) {
	b, _ := hex.DecodeString(recorded)
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		h, ok := Parse(b)
		if !ok {
			return
		}
		var again [HeaderLen]byte
		h.Put(again[:])
		back, ok := Parse(again[:])
		if !ok || back.Number != h.Number || !back.Time.Equal(h.Time) {
			t.Errorf("%+v came back as %+v", h, back)
		}
	})
}
