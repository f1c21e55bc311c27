package main

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"time"

	"gradnic/bench/report"
	"gradnic/codec"
	"gradnic/internal/cpu"
)

// result is one row: a value a round, and the yardstick's beside it, in 10^9 bytes of float32 a second.
type result struct {
	Codec, Way, Level string
	Elements          int
	Bytes             int // of the message
	Allocs            uint64
	Values, Yardstick []float64
}

// MeasuredAt implements levels.Row.
func (r result) MeasuredAt() string { return r.Level }

const (
	nearElements = 8192 // 32 KiB of floats: a slice of the ring, within the first caches
	allocCalls   = 20
	sampleTime   = 100 * time.Microsecond // short beside a scheduler's slice, so that most samples are undisturbed
	samples      = 5                      // a round's value is their median
)

// lengths are a packet's, a ring slice's and a large array's, in elements.
var lengths = []int{256, nearElements, 1 << 20}

type contestant struct {
	row  result
	call func()
}

// contestants are the ways of every codec at every length (encode, decode, and where there is one, adding in one pass), on normal numbers of which 3 % are zeros.
func contestants(lengths []int) (all []contestant, err error) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range lengths {
		x := make([]float32, n)
		for i := range x {
			if rng.IntN(100) >= 3 {
				x[i] = float32(rng.NormFloat64() * 1e-3)
			}
		}
		for _, c := range codec.All() {
			name := c.Info().Name
			st := codec.NewState(c, n, codec.StateOptions{Seed: 1})
			buf, y := make([]byte, c.MaxEncoded(n)), make([]float32, n)
			k, err := c.Encode(buf, x, st)
			if err != nil {
				return nil, fmt.Errorf("encode %d elements with %s: %w", n, name, err)
			}
			if err := c.Decode(y, buf[:k], st); err != nil {
				return nil, fmt.Errorf("decode %d elements with %s: %w", n, name, err)
			}
			row := result{Codec: name, Level: cpu.Level().String(), Elements: n, Bytes: k}
			row.Way = "encode"
			out := make([]byte, len(buf))
			all = append(all, contestant{row, func() { _, _ = c.Encode(out, x, st) }})
			row.Way = "decode"
			all = append(all, contestant{row, func() { _ = c.Decode(y, buf[:k], st) }})
			if a, ok := c.(codec.Adder); ok { // as a slot in the network takes a contribution
				row.Way = "add"
				sum := make([]float32, n)
				all = append(all, contestant{row, func() { a.Add(sum, buf[:k]) }})
			}
		}
	}
	return all, nil
}

// measure takes all rounds at the level in force, for messages of these lengths.
func measure(rounds int, lengths []int) ([]result, error) {
	all, err := contestants(lengths)
	if err != nil {
		return nil, err
	}
	yard := map[int]func(){}
	for _, n := range lengths {
		dst, src := make([]float32, n), make([]float32, n)
		yard[n] = func() { copy(dst, src) }
	}
	for i := range all {
		all[i].row.Allocs = allocations(all[i].call)
	}
	for round := range rounds {
		for i := range all {
			c := &all[(i+round)%len(all)] // who is first changes
			var values, copies []float64
			for range samples {
				copies = append(copies, sample(c.row.Elements, yard[c.row.Elements]))
				values = append(values, sample(c.row.Elements, c.call))
			}
			c.row.Values = append(c.row.Values, report.Median(values))
			c.row.Yardstick = append(c.row.Yardstick, report.Median(copies))
		}
	}
	rows := make([]result, len(all))
	for i, c := range all {
		rows[i] = c.row
	}
	return rows, nil
}

// sample gives the rate of one burst of calls, after one that is not counted and brings the buffers near.
func sample(n int, call func()) float64 {
	start := time.Now()
	call()
	once := max(time.Since(start), 1)
	calls := max(1, min(10_000, int(sampleTime/once)))
	start = time.Now()
	for range calls {
		call()
	}
	return float64(4*n*calls) / float64(max(time.Since(start), 1).Nanoseconds())
}

// allocations counts what a few calls allocate after a first one.
func allocations(call func()) uint64 {
	call()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range allocCalls {
		call()
	}
	runtime.ReadMemStats(&after)
	if n := after.Mallocs - before.Mallocs; n >= allocCalls { // less is the runtime's own, now and then
		return n
	}
	return 0
}

// goals gives what a row should reach: a share of copy, and a rate in GB/s that is enough as well (or, without a
// share, alone). 0 is no goal.
func goals(r result) (share, rate float64) {
	if r.Level == cpu.Off.String() {
		return 0, 0
	}
	switch {
	case r.Elements < nearElements: // a packet: the fixed cost of a call counts, the goals are about rates
		return 0, 0
	case r.Codec == "bfp16" && r.Way != "add":
		return 0.5, 20
	case r.Elements == 1<<20 && strings.HasPrefix(r.Codec, "mx") && r.Way != "add":
		return 0.25, 0
	case r.Codec == "qsgd" || r.Codec == "thc":
		return 0, 1
	}
	return 0, 0
}

// work says what the instructions of a codec are spent on.
var work = map[string]string{
	"none/encode": "moving", "none/decode": "moving",
	"bfp16/encode": "two passes: maxima, then scaling and packing", "bfp16/decode": "widening",
	"bfp16-intel/encode": "variable shifts and packing", "bfp16-intel/decode": "widening",
	"fp16/encode": "conversion", "fp16/decode": "conversion", "bf16/encode": "rounding and packing", "bf16/decode": "widening",
	"mxfp8-e4m3/encode": "rounding by hand, two cases", "mxfp8-e5m2/encode": "rounding by hand, two cases", "mxfp4/encode": "rounding by hand, two cases",
	"mxfp8-e4m3/decode": "widening by way of binary16", "mxfp8-e5m2/decode": "widening by way of binary16", "mxfp4/decode": "table and widening",
	"mxint8/encode": "two passes: maxima, then scaling and packing", "mxint8/decode": "widening",
	"int8/encode": "two calls and a division a block of 64", "int8/decode": "a call a block of 64",
	"block16e8m4s/encode": "bits one by one in pure Go", "block16e8m4s/decode": "bits one by one in pure Go",
	"topk/encode": "three counting passes in pure Go", "topk/decode": "clearing",
	"qsgd/encode": "Philox, ten rounds for four elements", "qsgd/decode": "widening",
	"thc/encode": "Philox, Hadamard transform, table", "thc/decode": "Hadamard transform",
	"bfp16/add": "widening and adding", "bfp16-intel/add": "widening and adding", "mxint8/add": "widening and adding",
	"mxfp8-e4m3/add": "widening by way of binary16", "mxfp8-e5m2/add": "widening by way of binary16", "mxfp4/add": "table and widening",
	"topk/add":        "one addition at a time, all over the sum",
	"lossless/encode": "Huffman coding of four planes", "lossless/decode": "Huffman decoding of four planes",
}

// bound says what keeps a row from being faster, from the rate of the same codec near by and that of copy.
func bound(r result, median, near, yard float64) string {
	what := work[r.Codec+"/"+r.Way]
	switch {
	case r.Elements < nearElements && median < 0.8*near:
		return fmt.Sprintf("the fixed cost of a call (long messages in cache: %.3g GB/s)", near)
	case r.Elements > nearElements && median < 0.75*near && median > 0.3*yard:
		return fmt.Sprintf("memory (in cache: %.3g GB/s)", near)
	case what == "":
		return "instructions"
	}
	return "instructions: " + what
}
