// Command codec measures every codec against copy, and leaves build/bench/codec.json and a table.
//
// All rates are bytes of float32 per second: what a codec takes in when it encodes and gives out when it decodes, and
// what a copy moves. So a ratio of 1 is a codec that costs as much time as copying its floats. A copy reads and writes
// them; an encoder writes a fraction, so ratios may pass 1. The copy of as many floats takes turns with each row.
//
// The vector level is chosen once a process, so this command runs itself once for each level.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strconv"

	"gradnic/bench/report"
	"gradnic/internal/cpu"
)

func main() {
	out := flag.String("out", "build/bench/codec.json", "write the report to this file")
	rounds := flag.Int("rounds", 11, "rounds in which every row has its turn")
	one := flag.Bool("level", false, "measure only the level in force and print its rows as JSON (used by this command itself)")
	flag.Parse()
	if flag.NArg() > 0 || *rounds < 1 {
		fmt.Fprintln(os.Stderr, "codec: takes no arguments, and at least one round")
		os.Exit(2)
	}
	err := func() error {
		if *one {
			rows, err := measure(*rounds, lengths)
			if err != nil {
				return err
			}
			return json.NewEncoder(os.Stdout).Encode(rows)
		}
		return run(*out, *rounds)
	}()
	if err != nil {
		fmt.Fprintf(os.Stderr, "codec: %v\n", err)
		os.Exit(1)
	}
}

// run measures every level that the machine has, each in a process of its own.
func run(out string, rounds int) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	r := report.New("make bench-codec")
	for level := cpu.Off; level <= cpu.Machine(); level++ {
		cmd := exec.Command(self, "-level", "-rounds", strconv.Itoa(rounds))
		cmd.Env = append(os.Environ(), cpu.Environment+"="+level.String())
		cmd.Stderr = os.Stderr
		b, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("measure level %v: %w", level, err)
		}
		var rows []result
		if err := json.Unmarshal(b, &rows); err != nil {
			return fmt.Errorf("rows of level %v: %w", level, err)
		}
		for _, row := range rows {
			if row.Level != level.String() {
				return fmt.Errorf("asked for level %v, measured %s", level, row.Level)
			}
		}
		add(r, rows)
	}
	if err := r.WriteFile(out); err != nil {
		return err
	}
	return r.Markdown(os.Stdout)
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
