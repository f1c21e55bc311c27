package main

import (
	"strings"
	"testing"

	"gradnic/bench/report"
	"gradnic/codec"
)

func TestMeasureOneRound(t *testing.T) {
	short := lengths[:2]
	rows, err := measure(1, short)
	if err != nil {
		t.Fatal(err)
	}
	want := 0
	for _, c := range codec.All() {
		want += 2 * len(short)
		if _, ok := c.(codec.Adder); ok {
			want += len(short)
		}
	}
	if len(rows) != want {
		t.Fatalf("%d rows, want %d", len(rows), want)
	}
	for _, r := range rows {
		if len(r.Values) != 1 || r.Values[0] <= 0 || r.Yardstick[0] <= 0 {
			t.Errorf("%+v", r)
		}
		if r.Allocs != 0 {
			t.Errorf("%s %s of %d elements allocates %d times", r.Codec, r.Way, r.Elements, r.Allocs)
		}
		if work[r.Codec+"/"+r.Way] == "" {
			t.Errorf("nothing is said about what %s %s spends its time on", r.Codec, r.Way)
		}
	}
}

func TestRowsOfTheReport(t *testing.T) {
	r := report.New("test")
	add(r, []result{
		{Codec: "bfp16", Way: "encode", Level: "avx2", Elements: nearElements, Values: []float64{30}, Yardstick: []float64{40}},
		{Codec: "bfp16", Way: "encode", Level: "avx2", Elements: 1 << 20, Values: []float64{18}, Yardstick: []float64{40}},
		{Codec: "qsgd", Way: "encode", Level: "avx2", Elements: nearElements, Values: []float64{0.5}, Yardstick: []float64{40}},
		{Codec: "qsgd", Way: "encode", Level: "off", Elements: nearElements, Values: []float64{0.5}, Yardstick: []float64{40}, Allocs: 40},
	})
	want := []struct{ note, bound string }{{"reaches 20 GB/s", "instructions"}, {"", "memory (in cache: 30 GB/s)"}, {"misses 1 GB/s", "Philox"}, {"INVALID: allocates", ""}}
	for i, w := range want {
		if !strings.Contains(r.Rows[i].Note, w.note) || w.note == "" && r.Rows[i].Note != "" || !strings.Contains(r.Rows[i].Bound, w.bound) {
			t.Errorf("row %d: note %q, bound %q", i, r.Rows[i].Note, r.Rows[i].Bound)
		}
	}
	if r.Rows[1].Goal != 0.5 || r.Rows[1].Ratio != 0.45 || r.Rows[1].Name != "bfp16/encode/1048576/avx2" {
		t.Errorf("%+v", r.Rows[1])
	}
}
