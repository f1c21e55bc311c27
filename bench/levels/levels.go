// Package levels is the frame of a bench command whose rows are measured at every vector level of the machine. The level
// is chosen once a process, so the command runs itself once for each.
package levels

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

// Row is what a command measures at one level; it passes between the two processes as JSON.
type Row interface {
	// MeasuredAt is the level that was in force.
	MeasuredAt() string
}

// Command is a bench command of name "codec", say, which `make bench-codec` runs and whose report is
// build/bench/codec.json.
type Command[R Row] struct {
	Name    string
	Rounds  int                             // how many, unless -rounds says otherwise
	Measure func(rounds int) ([]R, error)   // the rows at the level in force
	Add     func(r *report.Report, row []R) // puts the rows of one level into the report
	Page    func(r *report.Report) string   // what -page puts into the page; nil: the table of all rows
}

// Main is the command's whole life; it ends the process when something fails.
func (c Command[R]) Main() {
	out := flag.String("out", "build/bench/"+c.Name+".json", "write the report to this file")
	rounds := flag.Int("rounds", c.Rounds, "rounds in which every row has its turn")
	page := flag.String("page", "", "put the table into this Markdown page as well, between its <!-- "+c.Name+" --> lines")
	one := flag.Bool("level", false, "measure only the level in force and print its rows as JSON (used by this command itself)")
	flag.Parse()
	if flag.NArg() > 0 || *rounds < 1 {
		fmt.Fprintf(os.Stderr, "%s: takes no arguments, and at least one round\n", c.Name)
		os.Exit(2)
	}
	run := func() error { return c.all(*out, *page, *rounds) }
	if *one {
		run = func() error { return c.one(*rounds) }
	}
	if err := run(); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", c.Name, err)
		os.Exit(1)
	}
}

// one measures the level in force.
func (c Command[R]) one(rounds int) error {
	rows, err := c.Measure(rounds)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(rows)
}

// all measures every level that the machine has, each in a process of its own.
func (c Command[R]) all(out, page string, rounds int) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	r := report.New("make bench-" + c.Name)
	for level := cpu.Off; level <= cpu.Machine(); level++ {
		cmd := exec.Command(self, "-level", "-rounds", strconv.Itoa(rounds))
		cmd.Env = append(os.Environ(), cpu.Environment+"="+level.String())
		cmd.Stderr = os.Stderr
		b, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("measure level %v: %w", level, err)
		}
		var rows []R
		if err := json.Unmarshal(b, &rows); err != nil {
			return fmt.Errorf("rows of level %v: %w", level, err)
		}
		for _, row := range rows {
			if row.MeasuredAt() != level.String() {
				return fmt.Errorf("asked for level %v, measured %s", level, row.MeasuredAt())
			}
		}
		c.Add(r, rows)
	}
	if err := r.WriteFile(out); err != nil {
		return err
	}
	if page != "" {
		put := r.ReplaceIn
		if c.Page != nil {
			put = func(path, name string) error { return report.ReplaceText(path, name, c.Page(r)) }
		}
		if err := put(page, c.Name); err != nil {
			return err
		}
	}
	return r.Markdown(os.Stdout)
}
