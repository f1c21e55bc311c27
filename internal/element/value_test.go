package element

import (
	"encoding/binary"
	"math"
	"testing"
)

func TestValue(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	for _, c := range []struct {
		t    Type
		b    any
		want float64
	}{
		{Int8, int8(-128), -128}, {Int8, int8(127), 127},
		{Int32, int32(math.MinInt32), math.MinInt32}, {Int64, int64(-1 << 53), -1 << 53}, {Int64, int64(math.MaxInt64), 1 << 63},
		{Float32, float32(-1.5), -1.5}, {Float32, float32(math.SmallestNonzeroFloat32), 0x1p-149}, {Float64, math.MaxFloat64, math.MaxFloat64},
		{Float16, uint16(0), 0}, {Float16, uint16(0x8000), math.Copysign(0, -1)}, {Float16, uint16(1), 0x1p-24}, {Float16, uint16(0x83ff), -1023 * 0x1p-24},
		{Float16, uint16(0x0400), 0x1p-14}, {Float16, uint16(0x3c00), 1}, {Float16, uint16(0xc100), -2.5}, {Float16, uint16(0x7bff), 65504},
		{Float16, uint16(0x7c00), inf}, {Float16, uint16(0xfc00), -inf}, {Float16, uint16(0x7c01), nan}, {Float16, uint16(0xfe00), nan},
		{BFloat16, uint16(0x3f80), 1}, {BFloat16, uint16(0xc040), -3}, {BFloat16, uint16(0x0001), 0x1p-133}, {BFloat16, uint16(0xff80), -inf}, {BFloat16, uint16(0x7fc0), nan},
		{BFP16, uint64(0), nan}, {Type(Count), uint64(0), nan},
	} {
		b, err := binary.Append(nil, binary.LittleEndian, c.b)
		if err != nil {
			t.Fatal(err)
		}
		got := c.t.Value(append(b, 0xff)) // what follows is the next element's
		if got != c.want && !(math.IsNaN(got) && math.IsNaN(c.want)) || math.Signbit(got) != math.Signbit(c.want) && !math.IsNaN(got) {
			t.Errorf("type %d, %#v: %v, want %v", c.t, c.b, got, c.want)
		}
		if size := c.t.Size(); size != 0 && size != len(b) {
			t.Errorf("type %d has %d bytes, want %d", c.t, size, len(b))
		}
	}
}
