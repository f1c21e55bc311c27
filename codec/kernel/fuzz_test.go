package kernel

import (
	"bytes"
	"encoding/binary"
	"math"
	"testing"

	"gradnic/internal/cpu"
)

// FuzzBlockKernels holds every vector level against the twin on any floats and
// any message.
func FuzzBlockKernels(f *testing.F) {
	r := newRand(5)
	for i := range 12 {
		x := r.floats(32 * (i + 3))
		raw := make([]byte, 4*len(x))
		PutFloats(raw, x)
		f.Add(uint8(i), raw)
	}
	f.Fuzz(func(t *testing.T, format uint8, raw []byte) {
		fm := Format(format) % formats
		blocks := min(len(raw)/4/fm.Block(), 64)
		x := make([]float32, blocks*fm.Block())
		for i := range x {
			x[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
		}
		wb, ws := make([]byte, blocks*fm.Width()), make([]byte, blocks)
		encodeGo(fm, wb, ws, x)
		// The raw bytes taken as a message, too.
		mb, ms := raw[:blocks*fm.Width()], raw[blocks*fm.Width():][:blocks]
		wy := make([]float32, len(x))
		decodeGo(fm, wy, mb, ms)
		saved := level
		defer func() { level = saved }()
		for level = cpu.Off; level <= cpu.Machine(); level++ {
			body, scales, y := make([]byte, len(wb)), make([]byte, blocks), make([]float32, len(x))
			EncodeBlocks(fm, body, scales, x)
			if !bytes.Equal(body, wb) || !bytes.Equal(scales, ws) {
				t.Fatalf("%v: format %d: %x %x, twin %x %x", level, fm, body, scales, wb, ws)
			}
			DecodeBlocks(fm, y, mb, ms)
			if err := sameFloats(y, wy); err != nil {
				t.Fatalf("%v: format %d: %v", level, fm, err)
			}
			want := make([]float32, len(x))
			for i, v := range x {
				want[i] = addFloats(v, wy[i])
			}
			copy(y, x)
			AddBlocks(fm, y, mb, ms)
			if err := sameFloats(y, want); err != nil {
				t.Fatalf("%v: format %d: add: %v", level, fm, err)
			}
		}
	})
}
