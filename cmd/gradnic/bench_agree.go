package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	benchreport "gradnic/bench/report"
)

func newBenchAgreeCmd() *cobra.Command {
	var (
		tolerance float64
		page      string
		strict    bool
	)
	cmd := &cobra.Command{
		Use:   "agree FIRST SECOND",
		Short: "Do two runs agree within a tolerance, and if not, why",
		Long: `Holds the medians of two runs of the same measurements against each other. FIRST and SECOND are two reports, or two folders
with reports of the same names. Prints a line for each measurement, and each figure that differs by more than the tolerance
with what the reports tell of the cause: how far the rounds of each run are apart, whether other figures changed as well,
the load, and the time that the hypervisor gave to others. With --strict such figures end it with status 1.`,
		Example: `  gradnic bench agree first.json second.json
  gradnic bench agree build/bench/first build/bench/second --page docs/performance.md`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !(tolerance > 0 && tolerance <= 1000) {
				return usageErrorf("--tolerance %v: legal is above 0 to 1000 percent", tolerance)
			}
			all, alone, err := benchreport.AgreeFiles(args[0], args[1], tolerance/100)
			if err != nil {
				return err
			}
			var text strings.Builder
			if err := benchreport.WriteAgreements(&text, all); err != nil {
				return err
			}
			for _, name := range alone {
				fmt.Fprintf(&text, "\n%s is in one of the folders only.\n", name)
			}
			if page != "" {
				if err := benchreport.ReplaceText(page, "agree", text.String()); err != nil {
					return err
				}
			}
			fmt.Fprint(cmd.OutOrStdout(), text.String())
			beyond, figures := 0, 0
			for _, a := range all {
				beyond, figures = beyond+a.Beyond(), figures+len(a.Figures)
			}
			line := fmt.Sprintf("%d of %d figures differ by more than %g %%, or are INVALID", beyond, figures, tolerance)
			if strict && beyond > 0 {
				return errors.New(line)
			}
			fmt.Fprintln(cmd.ErrOrStderr(), line)
			return nil
		},
	}
	f := cmd.Flags()
	f.Float64Var(&tolerance, "tolerance", 10, "by how much medians may differ, in percent of the lesser one")
	f.StringVar(&page, "page", "", "put the tables into this Markdown page as well, between its <!-- agree --> lines")
	f.BoolVar(&strict, "strict", false, "end with status 1 when a figure differs by more")
	return cmd
}
