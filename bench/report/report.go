// Package report is the one form in which every measurement of gradnic is left behind: a JSON document with the
// machine's facts and a row per figure, and the same rows as a Markdown table for the docs.
package report

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Schema is the version of the document's form; docs/bench/README.md describes it. Version 2 has the samples of a row, the
// plots and the end of an interrupted run; what version 1 had means the same.
const Schema = 2

// Report is one measurement.
type Report struct {
	Schema  int     `json:"schema"`
	Title   string  `json:"title,omitempty"`
	Machine Machine `json:"machine"`
	Command string  `json:"command"` // what makes this report again
	// Interrupted says why the run ended before its time, "" when it did not. The rows are those that were complete.
	Interrupted string   `json:"interrupted,omitempty"`
	Notes       []string `json:"notes,omitempty"` // what a reader must know: what was not measured, and why
	Rows        []Row    `json:"rows"`
	Plots       []Plot   `json:"plots,omitempty"`
}

// Row is one figure: the median over the rounds of one run, beside the yardstick that was measured in the same rounds.
type Row struct {
	Name    string      `json:"name"`              // "drop/1066"
	Value   float64     `json:"value"`             // median, in Unit
	Unit    string      `json:"unit"`              // "Mpps", "GB/s", "us", ...
	Against string      `json:"against,omitempty"` // the yardstick's row; "": there is none
	Ratio   float64     `json:"ratio,omitempty"`   // median of Value over the yardstick's value, round by round
	Goal    float64     `json:"goal,omitempty"`    // what Ratio should reach; 0: no goal
	Spread  *[2]float64 `json:"spread,omitempty"`  // least and greatest of the quantity that counts: Ratio where there is one, else Value
	Bound   string      `json:"bound,omitempty"`   // what keeps the figure from being better
	Note    string      `json:"note,omitempty"`    // why a figure is not to be trusted: "INVALID: ..."
	CPU     float64     `json:"cpu_ns,omitempty"`  // processor time of the process that was measured, a frame; 0: not known
	Load    float64     `json:"load_1m,omitempty"` // load average while it was measured; 0: not known
	// Samples are the rounds of the quantity that counts: Ratio where there is one, else Value.
	Samples []float64 `json:"samples,omitempty"`
	// Values are the rounds of Value where Samples are those of Ratio.
	Values []float64 `json:"values,omitempty"`
}

// New starts a report about the machine it runs on.
func New(command string) *Report {
	return &Report{Schema: Schema, Machine: ThisMachine(), Command: command}
}

// Add appends a row made of the rounds of a run: values are the figure's, against the yardstick's (nil: none), one of
// each a round.
func (r *Report) Add(row Row, values, against []float64) {
	row.Value = Median(values)
	counts := values
	if against != nil {
		counts = make([]float64, 0, len(values))
		for i := range values {
			if against[i] > 0 {
				counts = append(counts, values[i]/against[i])
			}
		}
		if len(counts) == 0 {
			// A yardstick of nothing gives no ratio, and JSON has no number for one.
			row.Note = strings.TrimPrefix(row.Note+"; no ratio: "+row.Against+" is 0", "; ")
			row.Against, row.Goal, counts = "", 0, values
		} else {
			row.Ratio, row.Values = Median(counts), slices.Clone(values)
		}
	}
	if len(values) == 0 {
		row.Value, row.Goal, row.Note = 0, 0, strings.TrimPrefix(row.Note+"; not measured", "; ")
	}
	if len(counts) > 0 {
		row.Spread = &[2]float64{slices.Min(counts), slices.Max(counts)}
		row.Samples = slices.Clone(counts)
	}
	r.Rows = append(r.Rows, row)
}

// figure writes a number in three digits, or whole from a thousand on.
func figure(v float64) string {
	if math.Abs(v) >= 1000 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// Median of the values; of an even number the mean of the middle two, of none NaN.
func Median(values []float64) float64 {
	s := slices.Sorted(slices.Values(values))
	if len(s) == 0 {
		return math.NaN()
	}
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// WriteFile writes the report as WriteJSON does.
func (r *Report) WriteFile(path string) error { return WriteJSON(path, r) }

// WriteJSON writes a document as JSON, making the folder where it is missing. The file is replaced whole or not at all.
func WriteJSON(path string, document any) error {
	b, err := json.MarshalIndent(document, "", "  ")
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	tmp := path + ".new"
	if err := os.WriteFile(tmp, append(b, '\n'), 0o644); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	if err := os.Rename(tmp, path); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

// Made is the line of a page that says what made a report, and where.
func (r *Report) Made() string { return fmt.Sprintf("Made by `%s` on %s.\n", r.Command, r.Machine) }

// ByName are the rows by their names.
func (r *Report) ByName() map[string]Row {
	rows := make(map[string]Row, len(r.Rows))
	for _, row := range r.Rows {
		rows[row.Name] = row
	}
	return rows
}

// Markdown writes the rows as a table, with the machine and the command above it.
func (r *Report) Markdown(w io.Writer) error {
	var b strings.Builder
	b.WriteString(r.Made())
	if r.Interrupted != "" {
		fmt.Fprintf(&b, "**Interrupted: %s.** The rows are those that were complete.\n", r.Interrupted)
	}
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "%s\n", n)
	}
	v := r.Verdict()
	for _, line := range []string{v.InvalidLine(), v.MissedLine()} {
		if line != "" {
			fmt.Fprintf(&b, "%s.\n", line)
		}
	}
	cpu := slices.ContainsFunc(r.Rows, func(row Row) bool { return row.CPU > 0 })
	b.WriteString("\n| row | median | against | ratio | spread | goal | bound by |")
	if cpu {
		b.WriteString(" CPU ns a frame | load |\n|---|---:|---|---:|---:|---:|---|---:|---:|\n")
	} else {
		b.WriteString("\n|---|---:|---|---:|---:|---:|---|\n")
	}
	for _, row := range r.Rows {
		spread, ratio, goal, bound := "", "", "", row.Bound
		if row.Spread != nil {
			spread = figure(row.Spread[0]) + " - " + figure(row.Spread[1])
		}
		if row.Against != "" {
			ratio = fmt.Sprintf("%.2fx", row.Ratio)
		}
		if row.Goal != 0 {
			goal = fmt.Sprintf("%.2fx", row.Goal)
		}
		if row.Note != "" {
			bound = strings.TrimPrefix(bound+"; "+row.Note, "; ")
		}
		fmt.Fprintf(&b, "| %s | %s %s | %s | %s | %s | %s | %s |", row.Name, figure(row.Value), row.Unit, row.Against, ratio, spread, goal, bound)
		switch {
		case cpu && row.CPU > 0:
			fmt.Fprintf(&b, " %.0f | %.1f |", row.CPU, row.Load)
		case cpu:
			b.WriteString(" | |")
		}
		b.WriteString("\n")
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}
