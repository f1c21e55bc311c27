// Command codec measures every codec against copy, and leaves build/bench/codec.json and a table.
//
// All rates are bytes of float32 per second: what a codec takes in when it encodes and gives out when it decodes, and
// what a copy moves. So a ratio of 1 is a codec that costs as much time as copying its floats. A copy reads and writes
// them; an encoder writes a fraction, so ratios may pass 1. The copy of as many floats takes turns with each row.
package main

import (
	"fmt"

	"gradnic/bench/levels"
	"gradnic/bench/report"
)

func main() {
	levels.Command[result]{
		Name: "codec", Rounds: 11, Add: add, Page: tables,
		Measure: func(rounds int) ([]result, error) { return measure(rounds, lengths) },
	}.Main()
}

// add puts the rows of one level into the report, with what bounds each and how it stands to its goal.
func add(r *report.Report, rows []result) {
	near := map[string]float64{}
	for _, row := range rows {
		if row.Elements == nearElements {
			near[row.Codec+row.Way] = report.Median(row.Values)
		}
	}
	for _, row := range rows {
		name := fmt.Sprintf("%s/%s/%d/%s", row.Codec, row.Way, row.Elements, row.Level)
		median := report.Median(row.Values)
		goal, least := goals(row)
		note := ""
		switch {
		case row.Allocs > 0:
			note = fmt.Sprintf("INVALID: allocates %d times in %d calls", row.Allocs, allocCalls)
		case least > 0 && median >= least:
			note = fmt.Sprintf("reaches %g GB/s", least)
		case least > 0 && goal == 0:
			note = fmt.Sprintf("misses %g GB/s", least)
		}
		r.Add(report.Row{Name: name, Unit: "GB/s", Against: fmt.Sprintf("copy/%d", row.Elements), Goal: goal,
			Bound: bound(row, median, near[row.Codec+row.Way], report.Median(row.Yardstick)), Note: note}, row.Values, row.Yardstick)
	}
}
