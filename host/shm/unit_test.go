package shm

import (
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestRequestRoundTrip: what is put is parsed.
func TestRequestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const arena = 1 << 20
		n := rapid.Uint64Range(0, arena/8).Draw(t, "elements")
		w := Request{Elements: n, Deadline: time.Duration(rapid.Int64().Draw(t, "deadline")), Rate: rapid.Float32().Draw(t, "rate"), Codec: rapid.StringMatching("[a-z0-9-]{0,28}").Draw(t, "codec"), Weights: NoWeights}
		w.Data = 4 * rapid.Uint64Range(0, arena/8-n).Draw(t, "data")
		if rapid.Bool().Draw(t, "weights") {
			w.Weights = arena / 2
		}
		var b [RequestBytes]byte
		if err := w.Put(b[:]); err != nil {
			t.Fatal(err)
		}
		var got Request
		if err := got.Parse(b[:], arena); err != nil || got != w {
			t.Fatalf("%+v became %+v: %v", w, got, err)
		}
	})
}

// FuzzRequest: whatever lies in a request, what is taken lies in the arena.
func FuzzRequest(f *testing.F) {
	var b [RequestBytes]byte
	_ = (&Request{Data: 64, Elements: 16, Weights: 128, Codec: "bfp16", Rate: 0.1, Deadline: time.Second}).Put(b[:])
	f.Add(b[:], uint64(192))
	arena := make([]byte, 8192)
	m := &Memory{Arena: arena}
	f.Fuzz(func(t *testing.T, in []byte, size uint64) {
		var b [RequestBytes]byte
		copy(b[:], in)
		size %= uint64(len(arena)) + 1
		m.Arena = arena[:size]
		var w Request
		if w.Parse(b[:], size) != nil {
			return
		}
		g := m.Floats(w.Data, w.Elements) // panics when it is not in the arena
		if w.Weights != NoWeights && len(g) > 0 {
			if p := m.Floats(w.Weights, w.Elements); &p[0] == &g[0] {
				t.Fatal("weights are the gradients")
			}
		}
		if len(w.Codec) > RequestBytes-36 || strings.ContainsRune(w.Codec, 0) {
			t.Fatalf("codec %q", w.Codec)
		}
	})
}

// TestResult: statistics and errors of any length come over, and nothing that is there makes the reader fall.
func TestResult(t *testing.T) {
	for _, n := range []int{0, 10, resultBytes - resultText, 5000} {
		var b [resultBytes]byte
		s := Stats{Elapsed: 5, Waited: 4, Blocks: 3, NonFinite: 2}
		var err error
		if n > 0 {
			err = errors.New(strings.Repeat("e", n))
		}
		PutResult(b[:], &s, err)
		if got, text := ParseResult(b[:]); got != s || len(text) != min(n, resultBytes-resultText) {
			t.Errorf("%d: %+v, %d bytes", n, got, len(text))
		}
		binary.NativeEndian.PutUint32(b[32:], math.MaxUint32)
		if _, text := ParseResult(b[:]); len(text) != resultBytes-resultText {
			t.Errorf("%d bytes of text", len(text))
		}
	}
}

// TestLayout: nothing on the control page overlaps, and it begins the arena on a page.
func TestLayout(t *testing.T) {
	type area struct{ at, bytes int }
	areas := []area{{0, 8}, {offArena, 8}, {offPosted, 4}, {offDone, 4 * Places}, {offRequests, Places * RequestBytes}, {offResults, Places * resultBytes}}
	end := 0
	for _, a := range areas {
		if a.at < end || a.at%4 != 0 {
			t.Errorf("%+v begins before %d", a, end)
		}
		end = a.at + a.bytes
	}
	if end > ControlBytes || ControlBytes%4096 != 0 {
		t.Errorf("the control page ends at %d of %d", end, ControlBytes)
	}
}
