package main

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"gradnic/aggregation/kernel"
	"gradnic/bench/report"
)

// result is one row: a value a round, and the yardstick's beside it.
type result struct {
	Name, Against, Level string
	Goal                 float64
	Values, Yardstick    []float64 // 10^9 bytes read and written per second
}

// MeasuredAt implements levels.Row.
func (r result) MeasuredAt() string { return r.Level }

// contestant is a loop with its buffers.
type contestant struct {
	loop  string
	spec  kernel.Spec
	n     int    // elements
	bytes int    // read plus written by a call
	slot  int    // bytes of the slot
	reset func() // before a sample: sums would overflow after many calls
	call  func()
}

func (c contestant) name(level string) string {
	format := c.spec.Type.String()
	if c.spec.Type != kernel.Int8 {
		format += map[kernel.ByteOrder]string{kernel.BigEndian: "-be", kernel.LittleEndian: "-le"}[c.spec.Order]
	}
	return fmt.Sprintf("%s/%s/%d/%s", c.loop, format, c.n, level)
}

// lengths are a packet's and a large array's, in elements.
var lengths = []int{256, 1 << 20}

func contestants() (all []contestant) {
	le := kernel.LittleEndian
	for _, n := range lengths {
		all = append(all, loopsOf[int32](kernel.Spec{Type: kernel.Int32}, n)...)
		all = append(all, loopsOf[int32](kernel.Spec{Type: kernel.Int32, Order: le}, n)[0])
		all = append(all, loopsOf[float32](kernel.Spec{Type: kernel.Float32, Order: le}, n)...)
		all = append(all, loopsOf[float32](kernel.Spec{Type: kernel.BFloat16, Order: le}, n)...)
		all = append(all, loopsOf[float32](kernel.Spec{Type: kernel.Float16, Order: le}, n)[0])
		all = append(all, loopsOf[float64](kernel.Spec{Type: kernel.Float64, Order: le}, n)[0])
		all = append(all, loopsOf[int64](kernel.Spec{Type: kernel.Int64, Order: le}, n)[0])
		all = append(all, loopsOf[int32](kernel.Spec{Type: kernel.Int8}, n)[0])
	}
	return all
}

// loopsOf gives the sum of a spec, and the sum that is encoded in the same pass.
func loopsOf[A kernel.Element](s kernel.Spec, n int) []contestant {
	o, err := kernel.For[A](s)
	if err != nil {
		panic(err) // a mistake in the list above
	}
	acc := make([]A, n)
	wire := n * s.Type.Bytes()
	src, dst := make([]byte, wire), make([]byte, wire)
	fill(s, src)
	slot := n * binary.Size(acc[0])
	reset := func() { o.Set(acc, src) }
	return []contestant{
		{"sum", s, n, wire + 2*slot, slot, reset, func() { o.Fold(acc, src) }},
		{"sum+encode", s, n, 2*wire + 2*slot, slot, reset, func() { o.FoldPut(dst, acc, src) }},
	}
}

// fill makes wire bytes whose sums stay finite over a sample.
func fill(s kernel.Spec, src []byte) {
	rng := rand.New(rand.NewPCG(1, 2))
	var order binary.AppendByteOrder = binary.BigEndian
	if s.Order == kernel.LittleEndian {
		order = binary.LittleEndian
	}
	for b := src[:0]; len(b) < len(src); {
		small := int64(rng.IntN(200) - 100)
		switch s.Type {
		case kernel.Int32:
			b = order.AppendUint32(b, uint32(small))
		case kernel.Int64:
			b = order.AppendUint64(b, uint64(small))
		case kernel.Int8:
			b = append(b, byte(small))
		case kernel.Float32:
			b = order.AppendUint32(b, math.Float32bits(float32(rng.NormFloat64())))
		case kernel.Float64:
			b = order.AppendUint64(b, math.Float64bits(rng.NormFloat64()))
		case kernel.BFloat16:
			b = order.AppendUint16(b, uint16(math.Float32bits(float32(rng.NormFloat64()))>>16))
		case kernel.Float16: // 2^-5 to 2^2, and a random rest
			b = order.AppendUint16(b, uint16(10+rng.IntN(7))<<10|uint16(rng.IntN(1<<10)))
		}
	}
}

const (
	sampleTime = 100 * time.Microsecond // short beside a scheduler's slice, so that most samples are undisturbed
	samples    = 7                      // a round's value is their median
)

// measure takes all rounds at the level in force.
func measure(rounds int) (rows []result) {
	level, _ := kernel.Selected()
	all := contestants()
	yard := map[int]contestant{}
	for _, c := range all {
		if _, ok := yard[c.slot]; !ok {
			dst, src := make([]byte, c.slot), make([]byte, c.slot)
			yard[c.slot] = contestant{bytes: 2 * c.slot, reset: func() {}, call: func() { copy(dst, src) }}
		}
		rows = append(rows, result{Name: c.name(level), Against: fmt.Sprintf("copy/%dB", c.slot), Level: level, Goal: goal(c)})
	}
	for round := range rounds {
		for i := range all {
			i = (i + round) % len(all) // who is first changes
			var values, copies []float64
			for range samples {
				copies = append(copies, sample(yard[all[i].slot]))
				values = append(values, sample(all[i]))
			}
			rows[i].Values = append(rows[i].Values, report.Median(values))
			rows[i].Yardstick = append(rows[i].Yardstick, report.Median(copies))
		}
	}
	return rows
}

// sample gives the rate of one burst of calls, after one that is not counted and brings the buffers near.
func sample(c contestant) float64 {
	c.reset()
	start := time.Now()
	c.call()
	once := max(time.Since(start), 1)
	calls := max(1, min(10_000, int(sampleTime/once)))
	start = time.Now()
	for range calls {
		c.call()
	}
	return float64(calls*c.bytes) / float64(max(time.Since(start), 1).Nanoseconds())
}
