package main

import (
	"strings"
	"testing"

	"gradnic/aggregation/kernel"
)

func TestMeasure(t *testing.T) {
	level, _ := kernel.Selected()
	seen := map[string]bool{}
	goals := 0
	for _, r := range measure(1) {
		if seen[r.Name] || !strings.HasSuffix(r.Name, "/"+level) || r.Level != level {
			t.Errorf("row %+v", r)
		}
		seen[r.Name] = true
		if len(r.Values) != 1 || len(r.Yardstick) != 1 || r.Values[0] <= 0 || r.Yardstick[0] <= 0 {
			t.Errorf("%s: %v against %v", r.Name, r.Values, r.Yardstick)
		}
		if r.Goal > 0 {
			goals++
		}
	}
	if want := 8; level != "off" && goals != want {
		t.Errorf("%d rows with a goal, want %d: int32 in both orders, float32 and bfloat16 at two lengths", goals, want)
	}
	for _, name := range []string{"sum/int32-be/256/", "sum/float32-le/1048576/", "sum+encode/bfloat16-le/256/", "sum/int8/256/"} {
		if !seen[name+level] {
			t.Errorf("no row %s%s", name, level)
		}
	}
}

// TestNothingOverflows: a sample must time the main path, not the one for overflow and infinities.
func TestNothingOverflows(t *testing.T) {
	for _, s := range []kernel.Spec{{}, {Type: kernel.Int64}, {Type: kernel.Int8}} {
		checkFill[int32](t, s)
		checkFill[int64](t, s)
	}
	for typ := kernel.Float32; typ <= kernel.BFloat16; typ++ {
		checkFill[float32](t, kernel.Spec{Type: typ, Order: kernel.LittleEndian})
		checkFill[float64](t, kernel.Spec{Type: typ, Order: kernel.LittleEndian})
	}
}

func checkFill[A kernel.Element](t *testing.T, s kernel.Spec) {
	o, err := kernel.For[A](s)
	if err != nil {
		return // the other slot type
	}
	src, acc := make([]byte, 256*s.Type.Bytes()), make([]A, 256)
	fill(s, src)
	flagged := o.Set(acc, src)
	for range 10_000 {
		flagged += o.Fold(acc, src)
	}
	if flagged != 0 || acc[7] == 0 {
		t.Errorf("%v: %d flagged, element 7 is %v", s, flagged, acc[7])
	}
}
