package native

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"testing"
)

// TestValues: the quick way and the way for any machine write and read the same bytes.
func TestValues(t *testing.T) {
	raw := make([]byte, 8*37)
	for i := range raw {
		raw[i] = byte(i*73 + i>>3)
	}
	binary.LittleEndian.PutUint32(raw, math.Float32bits(float32(math.Inf(-1))))
	binary.LittleEndian.PutUint32(raw[4:], 0x7fa00001) // a signalling NaN
	values[int8](t, raw)
	values[uint16](t, raw)
	values[int32](t, raw)
	values[int64](t, raw)
	values[float32](t, raw)
	values[float64](t, raw)
}

func values[T Element](t *testing.T, raw []byte) {
	t.Helper()
	size := len(memory(make([]T, 1)))
	for n := range len(raw)/size + 1 {
		v, w := make([]T, n), make([]T, n)
		get(v, raw)
		getEach(w, raw)
		if !slices.Equal(memory(v), memory(w)) {
			t.Fatalf("%T: %v and %v were read", v, v, w)
		}
		b, c := make([]byte, n*size), make([]byte, n*size)
		put(b, v)
		putEach(c, v)
		if !bytes.Equal(b, c) || !bytes.Equal(b, raw[:n*size]) {
			t.Fatalf("%T: %x and %x were written", v, b, c)
		}
	}
}
