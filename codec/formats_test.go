package codec

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math"
	"testing"

	"gradnic/codec/kernel"
)

func encode(t *testing.T, c Codec, x []float32, st *State) []byte {
	t.Helper()
	buf := make([]byte, c.MaxEncoded(len(x)))
	k, err := c.Encode(buf, x, st)
	if err != nil {
		t.Fatal(err)
	}
	return buf[:k]
}

func named(t *testing.T, name string) Codec {
	t.Helper()
	c, err := ByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// The card's flits: 16 of mantissas, then one of exponents, for 512 elements.
func TestIntelFlitLayout(t *testing.T) {
	x := make([]float32, 512+20)
	for i := range x {
		x[i] = float32(math.Ldexp(1, i/16%8))
	}
	msg := encode(t, named(t, "bfp16-intel"), x, nil)
	if len(msg) != 2*17*32 {
		t.Fatalf("%d bytes", len(msg))
	}
	for i := range 512 {
		if msg[i] != 0x40 {
			t.Fatalf("mantissa %d is %#x", i, msg[i])
		}
	}
	for b := range 32 {
		if want := byte(127 + b%8); msg[512+b] != want {
			t.Fatalf("exponent of block %d is %d, want %d", b, msg[512+b], want)
		}
	}
	// 8192 elements, a slice of the ring, are 8704 bytes.
	if n := named(t, "bfp16-intel").MaxEncoded(8192); n != 8704 {
		t.Fatalf("a slice takes %d bytes", n)
	}
	// The rest of the second group is what the kernel makes of zeros, wherever
	// the elements end.
	for n := 0; n <= 512; n += 7 {
		msg := encode(t, named(t, "bfp16-intel"), x[:n], nil)
		if n == 0 {
			if len(msg) != 0 {
				t.Fatalf("nothing takes %d bytes", len(msg))
			}
			continue
		}
		padded := make([]float32, 512)
		copy(padded, x[:n])
		body, scales := make([]byte, 512), make([]byte, 32)
		kernel.EncodeBlocks(kernel.Intel, body, scales, padded)
		if !bytes.Equal(msg, append(body, scales...)) {
			t.Fatalf("%d elements are not padded with zeros", n)
		}
	}
}

// The layout of block formats: all elements, then all scales.
func TestBlockLayout(t *testing.T) {
	x := make([]float32, 40)
	for i := range x {
		x[i] = 1
	}
	x[33] = -0.5
	for _, c := range []struct{ name, want string }{
		// E = 127, 1.0 = 64 steps of 2^-6; the third block is padded.
		{"bfp16", "4040404040404040404040404040404040404040404040404040404040404040" + "40e04040404040400000000000000000" + "7f7f7f"},
		// Largest exponent 0, emax 8: X = 119, elements 2^8 = code 0x78.
		{"mxfp8-e4m3", rep("78", 32) + "78f0787878787878" + rep("00", 24) + "7777"},
		{"mxfp8-e5m2", rep("78", 32) + "78f4787878787878" + rep("00", 24) + "7070"},
		// emax 2: X = 125, elements 4 = code 6, -2 = code 0xc; first in the low half.
		{"mxfp4", rep("66", 16) + "c6666666" + rep("00", 12) + "7d7d"},
		{"mxint8", rep("40", 32) + "40e0404040404040" + rep("00", 24) + "7f7f"},
	} {
		if got := hex.EncodeToString(encode(t, named(t, c.name), x, nil)); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
	}
}

func rep(s string, n int) string { return string(bytes.Repeat([]byte(s), n)) }

func TestInt8ByHand(t *testing.T) {
	x := make([]float32, 65)
	x[0], x[1], x[2], x[3], x[64] = 127, -127, 2.5, -3.5, 0
	msg := encode(t, named(t, "int8"), x, nil)
	if len(msg) != 65+8 || int8(msg[0]) != 127 || int8(msg[1]) != -127 || int8(msg[2]) != 2 || int8(msg[3]) != -4 {
		t.Fatalf("message %v", msg)
	}
	if s := math.Float32frombits(binary.LittleEndian.Uint32(msg[65:])); s != 1 {
		t.Fatalf("scale %g", s)
	}
	for _, bad := range []float32{-1, float32(math.Copysign(0, -1)), float32(math.NaN())} {
		binary.LittleEndian.PutUint32(msg[65:], math.Float32bits(bad))
		if err := named(t, "int8").Decode(x, msg, nil); !errors.Is(err, ErrCorrupt) {
			t.Errorf("scale %g: %v", bad, err)
		}
	}
}

func TestTopKByHand(t *testing.T) {
	c := named(t, "topk:0.4")
	x := []float32{0.5, -3, 0, 2, -2, 2, 1, -0.25, 0, 0.125}
	msg := encode(t, c, x, nil)
	// k = 4: -3, 2, -2, 2 at 1, 3, 4, 5.
	want := []uint32{4, 1, 3, 4, 5, math.Float32bits(-3), math.Float32bits(2), math.Float32bits(-2), math.Float32bits(2)}
	for i, w := range want {
		if got := binary.LittleEndian.Uint32(msg[4*i:]); got != w {
			t.Fatalf("word %d is %#x, want %#x", i, got, w)
		}
	}
	// Of equal magnitudes the lower index wins: k = 2 takes 1 and 3.
	msg = encode(t, named(t, "topk:0.2"), x, nil)
	if i, j := binary.LittleEndian.Uint32(msg[4:]), binary.LittleEndian.Uint32(msg[8:]); i != 1 || j != 3 {
		t.Fatalf("indices %d %d", i, j)
	}
	// At least one.
	if n := len(encode(t, named(t, "topk"), x, nil)); n != 12 {
		t.Fatalf("%d bytes", n)
	}
	y := make([]float32, 10)
	for name, bad := range map[string][]uint32{
		"more than elements": {11, 0, 0}, "not ascending": {2, 5, 5, 0, 0}, "descending": {2, 5, 1, 0, 0},
		"outside": {1, 10, 0}, "huge count": {0xffffffff}, "short": {2, 1, 0, 0}, "long": {1, 1, 0, 0},
	} {
		var b []byte
		for _, w := range bad {
			b = binary.LittleEndian.AppendUint32(b, w)
		}
		if err := c.Decode(y, b, nil); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Selection against a plain definition.
func TestKthLargest(t *testing.T) {
	x := gaussian(3000, 1, 8)
	for i := range x[:500] {
		x[i] = float32(i%7) - 3
	}
	for _, k := range []int{1, 2, 30, 499, 2999, 3000} {
		least, ties := kthLargest(x, k)
		more, equal := 0, 0
		for _, v := range x {
			switch a := math.Float32bits(v) &^ (1 << 31); {
			case a > least:
				more++
			case a == least:
				equal++
			}
		}
		if more >= k || more+equal < k || ties != k-more {
			t.Errorf("k %d: %d above, %d equal, %d ties", k, more, equal, ties)
		}
	}
}

// L = s|x| / norm; levels floor(L) or floor(L)+1 by the random word.
func TestQSGDByHand(t *testing.T) {
	x := make([]float32, 8)
	x[0], x[1] = 3, -4 // norm 5
	st := &State{Seed: 77, Round: 5, Worker: 2}
	msg := encode(t, named(t, "qsgd"), x, st)
	if norm := math.Float32frombits(binary.LittleEndian.Uint32(msg[8:])); norm != 5 {
		t.Fatalf("norm %g", norm)
	}
	r := st.stream(purposeRounding)
	w := r.Block(0)
	for i, l := range []float64{3 * 127 / 5., 4 * 127 / 5.} { // 76.2, 101.6
		want := int8(l)
		if float64(w[i]>>8)/(1<<24) < l-math.Floor(l) {
			want++
		}
		if i == 1 {
			want = -want
		}
		if got := int8(msg[i]); got != want {
			t.Errorf("level %d is %d, want %d", i, got, want)
		}
	}
	y := make([]float32, 8)
	if err := named(t, "qsgd").Decode(y, msg, st); err != nil {
		t.Fatal(err)
	}
	if want := float32(int8(msg[0])) * (float32(5) / 127); y[0] != want {
		t.Errorf("decoded %g, want %g", y[0], want)
	}
}

func TestQSGDHasNoBias(t *testing.T) {
	c := named(t, "qsgd")
	const n, rounds = 512, 400
	x := gaussian(n, 1, 12)
	st := NewState(c, n, StateOptions{Seed: 4})
	y, sum := make([]float32, n), make([]float64, n)
	for r := range rounds {
		st.Round = uint64(r)
		if err := c.Decode(y, encode(t, c, x, st), st); err != nil {
			t.Fatal(err)
		}
		for i, v := range y {
			sum[i] += float64(v) - float64(x[i])
		}
	}
	step := math.Sqrt(kernel.SumSquares(x)) / 127
	for i, s := range sum { // five standard deviations of at most step/2
		if math.Abs(s/rounds) > 5*step/2/math.Sqrt(rounds) {
			t.Fatalf("element %d: mean error %g, step %g", i, s/rounds, step)
		}
	}
}

func TestTHCTables(t *testing.T) {
	for _, c := range []struct{ g, workers int }{{30, 8}, {16, 15}} {
		h, err := NewTHC(c.g)
		if err != nil {
			t.Fatal(err)
		}
		if h.MaxWorkers() != c.workers || h.Values[0] != 0 || int(h.Values[15]) != c.g {
			t.Errorf("granularity %d: %d workers, table %v", c.g, h.MaxWorkers(), h.Values)
		}
		for i, v := range h.Values { // symmetric around the middle
			if int(v)+int(h.Values[15-i]) != c.g {
				t.Errorf("granularity %d: %d and its mirror image", c.g, i)
			}
		}
	}
	if thc30.Values != [16]uint8{0, 3, 5, 7, 9, 11, 13, 14, 16, 17, 19, 21, 23, 25, 27, 30} || thc30.T != 2.1538746940614564 {
		t.Error("the table for 30 is not the published one")
	}
	if _, err := NewTHC(20); err == nil {
		t.Error("a table for granularity 20")
	}
}

// Eight workers: sums of table values, without decoding any message, give the
// sum of the gradients.
func TestTHCSumsWithoutDecoding(t *testing.T) {
	for _, g := range []int{30, 16} {
		h, err := NewTHC(g)
		if err != nil {
			t.Fatal(err)
		}
		const n = 5000
		workers := min(8, h.MaxWorkers())
		want := make([]float64, n)
		var xs [][]float32
		norms, own := make([]float32, THCBlocks(n)), make([]float32, THCBlocks(n))
		for w := range workers {
			x := gaussian(n, 1e-3, uint64(w)+50)
			xs = append(xs, x)
			THCNorms(own, x)
			for i, v := range own {
				norms[i] = max(norms[i], v)
			}
			for i, v := range x {
				want[i] += float64(v)
			}
		}
		acc := make([]uint8, THCPadded(n))
		var energy, lost, dot, got2 float64
		const rounds = 4
		mean := make([]float64, n)
		for r := range rounds {
			clear(acc)
			for w, x := range xs {
				st := &State{Seed: 99, Round: uint64(r), Worker: uint32(w)}
				idx := make([]byte, len(acc)/2)
				h.Encode(idx, x, norms, st)
				h.Add(acc, idx)
			}
			y := make([]float32, n)
			h.DecodeSum(y, acc, workers, norms, &State{Seed: 99, Round: uint64(r)})
			for i, v := range y {
				mean[i] += float64(v) / rounds
				energy += want[i] * want[i]
				lost += (float64(v) - want[i]) * (float64(v) - want[i])
				dot += float64(v) * want[i]
				got2 += float64(v) * float64(v)
			}
		}
		if nmse := lost / energy; nmse > 0.03 {
			t.Errorf("granularity %d: NMSE %g", g, nmse)
		}
		if cos := dot / math.Sqrt(energy*got2); cos < 0.985 {
			t.Errorf("granularity %d: cosine %g", g, cos)
		}
	}
}

// A block that one worker cannot send, or that is zero at all, stays apart.
func TestTHCBlocksStandAlone(t *testing.T) {
	x := gaussian(3000, 1, 3)
	x[1030] = float32(math.NaN())
	clear(x[2048:])
	y := roundTrip(t, named(t, "thc"), x, &State{Seed: 1})
	for i, v := range y {
		switch {
		case i < 1024 && !(math.Abs(float64(v)-float64(x[i])) < 1.5):
			t.Fatalf("element %d: %g became %g", i, x[i], v)
		case i >= 1024 && i < 2048 && v == v:
			t.Fatalf("element %d beside a NaN became %g", i, v)
		case i >= 2048 && v != 0:
			t.Fatalf("zero %d became %g", i, v)
		}
	}
}

// The codec is THC with one worker.
func TestTHCCodecIsTHC(t *testing.T) {
	x := gaussian(2500, 1, 3)
	st := &State{Seed: 5, Round: 9, Worker: 4}
	msg := encode(t, named(t, "thc"), x, st)
	norms, tail := make([]float32, 3), make([]byte, 12)
	THCNorms(norms, x)
	kernel.PutFloats(tail, norms)
	idx := make([]byte, THCPadded(len(x))/2)
	thc30.Encode(idx, x, norms, st)
	if !bytes.Equal(msg, append(bytes.Clone(idx), tail...)) {
		t.Fatal("the message is not indices and norms")
	}
	acc := make([]uint8, 2*len(idx))
	thc30.Add(acc, idx)
	a, b := make([]float32, len(x)), make([]float32, len(x))
	thc30.DecodeSum(a, acc, 1, norms, st)
	if err := named(t, "thc").Decode(b, msg, st); err != nil {
		t.Fatal(err)
	}
	for i := range a {
		if a[i] != b[i] {
			t.Fatalf("element %d: %g and %g", i, a[i], b[i])
		}
	}
}

func TestBlockSpecByHand(t *testing.T) {
	// Block of 4, exponent 4 bits (bias 7), mantissa 4 bits: steps of 2^(e-2).
	for _, c := range []struct{ name, want string }{
		// b = 0 + 7; 1 = 4 steps, -0.25 = -1 step, 0.375 = 1.5 -> 2, 0.125 = 0.5 -> 0.
		{"block4e4m4", "04040400" + "07" + "f4" + "02"},
		{"block4e4m4s", "04040401" + "07" + "94" + "02"},
	} {
		got := hex.EncodeToString(encode(t, named(t, c.name), []float32{1, -0.25, 0.375, 0.125}, nil))
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
	// With blocks of 16, 8 bits and 8 bits it is bfp16 but for subnormal scales.
	x := gaussian(1600, 1e-4, 6)
	a := roundTrip(t, named(t, "block16e8m8"), x, nil)
	b := roundTrip(t, named(t, "bfp16"), x, nil)
	for i := range a {
		if a[i] != b[i] {
			t.Fatalf("element %d: %g and %g", i, a[i], b[i])
		}
	}
	// The decoder takes any parameters from the message.
	other := named(t, "block7e6m3")
	msg := encode(t, other, x, nil)
	y, z := make([]float32, len(x)), make([]float32, len(x))
	any, err := ByID(IDBlock)
	if err != nil {
		t.Fatal(err)
	}
	if err := any.Decode(y, msg, nil); err != nil {
		t.Fatal(err)
	}
	if err := other.Decode(z, msg, nil); err != nil {
		t.Fatal(err)
	}
	for i := range y {
		if y[i] != z[i] {
			t.Fatalf("element %d: %g and %g", i, y[i], z[i])
		}
	}
	for i, bad := range [][]byte{{0, 8, 8, 0}, {129, 8, 8, 0}, {16, 3, 8, 0}, {16, 9, 8, 0}, {16, 8, 1, 0}, {16, 8, 13, 0}, {16, 8, 8, 2}} {
		copy(msg, bad)
		if err := any.Decode(y, msg, nil); !errors.Is(err, ErrCorrupt) {
			t.Errorf("header %d %v: %v", i, bad, err)
		}
	}
}

func TestLosslessBytes(t *testing.T) {
	c := named(t, "lossless")
	st := NewState(c, 0, StateOptions{})
	x := gaussian(40000, 1e-3, 2)
	f32 := make([]byte, 4*len(x))
	kernel.PutFloats(f32, x)
	bf := make([]byte, 2*len(x))
	kernel.EncodeBF16(bf, x)
	for _, d := range []struct {
		src   []byte
		width int
		ratio float64 // what it must reach on such data
	}{{f32, 4, 1.1}, {bf, 2, 1.2}, {make([]byte, 100000), 4, 1000}, {f32[:8], 4, 0}, {f32[:4], 4, 0}, {f32[:2], 2, 0}, {nil, 4, 0}} {
		buf := make([]byte, LosslessMax(len(d.src), d.width))
		k, err := LosslessEncode(buf, d.src, d.width, st)
		if err != nil {
			t.Fatal(err)
		}
		back := make([]byte, len(d.src))
		if err := LosslessDecode(back, buf[:k], d.width, st); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(back, d.src) {
			t.Fatalf("%d bytes of width %d changed", len(d.src), d.width)
		}
		if r := float64(len(d.src)) / float64(k); r < d.ratio {
			t.Errorf("%d bytes of width %d: ratio %.3f, want %.3f", len(d.src), d.width, r, d.ratio)
		}
	}
	if _, err := LosslessEncode(make([]byte, 100), make([]byte, 6), 4, st); err == nil {
		t.Error("6 bytes taken for elements of 4")
	}
	if _, err := LosslessEncode(make([]byte, 100), make([]byte, 6), 3, st); err == nil {
		t.Error("width 3 accepted")
	}
	if _, err := LosslessEncode(make([]byte, 7), make([]byte, 8), 4, st); !errors.Is(err, ErrBuffer) {
		t.Error("a short buffer accepted")
	}
	if err := LosslessDecode(make([]byte, 8), nil, 4, &State{}); !errors.Is(err, ErrState) {
		t.Error("a state without scratch accepted")
	}
}
