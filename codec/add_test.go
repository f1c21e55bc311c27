package codec

import (
	"errors"
	"math"
	"testing"

	"pgregory.net/rapid"
)

// Adding a message is decoding it and adding, but for the sign of a zero that was not sent.
func TestAddIsDecodeAndAdd(t *testing.T) {
	names := []string{"bfp16", "bfp16-intel", "mxfp8-e4m3", "mxfp8-e5m2", "mxfp4", "mxint8", "topk:0.3", "topk=7"}
	rapid.Check(t, func(t *rapid.T) {
		c, err := ByName(rapid.SampledFrom(names).Draw(t, "codec"))
		if err != nil {
			t.Fatal(err)
		}
		n := rapid.IntRange(1, 150).Draw(t, "n")
		x, sum := anyFloats(t, n, false), anyFloats(t, n, false)
		b := make([]byte, c.MaxEncoded(n))
		k, err := c.Encode(b, x, nil)
		if err != nil {
			t.Fatal(err)
		}
		a := c.(Adder)
		if err := a.Check(b[:k], n); err != nil {
			t.Fatal(err)
		}
		y := make([]float32, n)
		if err := c.Decode(y, b[:k], nil); err != nil {
			t.Fatal(err)
		}
		want := make([]float32, n)
		for i, v := range sum {
			want[i] = v + y[i]
		}
		a.Add(sum, b[:k])
		for i, v := range sum {
			if v != want[i] && (v == v || want[i] == want[i]) {
				t.Fatalf("%s of %d: element %d is %g, want %g", c.Info().Name, n, i, v, want[i])
			}
		}
	})
}

// What Check takes Decode takes, and the other way round.
func TestCheckAgreesWithDecode(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, _ := ByName(rapid.SampledFrom([]string{"bfp16", "bfp16-intel", "mxfp4", "topk=3"}).Draw(t, "codec"))
		n := rapid.IntRange(1, 40).Draw(t, "n")
		b := make([]byte, c.MaxEncoded(n))
		if _, err := c.Encode(b, anyFloats(t, n, false), nil); err != nil {
			t.Fatal(err)
		}
		for range rapid.IntRange(0, 3).Draw(t, "changes") {
			switch rapid.IntRange(0, 2).Draw(t, "what") {
			case 0:
				b = b[:rapid.IntRange(0, len(b)).Draw(t, "cut")]
			case 1:
				b = append(b, 0)
			case 2:
				if len(b) > 0 {
					b[rapid.IntRange(0, len(b)-1).Draw(t, "at")] = rapid.SampledFrom([]byte{0, 1, 3, 255}).Draw(t, "byte")
				}
			}
		}
		checked, decoded := c.(Adder).Check(b, n), c.Decode(make([]float32, n), b, nil)
		if (checked == nil) != (decoded == nil) || checked != nil && !errors.Is(checked, ErrCorrupt) {
			t.Fatalf("%s: Check says %v, Decode %v", c.Info().Name, checked, decoded)
		}
	})
}

func TestParam(t *testing.T) {
	for _, c := range append(All(), mustByName("topk=5"), mustByName("topk:0.25"), mustByName("block32e5m9")) {
		p := Param(c, 200)
		again, err := ByParam(c.Info().ID, p)
		if err != nil {
			t.Fatalf("%s: %v", c.Info().Name, err)
		}
		if got, want := again.MaxEncoded(200), c.MaxEncoded(200); got != want || again.Info().ID != c.Info().ID {
			t.Errorf("%s became %s: %d bytes, want %d", c.Info().Name, again.Info().Name, got, want)
		}
	}
	for _, bad := range []struct {
		id    ID
		param uint32
	}{{IDTopK, 0}, {IDTopK, math.MaxUint32}, {IDBlock, 0}, {IDBlock, 0x10080402}, {IDBFP16, 1}, {99, 0}} {
		if c, err := ByParam(bad.id, bad.param); err == nil {
			t.Errorf("id %d, parameter %#x: %s", bad.id, bad.param, c.Info().Name)
		}
	}
}

func mustByName(name string) Codec {
	c, err := ByName(name)
	if err != nil {
		panic(err)
	}
	return c
}
