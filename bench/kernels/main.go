// Command kernels measures the loops of aggregation/kernel against copy, and leaves build/bench/kernels.json and a table.
//
// Both are counted as bytes read plus bytes written per second: a copy of n bytes reads n and writes n; a sum reads the
// contribution and the slot and writes the slot. The yardstick of a row copies as many bytes as the row's slot has. It
// takes turns with the row, so that what else the machine does meets both.
//
// The level of the loops is chosen once a process, so this command runs itself once for each level.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strconv"

	"gradnic/aggregation/kernel"
	"gradnic/bench/report"
	"gradnic/internal/cpu"
)

func main() {
	out := flag.String("out", "build/bench/kernels.json", "write the report to this file")
	rounds := flag.Int("rounds", 15, "rounds in which every row has its turn")
	one := flag.Bool("level", false, "measure only the level in force and print its rows as JSON (used by this command itself)")
	flag.Parse()
	if flag.NArg() > 0 || *rounds < 1 {
		fmt.Fprintln(os.Stderr, "kernels: takes no arguments, and at least one round")
		os.Exit(2)
	}
	err := func() error {
		if *one {
			return json.NewEncoder(os.Stdout).Encode(measure(*rounds))
		}
		return run(*out, *rounds)
	}()
	if err != nil {
		fmt.Fprintf(os.Stderr, "kernels: %v\n", err)
		os.Exit(1)
	}
}

// run measures every level that the machine has, each in a process of its own.
func run(out string, rounds int) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	r := report.New("make bench-kernels")
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
			r.Add(report.Row{Name: row.Name, Unit: "GB/s", Against: row.Against, Goal: row.Goal}, row.Values, row.Yardstick)
		}
	}
	if err := r.WriteFile(out); err != nil {
		return err
	}
	return r.Markdown(os.Stdout)
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
