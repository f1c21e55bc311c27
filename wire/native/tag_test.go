package native

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"encoding/hex"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"pgregory.net/rapid"
)

var update = flag.Bool("update-tags", false, "write testdata/tags.json anew")

// tagged makes a message with room for what a tag adds.
func tagged(h Header, payload []byte, salt *Salt) []byte {
	n := len(payload) + TrailerLen
	if salt != nil {
		n += SaltLen
	}
	m := make([]byte, HeaderLen+n)
	h.Flags |= FlagTagged
	h.Put(m, n)
	copy(m[HeaderLen:], payload)
	if salt != nil {
		copy(m[len(m)-TrailerLen-SaltLen:], salt[:])
	}
	return m
}

func auth(t testing.TB, key Key, salt Salt, rank int) *Auth {
	t.Helper()
	a, err := NewAuth(&key, &salt, rank)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

var testKey = Key{0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x19, 0x1a, 0x1b, 0x1c, 0x1d, 0x1e, 0x1f}

// What one end seals the other opens, and nothing that differs in a bit, in key, salt, rank, direction or epoch.
func TestTagsHold(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		salt := Salt(rapid.SliceOfN(rapid.Byte(), SaltLen, SaltLen).Draw(r, "salt"))
		rank := rapid.IntRange(0, MaxWorkers-1).Draw(r, "rank")
		d := rapid.SampledFrom([]Direction{FromWorker, FromNetwork}).Draw(r, "direction")
		counter := rapid.Uint64Range(0, MaxCounter).Draw(r, "counter")
		kind := rapid.SampledFrom([]Kind{Contribution, Report, Result, Notice}).Draw(r, "kind")
		payload := rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(r, "payload")
		var in *Salt
		if kind == Report {
			in = &salt
		}
		m := tagged(Header{Kind: kind, Job: 3, Rank: uint16(rank), Epoch: 77, Round: 5, Slot: 9}, payload, in)
		auth(t, testKey, salt, rank).Seal(m, d, counter)
		v, fault := Validate(m)
		if fault != OK {
			r.Fatalf("%v", fault)
		}
		if !bytes.Equal(v.Untagged().Payload(), payload) || kind == Report && v.Salt() != salt {
			r.Fatal("another payload")
		}
		open := func(a *Auth, m []byte, d Direction) bool {
			c, ok := a.Open(m, d)
			return ok && c == counter
		}
		if !open(auth(t, testKey, salt, rank), m, d) {
			r.Fatal("its own tag is wrong")
		}
		bit := rapid.IntRange(0, 8*len(m)-1).Draw(r, "bit")
		m[bit/8] ^= 1 << (bit % 8)
		if _, ok := auth(t, testKey, salt, rank).Open(m, d); ok {
			r.Fatalf("bit %d does not matter", bit)
		}
		m[bit/8] ^= 1 << (bit % 8)
		other, laterSalt := testKey, salt
		other[0] ^= 1
		laterSalt[15] ^= 1
		if open(auth(t, other, salt, rank), m, d) || open(auth(t, testKey, laterSalt, rank), m, d) ||
			open(auth(t, testKey, salt, rank^1), m, d) || open(auth(t, testKey, salt, rank), m, d^FromNetwork) {
			r.Fatal("another key, salt, rank or direction has the same tag")
		}
	})
}

// The tag is what the page says, made with the standard library's GCM by hand; a second implementation finds the same
// bytes in testdata/tags.json.
func TestTagVectors(t *testing.T) {
	type vector struct {
		What      string `json:"what"`
		Key       string `json:"key"`
		Salt      string `json:"salt"`
		Rank      int    `json:"rank"`
		Direction string `json:"direction"`
		Counter   uint64 `json:"counter"`
		Nonce     string `json:"nonce"`
		Message   string `json:"message"` // whole, from the header to the tag
	}
	salt := Salt{0x18, 0x91, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0xa0, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7}
	report := make([]byte, ReportLen)
	(&ReportBody{Life: 0x01020304, Nonce: 0x11121314}).Put(report)
	var got []vector
	for _, c := range []struct {
		what    string
		h       Header
		payload []byte
		salt    *Salt
		d       Direction
		counter uint64
	}{
		{"report", Header{Kind: Report, Job: 1, Rank: 2}, report, &salt, FromWorker, 0},
		{"contribution of four int32", Header{Kind: Contribution, Job: 1, Rank: 2, Epoch: 0xa1b2c3d4, Round: 7, Slot: 5, Collective: 1, Elements: 4},
			[]byte{1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0}, nil, FromWorker, 1},
		{"result", Header{Kind: Result, Job: 1, Rank: 3, Epoch: 0xa1b2c3d4, Round: 7, Slot: 5, Collective: 1, Elements: 4},
			[]byte{3, 0, 0, 0, 6, 0, 0, 0, 9, 0, 0, 0, 12, 0, 0, 0}, nil, FromNetwork, 1<<42 | 9},
	} {
		m := tagged(c.h, c.payload, c.salt)
		a := auth(t, testKey, salt, 2)
		a.Seal(m, c.d, c.counter)
		// By hand.
		block, err := aes.NewCipher(testKey[:])
		if err != nil {
			t.Fatal(err)
		}
		process := make([]byte, 16)
		block.Encrypt(process, salt[:])
		if block, err = aes.NewCipher(process); err != nil {
			t.Fatal(err)
		}
		gcm, err := cipher.NewGCM(block)
		if err != nil {
			t.Fatal(err)
		}
		direction, high := "from worker", byte(0)
		if c.d == FromNetwork {
			direction, high = "from network", 0x80
		}
		nonce := append(append([]byte{}, m[8:12]...), high, 2, byte(c.counter>>40), byte(c.counter>>32), byte(c.counter>>24), byte(c.counter>>16), byte(c.counter>>8), byte(c.counter))
		if want := gcm.Seal(nil, nonce, nil, m[:len(m)-TagLen]); !bytes.Equal(m[len(m)-TagLen:], want) {
			t.Errorf("%s: tag %x, want %x", c.what, m[len(m)-TagLen:], want)
		}
		got = append(got, vector{c.what, hex.EncodeToString(testKey[:]), hex.EncodeToString(salt[:]), 2, direction, c.counter, hex.EncodeToString(nonce), hex.EncodeToString(m)})
	}
	text, err := json.MarshalIndent(got, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	text = append(text, '\n')
	path := filepath.Join("testdata", "tags.json")
	if *update {
		if err := os.WriteFile(path, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(text, want) {
		t.Errorf("vectors are\n%s", text)
	}
}

// A window takes every counter once, whatever the order, and none that is too old.
func TestWindow(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		var w Window
		used := map[uint64]bool{}
		top := uint64(0)
		at := rapid.Uint64Range(0, 1<<40).Draw(r, "start")
		for range rapid.IntRange(1, 200).Draw(r, "n") {
			c := at + uint64(rapid.OneOf(rapid.IntRange(0, 100), rapid.IntRange(0, 3*windowBits)).Draw(r, "step"))
			if rapid.Bool().Draw(r, "again") {
				c -= min(c, uint64(rapid.IntRange(0, 2*windowBits).Draw(r, "back")))
			}
			want := !used[c] && (c >= top || top-c < windowBits)
			if len(used) == 0 {
				want = true
			}
			if got := w.Use(c); got != want {
				r.Fatalf("counter %d, highest %d: %t, want %t", c, top, got, want)
			}
			if want {
				used[c] = true
				top = max(top, c)
			}
			at = top
		}
	})
}

func TestKeyText(t *testing.T) {
	text, err := testKey.MarshalText()
	if err != nil || string(text) != "101112131415161718191a1b1c1d1e1f" {
		t.Fatalf("%s %v", text, err)
	}
	var k Key
	if err := k.UnmarshalText(text); err != nil || k != testKey {
		t.Errorf("%x %v", k[:], err)
	}
	for _, wrong := range []string{"", "10", "zz1112131415161718191a1b1c1d1e1f"} {
		if err := k.UnmarshalText([]byte(wrong)); err == nil {
			t.Errorf("%q was read", wrong)
		}
	}
	if testKey.String() != "(hidden)" {
		t.Error("a key is not to be written")
	}
}

// Neither sealing nor opening allocates.
func TestTagsDoNotAllocate(t *testing.T) {
	a, b := auth(t, testKey, Salt{}, 1), auth(t, testKey, Salt{}, 1)
	m := tagged(Header{Kind: Contribution, Rank: 1, Epoch: 1}, make([]byte, 1408), nil)
	counter := uint64(0)
	if n := testing.AllocsPerRun(1000, func() {
		a.Seal(m, FromWorker, counter)
		if _, ok := b.Open(m, FromWorker); !ok {
			t.Fatal("wrong tag")
		}
		counter++
	}); n != 0 {
		t.Errorf("%v allocations a message", n)
	}
}

func BenchmarkTag(b *testing.B) {
	a := auth(b, testKey, Salt{}, 1)
	m := tagged(Header{Kind: Contribution, Rank: 1, Epoch: 1}, make([]byte, 1408), nil)
	b.SetBytes(int64(len(m)))
	for i := range b.N {
		a.Seal(m, FromWorker, uint64(i))
	}
}
