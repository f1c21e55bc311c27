package kernel

import (
	"encoding/hex"
	"math"
	"math/big"
	"testing"
)

// The references here are written from the specifications with exact
// arithmetic and share nothing with the kernels.

// miniValues lists every finite magnitude of a small float from its definition.
func miniValues(ebits, mbits, bias, maxCode int) []*big.Float {
	var v []*big.Float
	for code := 0; code <= maxCode; code++ {
		e, m := code>>mbits, code&(1<<mbits-1)
		x := new(big.Float).SetInt64(int64(m))
		if e > 0 {
			x.SetInt64(int64(m + 1<<mbits))
			e--
		}
		v = append(v, x.SetMantExp(x, e+1-bias-mbits))
	}
	return v
}

// nearest is the index of the value nearest to x, ties to the even index
// (which is the even mantissa), saturating.
func nearest(values []*big.Float, x *big.Float) int {
	best := 0
	var bestD *big.Float
	for i, v := range values {
		d := new(big.Float).SetPrec(400).Sub(x, v)
		d.Abs(d)
		if bestD == nil || d.Cmp(bestD) < 0 || d.Cmp(bestD) == 0 && i%2 == 0 {
			best, bestD = i, d
		}
	}
	return best
}

type miniCase struct {
	name               string
	f                  *mini
	format             Format
	ebits, mbits, bias int
	emax, maxCode      int
	maxNormal          float64
	minNormal, minSub  float64
}

// The table of the MX specification.
var miniCases = []miniCase{
	{"E4M3", &e4m3, E4M3, 4, 3, 7, 8, 0x7e, 448, 0x1p-6, 0x1p-9},
	{"E5M2", &e5m2, E5M2, 5, 2, 15, 15, 0x7b, 57344, 0x1p-14, 0x1p-16},
	{"E2M1", &e2m1, E2M1, 2, 1, 1, 2, 0x7, 6, 1, 0.5},
}

func TestMiniValuesMatchSpecification(t *testing.T) {
	for _, c := range miniCases {
		v := miniValues(c.ebits, c.mbits, c.bias, c.maxCode)
		get := func(i int) float64 { f, _ := v[i].Float64(); return f }
		if get(c.maxCode) != c.maxNormal || get(1) != c.minSub || get(1<<c.mbits) != c.minNormal {
			t.Errorf("%s: reference has max %g, least subnormal %g, least normal %g", c.name, get(c.maxCode), get(1), get(1<<c.mbits))
		}
		sign := byte(1 << c.f.sign)
		for code := 0; code <= c.maxCode; code++ {
			want := float32(get(code))
			if got := c.f.decode(byte(code)); got != want || math.Signbit(float64(got)) {
				t.Errorf("%s: code %#x decodes to %g, want %g", c.name, code, got, want)
			}
			if got := c.f.decode(byte(code) | sign); got != -want || !math.Signbit(float64(got)) {
				t.Errorf("%s: code %#x decodes to %g, want %g", c.name, byte(code)|sign, got, -want)
			}
			// Every code point comes back.
			for _, s := range []byte{0, sign} {
				if got := c.f.encode(c.f.decode(byte(code) | s)); got != byte(code)|s {
					t.Errorf("%s: code %#x came back as %#x", c.name, byte(code)|s, got)
				}
			}
		}
	}
	for code := 0; code < 256; code++ {
		mag := code & 0x7f
		if v := e4m3.decode(byte(code)); (v != v) != (mag == 0x7f) {
			t.Errorf("E4M3 %#x: %g", code, v)
		}
		v := float64(e5m2.decode(byte(code)))
		if (v != v) != (mag > 0x7c) || math.IsInf(v, 1) != (code == 0x7c) || math.IsInf(v, -1) != (code == 0xfc) {
			t.Errorf("E5M2 %#x: %g", code, v)
		}
	}
}

func TestMiniRoundingBoundaries(t *testing.T) {
	for _, c := range miniCases {
		v := miniValues(c.ebits, c.mbits, c.bias, c.maxCode)
		var xs []float32
		for i := range v {
			f, _ := v[i].Float32()
			xs = append(xs, f)
			if i > 0 {
				mid := new(big.Float).Add(v[i], v[i-1])
				mid.Quo(mid, big.NewFloat(2))
				m, acc := mid.Float32()
				if acc != big.Exact {
					t.Fatal("a boundary is no float32")
				}
				xs = append(xs, m)
			}
		}
		xs = append(xs, float32(c.maxNormal*1.03), float32(c.maxNormal*1.1), 2*float32(c.maxNormal), math.SmallestNonzeroFloat32, 0x1p-126)
		for _, x := range xs {
			for _, y := range []float32{math.Nextafter32(x, 0), x, math.Nextafter32(x, math.MaxFloat32)} {
				want := byte(nearest(v, new(big.Float).SetFloat64(float64(y))))
				if got := c.f.encode(y); got != want {
					t.Errorf("%s: %g gives code %#x, want %#x", c.name, y, got, want)
				}
				if y != 0 {
					if got := c.f.encode(-y); got != want|1<<c.f.sign {
						t.Errorf("%s: %g gives code %#x, want %#x", c.name, -y, got, want|1<<c.f.sign)
					}
				}
			}
		}
	}
}

// mxReference encodes a block by the rule of the specification.
func mxReference(c miniCase, x []float32) (codes []byte, scale byte) {
	values := miniValues(c.ebits, c.mbits, c.bias, c.maxCode)
	shared := math.MinInt
	for _, v := range x {
		if v-v != 0 {
			return make([]byte, len(x)), 255
		}
		if v != 0 {
			_, e := math.Frexp(float64(v))
			shared = max(shared, e-1)
		}
	}
	if shared == math.MinInt {
		shared = -127 + c.emax
	}
	shared = max(min(shared-c.emax, 127), -127)
	for _, v := range x {
		b := new(big.Float).SetFloat64(math.Abs(float64(v)))
		code := byte(nearest(values, b.SetMantExp(b, -shared)))
		if math.Signbit(float64(v)) {
			code |= 1 << c.f.sign
		}
		codes = append(codes, code)
	}
	return codes, byte(shared + 127)
}

func TestMXBlocksMatchReference(t *testing.T) {
	r := newRand(11)
	for _, c := range miniCases {
		for range 300 {
			x := r.floats(MXBlock)
			codes, scale := mxReference(c, x)
			if c.format == E2M1 {
				for i := range 16 {
					codes[i] = codes[2*i] | codes[2*i+1]<<4
				}
				codes = codes[:16]
			}
			body, scales := make([]byte, c.format.Width()), make([]byte, 1)
			encodeGo(c.format, body, scales, x)
			if hex.EncodeToString(body) != hex.EncodeToString(codes) || scales[0] != scale {
				t.Fatalf("%s: %v\n got %x scale %d\nwant %x scale %d", c.name, x, body, scales[0], codes, scale)
			}
		}
		// Decoding: every code with every scale, rounded once to float32.
		values := miniValues(c.ebits, c.mbits, c.bias, c.maxCode)
		body, dst := make([]byte, c.format.Width()), make([]float32, MXBlock)
		for scale := range 255 {
			for code := 0; code <= c.maxCode; code++ {
				b := byte(code)
				if c.format == E2M1 {
					b |= b << 4
				}
				body[0] = b
				decodeGo(c.format, dst, body, []byte{byte(scale)})
				w := new(big.Float).Set(values[code])
				want, _ := w.SetMantExp(w, scale-127).Float32()
				if dst[0] != want {
					t.Fatalf("%s: code %#x scale %d: %g, want %g", c.name, code, scale, dst[0], want)
				}
			}
		}
		decodeGo(c.format, dst, body, []byte{255})
		for _, v := range dst {
			if math.Float32bits(v) != canonicalNaN {
				t.Fatalf("%s: scale 255 gives %g", c.name, v)
			}
		}
	}
}

// integerReference is the nearest integer to v * 2^shift, ties to even,
// clamped to 127.
func integerReference(v float32, shift int) int8 {
	b := new(big.Float).SetPrec(500).SetFloat64(float64(v))
	b.SetMantExp(b, shift)
	two := new(big.Float).SetPrec(500).Add(b, b)
	i, _ := two.Int(nil) // towards zero, in halves
	exact := new(big.Float).SetPrec(500).SetInt(i).Cmp(two) == 0
	n := new(big.Int).Quo(i, big.NewInt(2)).Int64()
	if i.Bit(0) == 1 && (!exact || n%2 != 0) { // at or above the half
		n += int64(b.Sign())
	}
	return int8(max(min(n, 127), -127))
}

func TestIntegerFormatsMatchReference(t *testing.T) {
	r := newRand(12)
	for range 500 {
		for _, f := range []Format{BFP16, MXInt8} {
			x := r.floats(f.Block())
			man, scales := make([]byte, f.Width()), make([]byte, 1)
			encodeGo(f, man, scales, x)
			e, finite := 0, true
			for _, v := range x {
				e = max(e, int(math.Float32bits(v)>>23&0xff))
				finite = finite && v-v == 0
			}
			if f == BFP16 {
				e = max(e, 7)
			}
			if int(scales[0]) != e {
				t.Fatalf("exponent %d, want %d", scales[0], e)
			}
			for i, v := range x {
				want := byte(0)
				if finite {
					want = byte(integerReference(v, 133-e))
				} else if f == BFP16 && v-v != 0 {
					want = bfpCulprit
				}
				if man[i] != want {
					t.Fatalf("format %d: element %d of %v: %d, want %d (E=%d)", f, i, x, int8(man[i]), int8(want), e)
				}
			}
		}
	}
	// Every boundary of one scale, and every code.
	for k := -127; k <= 127; k++ {
		for _, half := range []float32{0, 0.5, -0.5} {
			mid := (float32(k) + half) / 64
			for _, v := range []float32{mid, math.Nextafter32(mid, 4), math.Nextafter32(mid, -4)} {
				x := make([]float32, MXBlock)
				x[0], x[16], x[1] = 1, 1, v
				for _, f := range []Format{BFP16, MXInt8} {
					man, scales := make([]byte, f.Width()), make([]byte, 1)
					encodeGo(f, man, scales, x[:f.Block()])
					if got, want := int8(man[1]), integerReference(v, 6); got != want {
						t.Fatalf("format %d: %g gives %d, want %d", f, v, got, want)
					}
				}
			}
		}
	}
	for e := range 255 {
		for q := -128; q < 128; q++ {
			for _, f := range []Format{BFP16, MXInt8} {
				man, dst := make([]byte, f.Width()), make([]float32, f.Block())
				man[3] = byte(q)
				decodeGo(f, dst, man, []byte{byte(e)})
				if want := float32(math.Ldexp(float64(q), e-133)); dst[3] != want || float64(dst[3]) != math.Ldexp(float64(q), e-133) && (q != -128 || e != 254) {
					t.Fatalf("format %d: q %d E %d: %g, want %g", f, q, e, dst[3], want)
				}
			}
		}
	}
}

func TestIntelGoldenVectors(t *testing.T) {
	rep := func(v float32, n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = v
		}
		return x
	}
	below2 := math.Nextafter32(2, 0)
	for _, c := range []struct {
		x    []float32
		e    byte
		want string
	}{
		{rep(1, 16), 127, "40404040404040404040404040404040"},
		{[]float32{1, .5, -.5, .25, -.25, .1, -.1, .01, -.01, 0, below2, -below2, 3, -3, 1e-8, -1e-8}, 128, "2010f008f803fc00ff003fc060a000 00"},
		{append([]float32{-1.5e-3, 2.25e-3}, rep(1e-4, 14)...), 118, "ce490303030303030303030303030303"},
	} {
		man, exps := make([]byte, 16), make([]byte, 1)
		encodeGo(Intel, man, exps, c.x)
		want, err := hex.DecodeString(removeSpace(c.want))
		if err != nil {
			t.Fatal(err)
		}
		if hex.EncodeToString(man) != hex.EncodeToString(want) || exps[0] != c.e {
			t.Errorf("%v: %x E=%d, want %x E=%d", c.x, man, exps[0], want, c.e)
		}
	}
}

func removeSpace(s string) string {
	out := make([]byte, 0, len(s))
	for i := range len(s) {
		if s[i] != ' ' {
			out = append(out, s[i])
		}
	}
	return string(out)
}

// The decoder of the card, bit by bit as its logic does it.
func intelDecodeReference(q, e byte) uint32 {
	v := uint32(q) << 16 // 24 bits
	mag := v & 0x7fffff
	if v>>23 != 0 {
		mag = (1<<24 - v) & 0xffffff
	}
	z := uint32(24)
	for b := uint32(0); b < 24; b++ {
		if mag>>(23-b)&1 != 0 {
			z = b
			break
		}
	}
	exp := (uint32(e) + 1 - z) & 0xff
	return uint32(q)>>7<<31 | exp<<23 | mag<<z&0x7ffffe
}

func TestIntelDecodeEveryCode(t *testing.T) {
	dst := make([]float32, 16)
	man := make([]byte, 16)
	for e := range 256 {
		for q := range 256 {
			man[0] = byte(q)
			decodeGo(Intel, dst, man, []byte{byte(e)})
			if got, want := math.Float32bits(dst[0]), intelDecodeReference(byte(q), byte(e)); got != want {
				t.Fatalf("q %#x E %d: %#08x, want %#08x", q, e, got, want)
			}
		}
	}
	// The quirks that the facts name.
	man[0], man[1] = 0x00, 0x80
	decodeGo(Intel, dst, man, []byte{127})
	if dst[0] != 0x1p-23 || dst[1] != -2 {
		t.Errorf("q=0 gives %g, q=0x80 gives %g", dst[0], dst[1])
	}
	man[0] = 0x40
	decodeGo(Intel, dst, man, []byte{0})
	if math.Float32bits(dst[0]) != 0 {
		t.Errorf("an all-zero block gives %g", dst[0])
	}
}

func TestHalfFormatsMatchReference(t *testing.T) {
	half := miniValues(5, 10, 15, 0x7bff)
	for h := range 1 << 16 {
		v := fp16Value(uint16(h))
		mag := h & 0x7fff
		switch {
		case mag < 0x7c00:
			want, _ := half[mag].Float32()
			if h>>15 != 0 {
				want = -want
			}
			if v != want || math.Signbit(float64(v)) != (h>>15 != 0) {
				t.Fatalf("%#x: %g, want %g", h, v, want)
			}
			if got := fp16Bits(v); got != uint16(h) {
				t.Fatalf("%#x came back as %#x", h, got)
			}
		case mag == 0x7c00:
			if !math.IsInf(float64(v), 0) || fp16Bits(v) != uint16(h) {
				t.Fatalf("%#x: %g", h, v)
			}
		default:
			if v == v || fp16Bits(v) != uint16(h|0x200) {
				t.Fatalf("%#x: %g, back as %#x", h, v, fp16Bits(v))
			}
		}
		// Every boundary: the middle to the next code up.
		if mag < 0x7bff && h>>15 == 0 {
			mid := float32((float64(v) + float64(fp16Value(uint16(h+1)))) / 2)
			even := uint16(h + h&1)
			for _, c := range []struct {
				x    float32
				want uint16
			}{{mid, even}, {math.Nextafter32(mid, 0), uint16(h)}, {math.Nextafter32(mid, 1e6), uint16(h + 1)}} {
				if got := fp16Bits(c.x); got != c.want {
					t.Fatalf("%g: %#x, want %#x", c.x, got, c.want)
				}
			}
		}
		// bfloat16: the same by its definition as the upper half.
		b := math.Float32frombits(uint32(h) << 16)
		var buf [2]byte
		var out [1]float32
		encodeBF16Go(buf[:], []float32{b})
		back := uint16(buf[0]) | uint16(buf[1])<<8
		want := uint16(h)
		if b != b {
			want |= 0x40
		}
		if back != want {
			t.Fatalf("bf16 %#x came back as %#x", h, back)
		}
		decodeBF16Go(out[:], []byte{byte(h), byte(h >> 8)})
		if math.Float32bits(out[0]) != uint32(h)<<16 {
			t.Fatalf("bf16 %#x decodes to %g", h, out[0])
		}
		if mag < 0x7f7f && h>>15 == 0 {
			mid := math.Float32frombits(uint32(h)<<16 | 0x8000)
			even := uint16(h + h&1)
			for _, c := range []struct {
				x    float32
				want uint16
			}{{mid, even}, {math.Nextafter32(mid, 0), uint16(h)}, {math.Nextafter32(mid, math.MaxFloat32), uint16(h + 1)}} {
				encodeBF16Go(buf[:], []float32{c.x})
				if got := uint16(buf[0]) | uint16(buf[1])<<8; got != c.want {
					t.Fatalf("bf16 %g: %#x, want %#x", c.x, got, c.want)
				}
			}
		}
	}
	for _, c := range []struct {
		x    float32
		want uint16
	}{{65519.996, 0x7bff}, {65520, 0x7c00}, {-65536, 0xfc00}, {1e30, 0x7c00}, {0x1p-25, 0}, {math.Nextafter32(0x1p-25, 1), 1}, {0x1p-149, 0}} {
		if got := fp16Bits(c.x); got != c.want {
			t.Errorf("fp16 %g: %#x, want %#x", c.x, got, c.want)
		}
	}
}

// Known answers of the Random123 library for philox4x32 with 10 rounds.
func TestPhiloxKnownAnswers(t *testing.T) {
	for _, c := range []struct {
		ctr  [4]uint32
		key  [2]uint32
		want [4]uint32
	}{
		{[4]uint32{}, [2]uint32{}, [4]uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
		{[4]uint32{^uint32(0), ^uint32(0), ^uint32(0), ^uint32(0)}, [2]uint32{^uint32(0), ^uint32(0)}, [4]uint32{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
		{[4]uint32{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, [2]uint32{0xa4093822, 0x299f31d0}, [4]uint32{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
	} {
		p := Philox{Key: c.key, Counter: [3]uint32{c.ctr[1], c.ctr[2], c.ctr[3]}, Base: c.ctr[0]}
		if got := p.Block(0); got != c.want {
			t.Errorf("%x: %x, want %x", c.ctr, got, c.want)
		}
		p.Base -= 5
		if got := p.Block(5); got != c.want {
			t.Errorf("block 5 behind base %x: %x", p.Base, got)
		}
	}
}

func TestHadamardIsItsOwnInverseAndMatchesDefinition(t *testing.T) {
	r := newRand(4)
	x := make([]float32, HadamardBlock)
	for i := range x {
		x[i] = float32(r.norm())
	}
	y := append([]float32(nil), x...)
	hadamardGo(y)
	for _, k := range []int{0, 1, 2, 3, 511, 512, 777, 1023} {
		sum := 0.0
		for i, v := range x {
			s := float64(v)
			if popcount(uint(i&k))%2 == 1 {
				s = -s
			}
			sum += s
		}
		if d := math.Abs(sum/32 - float64(y[k])); d > 1e-5 {
			t.Errorf("coefficient %d: %g, want %g", k, y[k], sum/32)
		}
	}
	hadamardGo(y)
	for i := range x {
		if d := math.Abs(float64(x[i] - y[i])); d > 1e-5 {
			t.Fatalf("element %d: %g came back as %g", i, x[i], y[i])
		}
	}
}

func popcount(x uint) (n int) {
	for ; x != 0; x &= x - 1 {
		n++
	}
	return n
}
