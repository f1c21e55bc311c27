// Command kernels measures the loops of aggregation/kernel against copy, and leaves build/bench/kernels.json and a table.
//
// Both are counted as bytes read plus bytes written per second: a copy of n bytes reads n and writes n; a sum reads the
// contribution and the slot and writes the slot. The yardstick of a row copies as many bytes as the row's slot has. It
// takes turns with the row, so that what else the machine does meets both.
package main

import (
	"gradnic/aggregation/kernel"
	"gradnic/bench/levels"
	"gradnic/bench/report"
)

func main() {
	levels.Command[result]{
		Name: "kernels", Rounds: 15, Add: add,
		Measure: func(rounds int) ([]result, error) { return measure(rounds), nil },
	}.Main()
}

func add(r *report.Report, rows []result) {
	for _, row := range rows {
		r.Add(report.Row{Name: row.Name, Unit: "GB/s", Against: row.Against, Goal: row.Goal}, row.Values, row.Yardstick)
	}
}

// goal is what the sums of int32, float32 and bfloat16 should reach, as a share of copy.
func goal(c contestant) float64 {
	switch c.spec.Type {
	case kernel.Int32, kernel.Float32, kernel.BFloat16:
	default:
		return 0
	}
	if c.loop != "sum" {
		return 0
	}
	level, _ := kernel.Selected()
	return map[string]float64{"avx2": 0.45, "avx512": 0.7}[level]
}
