package main

import (
	"strings"
	"testing"

	"gradnic/bench/report"
)

// The page has the figures in their places, dashes for levels that the machine lacks, and names what misses a goal.
func TestTables(t *testing.T) {
	r := report.New("test")
	add(r, []result{
		{Codec: "bfp16", Way: "encode", Level: "avx2", Elements: nearElements, Values: []float64{30}, Yardstick: []float64{80}},
		{Codec: "bfp16", Way: "encode", Level: "avx2", Elements: 1 << 20, Values: []float64{18}, Yardstick: []float64{40}},
		{Codec: "bfp16", Way: "decode", Level: "avx2", Elements: 1 << 20, Values: []float64{30}, Yardstick: []float64{40}},
		{Codec: "qsgd", Way: "encode", Level: "avx2", Elements: 1 << 20, Values: []float64{0.5}, Yardstick: []float64{40}},
	})
	text := tables(r)
	for _, want := range []string{
		"| bfp16 | 18 (0.45) | 30 (0.75) | - | - | memory (in cache: 30 GB/s) |\n", "| bfp16 | 30 | - | - | - | - |\n", "| thc | - | - | - | - |  |\n",
		"not to be trusted: `bfp16/encode/1048576/avx2` (18 GB/s, 0.45 of copy), `qsgd/encode/1048576/avx2` (0.5 GB/s, 0.01 of copy; misses 1 GB/s).\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}
