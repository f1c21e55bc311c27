package host

import (
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"gradnic/service/ring"
)

// TestArena: what is out never overlaps and is aligned, and when all is back the arena is one piece again.
func TestArena(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := uint64(rapid.IntRange(64, 4096).Draw(t, "size")) &^ 63
		a := newArena(size)
		out := map[uint64]uint64{}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if len(out) > 0 && rapid.Bool().Draw(t, "give") {
				keys := make([]uint64, 0, len(out))
				for at := range size {
					if _, ok := out[at]; ok {
						keys = append(keys, at)
					}
				}
				at := rapid.SampledFrom(keys).Draw(t, "at")
				if !a.give(at) || a.give(at) {
					t.Fatalf("%d given back: once, and not twice", at)
				}
				delete(out, at)
				continue
			}
			bytes := uint64(rapid.IntRange(0, 600).Draw(t, "bytes"))
			free := uint64(0)
			for _, s := range a.free {
				free = max(free, s.bytes)
			}
			at, err := a.take(bytes)
			if need := max(64, (bytes+63)&^63); (err == nil) != (need <= free) {
				t.Fatalf("%d bytes, %d free in a piece: %v", bytes, free, err)
			}
			if err != nil {
				continue
			}
			if at%64 != 0 || at+bytes > size {
				t.Fatalf("%d bytes at %d", bytes, at)
			}
			for o, b := range out {
				if at < o+max(b, 1) && o < at+max(bytes, 1) {
					t.Fatalf("%d bytes at %d, and %d at %d", bytes, at, b, o)
				}
			}
			out[at] = bytes
		}
		for at := range out {
			a.give(at)
		}
		if len(a.free) != 1 || a.free[0] != (span{0, size}) {
			t.Fatalf("in the end: %v", a.free)
		}
	})
}

// TestRequestRoundTrip: what is put is parsed.
func TestRequestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const arena = 1 << 20
		n := rapid.Uint64Range(0, arena/8).Draw(t, "elements")
		w := wireRequest{elements: n, deadline: time.Duration(rapid.Int64().Draw(t, "deadline")), rate: rapid.Float32().Draw(t, "rate"), codec: rapid.StringMatching("[a-z0-9-]{0,28}").Draw(t, "codec"), weights: noWeights}
		w.data = 4 * rapid.Uint64Range(0, arena/8-n).Draw(t, "data")
		if rapid.Bool().Draw(t, "weights") {
			w.weights = arena / 2
		}
		var b [requestBytes]byte
		if err := w.put(b[:]); err != nil {
			t.Fatal(err)
		}
		var got wireRequest
		if err := got.parse(b[:], arena); err != nil || got != w {
			t.Fatalf("%+v became %+v: %v", w, got, err)
		}
	})
}

// bad are requests that no NIC may take, for an arena of 4096 bytes.
var bad = map[string]wireRequest{
	"gradients at offset 2":               {data: 2, elements: 1, weights: noWeights},
	"gradients of 1025 elements":          {data: 0, elements: 1025, weights: noWeights},
	"gradients of 1 elements":             {data: 4096, elements: 1, weights: noWeights},
	"gradients of 0 elements":             {data: 4100, elements: 0, weights: noWeights},
	"gradients of 4611686018427387904":    {data: 0, elements: 1 << 62, weights: noWeights},
	"gradients of 18446744073709551615":   {data: 4, elements: math.MaxUint64, weights: noWeights},
	"at offset 18446744073709551612":      {data: math.MaxUint64 - 3, elements: 1, weights: noWeights},
	"weights at offset 1":                 {data: 0, elements: 1, weights: 1},
	"weights of 10 elements":              {data: 0, elements: 10, weights: 4060},
	"overlap":                             {data: 0, elements: 10, weights: 36},
	"gradients and weights overlap":       {data: 100, elements: 10, weights: 100},
	"weights of 2 elements at offset 184": {data: 0, elements: 2, weights: math.MaxUint64 - 7},
}

func TestRequestRefused(t *testing.T) {
	for want, w := range bad {
		var b [requestBytes]byte
		if err := w.put(b[:]); err != nil {
			t.Fatal(err)
		}
		if err := new(wireRequest).parse(b[:], 4096); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", w, err, want)
		}
	}
}

// FuzzRequest: whatever lies in a request, what is taken lies in the arena.
func FuzzRequest(f *testing.F) {
	for _, w := range bad {
		var b [requestBytes]byte
		_ = w.put(b[:])
		f.Add(b[:], uint64(4096))
	}
	var b [requestBytes]byte
	_ = (&wireRequest{data: 64, elements: 16, weights: 128, codec: "bfp16", rate: 0.1, deadline: time.Second}).put(b[:])
	f.Add(b[:], uint64(192))
	arena := make([]byte, 8192)
	m := &memory{arena: arena}
	f.Fuzz(func(t *testing.T, in []byte, size uint64) {
		var b [requestBytes]byte
		copy(b[:], in)
		size %= uint64(len(arena)) + 1
		m.arena = arena[:size]
		var w wireRequest
		if w.parse(b[:], size) != nil {
			return
		}
		g := m.floats(w.data, w.elements) // panics when it is not in the arena
		if w.weights != noWeights && len(g) > 0 {
			if p := m.floats(w.weights, w.elements); &p[0] == &g[0] {
				t.Fatal("weights are the gradients")
			}
		}
		if len(w.codec) > requestBytes-36 || strings.ContainsRune(w.codec, 0) {
			t.Fatalf("codec %q", w.codec)
		}
	})
}

// TestResult: statistics and errors of any length come over, and nothing that is there makes the reader fall.
func TestResult(t *testing.T) {
	for _, n := range []int{0, 10, resultBytes - resultText, 5000} {
		var b [resultBytes]byte
		s := ring.Stats{Elapsed: 5, Waited: 4, Blocks: 3, NonFinite: 2}
		var err error
		if n > 0 {
			err = errors.New(strings.Repeat("e", n))
		}
		putResult(b[:], &s, err)
		if got, text := parseResult(b[:]); got != s || len(text) != min(n, resultBytes-resultText) {
			t.Errorf("%d: %+v, %d bytes", n, got, len(text))
		}
		binary.NativeEndian.PutUint32(b[32:], math.MaxUint32)
		if _, text := parseResult(b[:]); len(text) != resultBytes-resultText {
			t.Errorf("%d bytes of text", len(text))
		}
	}
}

// TestLayout: nothing on the control page overlaps, and it begins the arena on a page.
func TestLayout(t *testing.T) {
	type area struct{ at, bytes int }
	areas := []area{{0, 8}, {offArena, 8}, {offPosted, 4}, {offDone, 4 * Places}, {offRequests, Places * requestBytes}, {offResults, Places * resultBytes}}
	end := 0
	for _, a := range areas {
		if a.at < end || a.at%4 != 0 {
			t.Errorf("%+v begins before %d", a, end)
		}
		end = a.at + a.bytes
	}
	if end > controlBytes || controlBytes%4096 != 0 {
		t.Errorf("the control page ends at %d of %d", end, controlBytes)
	}
}
