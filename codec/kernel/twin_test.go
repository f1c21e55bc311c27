package kernel

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"gradnic/internal/cpu"
)

// rng is a small generator for tests only.
type rng uint64

func newRand(seed uint64) *rng { r := rng(seed*0x9e3779b97f4a7c15 + 1); return &r }

func (r *rng) next() uint64 {
	*r ^= *r << 13
	*r ^= *r >> 7
	*r ^= *r << 17
	return uint64(*r)
}

func (r *rng) unit() float64 { return (float64(r.next()>>11) + 0.5) * 0x1p-53 }

func (r *rng) norm() float64 {
	return math.Sqrt(-2*math.Log(r.unit())) * math.Cos(2*math.Pi*r.unit())
}

// floats draws a slice of one of several kinds: any bits, normal numbers of a
// scale, few mantissa bits (ties), zeros, subnormals.
func (r *rng) floats(n int) []float32 {
	x := make([]float32, n)
	kind := r.next() % 8
	scale := int(r.next()%276) - 149
	for i := range x {
		switch kind {
		case 0:
			x[i] = math.Float32frombits(uint32(r.next()))
		case 1, 2:
			x[i] = float32(math.Ldexp(r.norm(), scale))
		case 3, 4:
			x[i] = float32(math.Ldexp(float64(int64(r.next()%1024)-512), scale-9))
		case 5:
			x[i] = math.Float32frombits(uint32(r.next()) & 0x807fffff)
		case 6:
			if r.next()%4 == 0 {
				x[i] = float32(math.Ldexp(r.norm(), scale))
			}
		case 7:
			x[i] = float32(r.norm())
			if r.next()%200 == 0 {
				x[i] = math.Float32frombits(0x7f800000 | uint32(r.next())&0x807fffff)
			}
		}
	}
	return x
}

// tiers runs f once for each vector level of this machine, off included.
func tiers(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	saved := level
	defer func() { level = saved }()
	for l := cpu.Off; l <= cpu.Machine(); l++ {
		level = l
		t.Run(l.String(), f)
	}
}

// shifted returns a copy of b that starts at each offset within a cache line in
// turn, so that no kernel may count on alignment.
func shiftedBytes(n, offset int) []byte { return make([]byte, n+64)[offset : offset+n : offset+n] }

func shiftedFloats(x []float32, offset int) []float32 {
	y := make([]float32, len(x)+16)[offset : offset+len(x) : offset+len(x)]
	copy(y, x)
	return y
}

func sameFloats(a, b []float32) error {
	for i := range a {
		if math.Float32bits(a[i]) != math.Float32bits(b[i]) {
			return fmt.Errorf("element %d: %#08x (%g), twin %#08x (%g)", i, math.Float32bits(a[i]), a[i], math.Float32bits(b[i]), b[i])
		}
	}
	return nil
}

func TestBlockKernelsEqualTwins(t *testing.T) {
	tiers(t, func(t *testing.T) {
		r := newRand(1)
		for f := range formats {
			for blocks := 0; blocks < 70; blocks++ {
				for rep := range 4 {
					x := shiftedFloats(r.floats(blocks*f.Block()), (blocks+rep)%16)
					if rep == 3 { // blocks of all kinds side by side
						for b := range blocks {
							copy(x[b*f.Block():], r.floats(f.Block()))
						}
					}
					body, scales := shiftedBytes(blocks*f.Width(), (blocks+3*rep)%64), shiftedBytes(blocks, rep)
					EncodeBlocks(f, body, scales, x)
					wb, ws := make([]byte, len(body)), make([]byte, blocks)
					encodeGo(f, wb, ws, x)
					if !bytes.Equal(scales, ws) {
						t.Fatalf("format %d, %d blocks: scales %v, twin %v", f, blocks, scales, ws)
					}
					if !bytes.Equal(body, wb) {
						for i := range wb {
							if body[i] != wb[i] {
								b := i / f.Width()
								t.Fatalf("format %d, %d blocks: byte %d is %#x, twin %#x, scale %d, block %v", f, blocks, i, body[i], wb[i], ws[b], x[b*f.Block():(b+1)*f.Block()])
							}
						}
					}
					// Decode both what was encoded and anything.
					if rep%2 == 1 {
						for i := range body {
							body[i] = byte(r.next())
						}
						for i := range scales {
							scales[i] = byte(r.next())
						}
					}
					y, wy := shiftedFloats(x, (rep+5)%16), make([]float32, len(x))
					DecodeBlocks(f, y, body, scales)
					decodeGo(f, wy, body, scales)
					if err := sameFloats(y, wy); err != nil {
						t.Fatalf("format %d, %d blocks: decode %v", f, blocks, err)
					}
					sum, want := shiftedFloats(x, (rep+9)%16), make([]float32, len(x))
					for i, v := range x {
						want[i] = addFloats(v, wy[i])
					}
					AddBlocks(f, sum, body, scales)
					if err := sameFloats(sum, want); err != nil {
						t.Fatalf("format %d, %d blocks: add %v", f, blocks, err)
					}
				}
			}
			// Every code with every scale.
			body, scales := make([]byte, 256*f.Width()), make([]byte, 256)
			y, wy := make([]float32, 256*f.Block()), make([]float32, 256*f.Block())
			for code := range 256 {
				for i := range body {
					body[i] = byte(code + i)
				}
				for i := range scales {
					scales[i] = byte(i)
				}
				DecodeBlocks(f, y, body, scales)
				decodeGo(f, wy, body, scales)
				if err := sameFloats(y, wy); err != nil {
					t.Fatalf("format %d: decode of codes from %#x: %v", f, code, err)
				}
				sum := r.floats(len(y))
				for i, v := range sum {
					wy[i] = addFloats(v, wy[i])
				}
				AddBlocks(f, sum, body, scales)
				if err := sameFloats(sum, wy); err != nil {
					t.Fatalf("format %d: add of codes from %#x: %v", f, code, err)
				}
			}
		}
	})
}

func TestHalfKernelsEqualTwins(t *testing.T) {
	tiers(t, func(t *testing.T) {
		r := newRand(2)
		for n := range 200 {
			x := shiftedFloats(r.floats(n), n%16)
			got, want := shiftedBytes(2*n, n%64), make([]byte, 2*n)
			y, wy := shiftedFloats(x, (n+3)%16), make([]float32, n)
			EncodeFP16(got, x)
			encodeFP16Go(want, x)
			if !bytes.Equal(got, want) {
				t.Fatalf("fp16 of %v: %x, twin %x", x, got, want)
			}
			EncodeBF16(got, x)
			encodeBF16Go(want, x)
			if !bytes.Equal(got, want) {
				t.Fatalf("bf16 of %v: %x, twin %x", x, got, want)
			}
			for i := range got {
				got[i] = byte(r.next())
			}
			DecodeFP16(y, got)
			decodeFP16Go(wy, got)
			if err := sameFloats(y, wy); err != nil {
				t.Fatal("fp16 decode:", err)
			}
			DecodeBF16(y, got)
			decodeBF16Go(wy, got)
			if err := sameFloats(y, wy); err != nil {
				t.Fatal("bf16 decode:", err)
			}
		}
		all := make([]byte, 1<<17)
		for h := range 1 << 16 {
			binary.LittleEndian.PutUint16(all[2*h:], uint16(h))
		}
		y, wy := make([]float32, 1<<16), make([]float32, 1<<16)
		DecodeFP16(y, all)
		decodeFP16Go(wy, all)
		if err := sameFloats(y, wy); err != nil {
			t.Fatal("fp16 decode of every code:", err)
		}
	})
}

func TestQuantisingKernelsEqualTwins(t *testing.T) {
	off := func(f func()) { saved := level; level = cpu.Off; f(); level = saved }
	tiers(t, func(t *testing.T) {
		r := newRand(3)
		for n := range 300 {
			x := shiftedFloats(r.floats(n), n%16)
			var m, wm uint32
			var s, ws float64
			m, s = MaxAbs(x), SumSquares(x)
			off(func() { wm, ws = MaxAbs(x), SumSquares(x) })
			if m != wm {
				t.Fatalf("MaxAbs of %v: %#x, twin %#x", x, m, wm)
			}
			if math.Float64bits(s) != math.Float64bits(ws) && (s == s || ws == ws) {
				t.Fatalf("SumSquares of %d: %g, twin %g", n, s, ws)
			}
			scale := float32(126.7 / float64(math.Float32frombits(max(m, 0x10000000))))
			if m >= 0x7f000000 {
				clear(x)
				scale = 1
			}
			p := Philox{Key: [2]uint32{uint32(n), 7}, Counter: [3]uint32{1, 2, 3}, Base: uint32(r.next())}
			got, want := shiftedBytes(n, n%64), make([]byte, n)
			RoundInt8(got, x, scale)
			off(func() { RoundInt8(want, x, scale) })
			if !bytes.Equal(got, want) {
				t.Fatalf("RoundInt8 of %v * %g: %v, twin %v", x, scale, got, want)
			}
			if n%3 == 0 {
				scale *= 1.5 // some are clamped
			}
			StochasticInt8(got, x, scale, &p)
			off(func() { StochasticInt8(want, x, scale, &p) })
			if !bytes.Equal(got, want) {
				t.Fatalf("StochasticInt8 of %v * %g: %v, twin %v", x, scale, got, want)
			}
			for i := range got {
				got[i] = byte(r.next())
			}
			y, wy := shiftedFloats(x, (n+1)%16), make([]float32, n)
			f := math.Float32frombits(uint32(r.next()) & 0x7fffffff)
			ScaleInt8(y, got, f)
			off(func() { ScaleInt8(wy, got, f) })
			if f == f {
				if err := sameFloats(y, wy); err != nil {
					t.Fatalf("ScaleInt8 by %g: %v", f, err)
				}
			}
			qi, wqi := make([]int32, n+n%3)[n%3:], make([]int32, n)
			raw := r.floats(n)
			qscale := math.Ldexp(r.unit(), int(r.next()%300)-120)
			QuantiseInt32(qi, raw, qscale, 715827882)
			off(func() { QuantiseInt32(wqi, raw, qscale, 715827882) })
			for i := range qi {
				if qi[i] != wqi[i] {
					t.Fatalf("QuantiseInt32 of %g * %g: %d, twin %d", raw[i], qscale, qi[i], wqi[i])
				}
				qi[i] = int32(r.next())
			}
			DequantiseInt32(raw, qi, qscale)
			wraw := make([]float32, n)
			off(func() { DequantiseInt32(wraw, qi, qscale) })
			if err := sameFloats(raw, wraw); err != nil {
				t.Fatalf("DequantiseInt32 by %g: %v", qscale, err)
			}
			long := append(r.floats(n*7%2500), x...)
			z, wz := shiftedFloats(long, (n+1)%16), shiftedFloats(long, 0)
			FlipSigns(z, &p)
			for i := range wz { // by the definition
				w := p.Block(uint32(i / 128))
				wz[i] = math.Float32frombits(math.Float32bits(wz[i]) ^ w[i/32%4]>>(i%32)<<31)
			}
			if err := sameFloats(z, wz); err != nil {
				t.Fatalf("FlipSigns: %v", err)
			}
			u, wu := make([]uint32, n), make([]uint32, n)
			p.Fill(u)
			p.fillGo(wu, 0)
			for i := range u {
				if u[i] != wu[i] {
					t.Fatalf("Philox word %d of %d: %#x, twin %#x", i, n, u[i], wu[i])
				}
			}
		}
		k := NewTable([16]uint8{0, 3, 5, 7, 9, 11, 13, 14, 16, 17, 19, 21, 23, 25, 27, 30}, 2.1538746940614564)
		for n := 0; n < 400; n += 2 {
			x := make([]float32, n)
			for i := range x {
				x[i] = float32(r.norm())
				if r.next()%8 == 0 {
					x[i] = float32(int(r.next()%32)-1)/k.unit - k.t // on a table unit
				}
			}
			x = shiftedFloats(x, n/2%16)
			p := Philox{Key: [2]uint32{uint32(n), 7}, Counter: [3]uint32{1, 2, 3}, Base: uint32(r.next())}
			got, want := shiftedBytes(n/2, n%64), make([]byte, n/2)
			whole := n / tableGroup * tableGroup
			RoundTable(got[:whole/2], x[:whole], 1.01, &k, &p)
			roundTableGo(want[:whole/2], x[:whole], 1.01, &k, &p, 0)
			if !bytes.Equal(got, want) {
				t.Fatalf("RoundTable of %v: %x, twin %x", x, got, want)
			}
			for i := range got {
				got[i] = byte(r.next())
			}
			acc, wacc := shiftedBytes(n, n%64), make([]byte, n)
			for i := range acc {
				acc[i] = byte(r.next())
			}
			copy(wacc, acc)
			AddTable(acc, got, &k)
			off(func() { AddTable(wacc, got, &k) })
			if !bytes.Equal(acc, wacc) {
				t.Fatalf("AddTable: %x, twin %x", acc, wacc)
			}
			y, wy := shiftedFloats(x, (n+1)%16), make([]float32, n)
			AffineUint8(y, acc, 0.3, 2.7, 1e-3)
			off(func() { AffineUint8(wy, acc, 0.3, 2.7, 1e-3) })
			if err := sameFloats(y, wy); err != nil {
				t.Fatal("AffineUint8:", err)
			}
			raw, wraw := shiftedBytes(4*n, n%64), make([]byte, 4*n)
			PutFloats(raw, x)
			off(func() { PutFloats(wraw, x) })
			if !bytes.Equal(raw, wraw) {
				t.Fatal("PutFloats differs from its twin")
			}
			GetFloats(y, raw)
			if err := sameFloats(y, x); err != nil {
				t.Fatal("GetFloats:", err)
			}
		}
		for range 20 {
			x := make([]float32, HadamardBlock)
			for i := range x {
				x[i] = float32(r.norm() * math.Exp(r.norm()*3))
			}
			y, wy := shiftedFloats(x, int(r.next()%16)), shiftedFloats(x, 0)
			Hadamard(y)
			hadamardGo(wy)
			if err := sameFloats(y, wy); err != nil {
				t.Fatal("Hadamard:", err)
			}
		}
	})
}

func TestStochasticRoundingHasNoBias(t *testing.T) {
	const n = 1 << 16
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(i%1000)/1000 - 0.4
	}
	dst := make([]byte, n)
	p := Philox{Key: [2]uint32{1, 2}}
	StochasticInt8(dst, x, 2, &p)
	sum := 0.0
	for i, v := range x {
		d := float64(int8(dst[i])) - 2*float64(v)
		if d <= -1 || d >= 1 {
			t.Fatalf("%g rounded to %d", 2*v, int8(dst[i]))
		}
		sum += d
	}
	// The standard deviation of the mean is below 0.5 / sqrt(n) = 0.002.
	if mean := sum / n; math.Abs(mean) > 0.008 {
		t.Fatalf("mean error %g", mean)
	}
	// A value on a level stays there.
	clear(x)
	x[0], x[1] = 0.5, -1
	StochasticInt8(dst, x, 2, &p)
	if dst[0] != 1 || int8(dst[1]) != -2 || dst[2] != 0 {
		t.Fatalf("exact levels became %v", dst[:3])
	}
}

func TestTableRoundingHasNoBias(t *testing.T) {
	const n = 1 << 16
	k := NewTable([16]uint8{0, 3, 5, 7, 9, 11, 13, 14, 16, 17, 19, 21, 23, 25, 27, 30}, 2)
	x, dst, acc := make([]float32, n), make([]byte, n/2), make([]byte, n)
	for i := range x {
		x[i] = float32(i%4001)/1000 - 2
	}
	RoundTable(dst, x, 1, &k, &Philox{Key: [2]uint32{3, 4}})
	AddTable(acc, dst, &k)
	sum := 0.0
	for i, v := range x {
		d := float64(acc[i]) - (float64(v)+2)*7.5
		if d <= -3 || d >= 3 {
			t.Fatalf("%g stands at %g of the table and became %d", v, (v+2)*7.5, acc[i])
		}
		sum += d
	}
	// The standard deviation of the mean is below 1.5 / sqrt(n) = 0.006.
	if mean := sum / n; math.Abs(mean) > 0.024 {
		t.Fatalf("mean error %g units", mean)
	}
}

func TestLengthsAreChecked(t *testing.T) {
	for name, f := range map[string]func(){
		"encode body":   func() { EncodeBlocks(BFP16, make([]byte, 15), make([]byte, 1), make([]float32, 16)) },
		"encode values": func() { EncodeBlocks(E4M3, make([]byte, 32), make([]byte, 1), make([]float32, 16)) },
		"decode":        func() { DecodeBlocks(E2M1, make([]float32, 32), make([]byte, 32), make([]byte, 1)) },
		"format":        func() { DecodeBlocks(formats, nil, nil, nil) },
		"fp16":          func() { EncodeFP16(make([]byte, 3), make([]float32, 2)) },
		"bf16":          func() { DecodeBF16(make([]float32, 2), make([]byte, 3)) },
		"int8":          func() { RoundInt8(make([]byte, 3), make([]float32, 2), 1) },
		"hadamard":      func() { Hadamard(make([]float32, 1000)) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
}
