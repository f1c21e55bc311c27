package main

import (
	"github.com/spf13/cobra"

	"gradnic/bench/collective"
	benchreport "gradnic/bench/report"
)

func newBenchSqueezeCmd() *cobra.Command {
	var (
		o   collective.SqueezeOptions
		out output
	)
	cmd := &cobra.Command{
		Use:   "squeeze",
		Short: "Steps of a training over limited links, with and without compression",
		Long: `Measures steps of a computation and an all-reduce between workers behind links of a limited rate, without a codec and with
each of some in turns. The computation is a wait whose length is chosen so that the all-reduce without compression is 50
to 55 % of a step; a run in which it was not says INVALID. Every sum is checked. Needs root.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return out.measure(cmd, func(p place) (*benchreport.Report, error) {
				o.Log, o.Command = p.log, p.command
				return collective.Squeeze(cmd.Context(), o)
			})
		},
	}
	cmd.Flags().IntVar(&o.Rounds, "rounds", 9, "steps of each codec")
	out.flags(cmd)
	return cmd
}
