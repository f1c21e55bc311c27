package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"gradnic/interop"
)

func newInteropRunCmd() *cobra.Command {
	var (
		o          interop.Options
		suites     []string
		target     string
		elements   []int
		mac, ip    string
		tap, junit string
		asJSON     bool
	)
	cmd := &cobra.Command{
		Use:   "run --suite NAME --target mem|IFACE|exec:COMMAND",
		Short: "Run conformance suites against a card",
		Long: "Run conformance suites against a card: gradnic in memory (mem), what is on the other\n" +
			"end of an interface's link (its name), or a simulator behind a pipe (exec:COMMAND). The\n" +
			"kit plays all workers: worker R is 02:00:00:00:01:0R, 10.50.0.(R+1), UDP port 4000.\n" +
			"It prints a matrix of passed, failed and unsupported cases and what went wrong; the exit\n" +
			"status is 0 only when no case failed and each suite has tested something.\n\n" +
			"exec: frames go to the command's standard input and come from its standard output,\n" +
			"each as 4 bytes of length, big endian, and its bytes. Length zero asks for all that the\n" +
			"frames before caused; the command answers with length zero when it has sent that.",
		Example: "  gradnic interop run --suite switchml --target mem\n" +
			"  gradnic interop run --suite switchml --target eth1 --elements 64 --keep build/interop\n" +
			"  gradnic interop run --suite switchml --target exec:./simulator --tap -",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if target == "" || len(suites) == 0 {
				return usageErrorf("--suite and --target are needed: which suites (%s), and against what", strings.Join(interop.Shipped(), ", "))
			}
			if err := o.SetCard(mac, ip); err != nil {
				return usageErrorf("%w", err)
			}
			if asJSON && tap == "-" {
				return usageErrorf("--json and --tap - both write to standard output: give TAP a file")
			}
			for _, n := range append([]int{o.Slots}, elements...) {
				if n < 1 {
					return usageErrorf("--slots and --elements are numbers from 1")
				}
			}
			reports, err := interop.RunAll(cmd.Context(), suites, target, elements, o)
			if err != nil && judged(reports) > 1 { // what was found before the case that could not end counts
				_ = writeReports(cmd.OutOrStdout(), reports, tap, junit, asJSON) // err is why the run ended, and what is said
			}
			if errors.Is(err, interop.ErrUnknown) {
				return usageErrorf("%w", err)
			}
			if err != nil {
				return err
			}
			return writeReports(cmd.OutOrStdout(), reports, tap, junit, asJSON)
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&suites, "suite", nil, "suite to run ("+strings.Join(interop.Shipped(), ", ")+"), or a file's path; several with commas")
	f.StringVar(&target, "target", "", "mem, an interface, or exec:COMMAND")
	f.IntSliceVar(&elements, "elements", []int{64, 256}, "values of a packet; a run for each")
	f.IntVar(&o.Slots, "slots", 128, "slots that the card has for the job")
	f.StringVar(&mac, "card-mac", "06:00:00:00:00:fe", "the card's MAC address")
	f.StringVar(&ip, "card-ip", "10.50.0.254", "the card's IPv4 address")
	f.StringVar(&o.Layout, "layout", "", "layout of the frames instead of the suite's own, with the same rules: a name or a file")
	f.StringVar(&o.Call, "call", "", "suites accl and ring on an interface: shell command that has the card make the call in ACCL_COLLECTIVE, RING_COUNT and so on, and ends with it")
	f.StringSliceVar(&o.Only, "case", nil, "only these cases")
	f.StringVar(&o.Captures, "captures", "", "folder of recorded packets (testdata/switchml in the source); without it those cases are unsupported")
	f.StringVar(&o.Keep, "keep", "", "folder that gets a capture (pcapng) of each case that failed")
	f.BoolVar(&o.KeepAll, "keep-all", false, "of every case")
	f.IntVar(&o.Longest, "longest", 0, "longest frame that an exec target takes; 0: any")
	f.DurationVar(&o.Timeout, "timeout", 0, "how long an answer may take (default a second on an interface, 30 s on a pipe)")
	f.DurationVar(&o.Quiet, "quiet", 0, "how long nothing must come from an interface before nothing more is expected (default 10ms)")
	f.StringVar(&tap, "tap", "", "write TAP to this file, - for standard output instead of the matrix")
	f.StringVar(&junit, "junit", "", "write JUnit's XML to this file")
	f.BoolVarP(&asJSON, "json", "j", false, "print one JSON document instead of the matrix")
	return cmd
}

// judged is how many cases have a verdict.
func judged(reports []*interop.Report) (n int) {
	for _, r := range reports {
		n += len(r.Results)
	}
	return n
}

// writeReports prints what was found, and is an error when a case failed, or a suite has tested nothing.
func writeReports(out io.Writer, reports []*interop.Report, tap, junit string, asJSON bool) error {
	save := func(path string, write func(io.Writer, ...*interop.Report) error) error {
		if path == "" || path == "-" {
			return nil
		}
		f, err := os.Create(path)
		if err != nil {
			return err
		}
		err = write(f, reports...)
		if closeErr := f.Close(); err == nil {
			err = closeErr
		}
		return err
	}
	if err := save(junit, interop.JUnit); err != nil {
		return err
	}
	if err := save(tap, interop.TAP); err != nil {
		return err
	}
	var err error
	switch {
	case asJSON:
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		err = e.Encode(reports)
	case tap == "-":
		err = interop.TAP(out, reports...)
	default:
		err = interop.Text(out, reports...)
	}
	if err != nil {
		return err
	}
	failed := 0
	for _, r := range reports {
		failed += r.Count(interop.Failed)
	}
	if failed == 1 {
		return errors.New("1 case failed")
	}
	if failed > 0 {
		return fmt.Errorf("%d cases failed", failed)
	}
	return interop.Untested(reports...)
}
