package codec

import (
	"encoding/binary"
	"errors"
	"math"
	"testing"
)

// fuzzDecode gives a decoder any bytes for any number of elements: it must
// return an error that wraps ErrCorrupt, or have filled dst and nothing else.
// What decodes is encoded again, so the encoder sees hostile values as well.
func fuzzDecode(f *testing.F, name string) {
	c, err := ByName(name)
	if err != nil {
		f.Fatal(err)
	}
	for _, n := range []int{0, 1, 33, 600} {
		x := gaussian(n, 1, uint64(n)+1)
		buf := make([]byte, c.MaxEncoded(n))
		k, err := c.Encode(buf, x, state(c, n))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint16(n), buf[:k])
		if k > 0 {
			f.Add(uint16(n), buf[:k-1])
		}
		f.Add(uint16(n+1), buf[:k])
	}
	st := state(c, 1<<12)
	f.Fuzz(func(t *testing.T, n uint16, msg []byte) {
		elements := int(n) % (1 << 12)
		y := make([]float32, elements+1)
		y[elements] = 42
		if err := c.Decode(y[:elements:elements], msg, st); err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatalf("error %v", err)
			}
		} else if c.Info().Fixed && c.Info().ID != IDTopK && c.Info().ID != IDBlock && len(msg) != c.MaxEncoded(elements) {
			t.Fatalf("%d bytes taken for %d elements", len(msg), elements)
		}
		if y[elements] != 42 {
			t.Fatal("decode wrote behind the message")
		}
		y = y[:elements]
		z := roundTrip(t, c, y, st)
		checkBound(t, c, y, z)
	})
}

func FuzzNone(f *testing.F)       { fuzzDecode(f, "none") }
func FuzzBFP16(f *testing.F)      { fuzzDecode(f, "bfp16") }
func FuzzBFP16Intel(f *testing.F) { fuzzDecode(f, "bfp16-intel") }
func FuzzFP16(f *testing.F)       { fuzzDecode(f, "fp16") }
func FuzzBF16(f *testing.F)       { fuzzDecode(f, "bf16") }
func FuzzMXFP8E4M3(f *testing.F)  { fuzzDecode(f, "mxfp8-e4m3") }
func FuzzMXFP8E5M2(f *testing.F)  { fuzzDecode(f, "mxfp8-e5m2") }
func FuzzMXFP4(f *testing.F)      { fuzzDecode(f, "mxfp4") }
func FuzzMXInt8(f *testing.F)     { fuzzDecode(f, "mxint8") }
func FuzzInt8(f *testing.F)       { fuzzDecode(f, "int8") }
func FuzzBlock(f *testing.F)      { fuzzDecode(f, "block16e8m4s") }
func FuzzTopK(f *testing.F)       { fuzzDecode(f, "topk") }
func FuzzQSGD(f *testing.F)       { fuzzDecode(f, "qsgd") }
func FuzzTHC(f *testing.F)        { fuzzDecode(f, "thc") }
func FuzzLossless(f *testing.F)   { fuzzDecode(f, "lossless") }

func FuzzLosslessBytes(f *testing.F) {
	f.Add([]byte{}, false)
	f.Add(make([]byte, 4000), true)
	f.Add([]byte{2, 5, 0, 1, 2, 3, 4, 5, 1, 9, 1, 9, 1, 9}, false)
	st := NewState(losslessCodec{}, 0, StateOptions{})
	f.Fuzz(func(t *testing.T, b []byte, narrow bool) {
		width := 4
		if narrow {
			width = 2
		}
		src := b[:len(b)/width*width]
		buf := make([]byte, LosslessMax(len(src), width))
		k, err := LosslessEncode(buf, src, width, st)
		if err != nil {
			t.Fatal(err)
		}
		back := make([]byte, len(src))
		if err := LosslessDecode(back, buf[:k], width, st); err != nil {
			t.Fatal(err)
		}
		if string(back) != string(src) {
			t.Fatal("bytes changed")
		}
		for _, n := range []int{0, width, 400, 5000 * width} {
			if err := LosslessDecode(make([]byte, n), b, width, st); err != nil && !errors.Is(err, ErrCorrupt) {
				t.Fatalf("error %v", err)
			}
		}
	})
}

func FuzzSwitchML(f *testing.F) {
	f.Add([]byte{0, 0, 128, 63, 0, 0, 0, 0}, uint8(1))
	f.Add([]byte{0, 0, 128, 127}, uint8(32))
	f.Fuzz(func(t *testing.T, b []byte, workers uint8) {
		n := int(workers)%64 + 1
		x := make([]float32, len(b)/4)
		for i := range x {
			x[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
		}
		e, finite := MaxExponent(x)
		q, y := make([]int32, len(x)), make([]float32, len(x))
		Quantise(q, x, e, n)
		Dequantise(y, q, e, n)
		for i := range x {
			if finite != (y[i] == y[i]) {
				t.Fatalf("%g came back as %g, finite %v", x[i], y[i], finite)
			}
			if finite && math.Abs(float64(y[i])-float64(x[i])) > QuantiseErrorBound(e, n)+math.Abs(float64(x[i]))*0x1p-23+0x1p-149 {
				t.Fatalf("%g came back as %g, bound %g", x[i], y[i], QuantiseErrorBound(e, n))
			}
		}
	})
}
