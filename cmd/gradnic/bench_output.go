package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	benchreport "gradnic/bench/report"
)

// output is where a bench leaves its report.
type output struct {
	command, json, html, page string
	table                     string // whose lines of the page are replaced
	quiet                     bool
	bare                      bool // the measurement prints its own table
	strict                    bool // goals that are missed count
}

func (o *output) flags(cmd *cobra.Command) {
	o.table = cmd.Name()
	f := cmd.Flags()
	f.StringVar(&o.json, "json", "", "write the report to this file as well")
	f.StringVar(&o.html, "html", "", "write the report as a page with plots to this file as well")
	f.StringVar(&o.page, "page", "", "put the table into this Markdown page as well, between its <!-- "+o.table+" --> lines")
	f.StringVar(&o.command, "command", "gradnic bench "+o.table, "what the report says made it")
	f.BoolVar(&o.strict, "strict", false, "end with status 1 when a goal is missed")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "no progress, even on a terminal")
}

// place is what a measurement needs of its surroundings.
type place struct {
	self    []string  // argv of a contestant's process
	dir     string    // for files, gone afterwards
	log     io.Writer // progress
	command string    // what the report says made it
}

// measure runs a measurement and leaves its report. What an interrupted one has is left as well, but not in a page of the docs.
func (o *output) measure(cmd *cobra.Command, run func(p place) (*benchreport.Report, error)) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	p := place{self: []string{self, "bench", "contestant"}, log: io.Discard, command: o.command}
	if !o.quiet && terminal(cmd.ErrOrStderr()) {
		p.log = cmd.ErrOrStderr()
	}
	if p.dir, err = os.MkdirTemp("", "gradnic-bench-"); err != nil {
		return fmt.Errorf("folder for the yardsticks: %w", err)
	}
	defer os.RemoveAll(p.dir)
	stolen := benchreport.Stolen()
	r, err := run(p)
	if r == nil || err != nil && len(r.Rows) == 0 {
		return err // nothing was measured, and what an earlier run has left stays
	}
	r.Machine.Stolen = stolen()
	if err != nil && r.Interrupted == "" {
		r.Interrupted = err.Error()
	}
	if err := errors.Join(err, o.write(cmd, r)); err != nil {
		return err
	}
	return verdict(cmd.ErrOrStderr(), r, o.strict)
}

// verdict says last what a report comes to: goals that were missed in a line, which with strict is an error, and INVALID rows as an
// error, whose status is 3.
func verdict(w io.Writer, r *benchreport.Report, strict bool) error {
	v := r.Verdict()
	missed, invalid := v.MissedLine(), v.InvalidLine()
	if invalid == "" && missed != "" && strict {
		return errors.New(missed)
	}
	if missed != "" {
		fmt.Fprintln(w, missed)
	}
	if invalid != "" {
		return &invalidError{invalid}
	}
	return nil
}

// write leaves the report wherever it was asked for; what cannot be written there does not keep it from the other places.
func (o *output) write(cmd *cobra.Command, r *benchreport.Report) (err error) {
	if o.json != "" {
		err = r.WriteFile(o.json)
	}
	if o.html != "" {
		err = errors.Join(err, r.WriteHTML(o.html))
	}
	if o.page != "" && r.Interrupted == "" {
		err = errors.Join(err, r.ReplaceIn(o.page, o.table))
	}
	if o.bare {
		return err
	}
	return errors.Join(err, r.Markdown(cmd.OutOrStdout()))
}

// terminal tells whether somebody looks on.
func terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	s, err := f.Stat()
	return err == nil && s.Mode()&os.ModeCharDevice != 0
}
