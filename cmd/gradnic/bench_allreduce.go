package main

import (
	"github.com/spf13/cobra"

	"gradnic/bench/collective"
	benchreport "gradnic/bench/report"
)

func newBenchAllReduceCmd() *cobra.Command {
	var (
		o   collective.Options
		out output
	)
	cmd := &cobra.Command{
		Use:   "allreduce",
		Short: "All-reduces over links of a limited rate: the native protocol beside what the link allows, and beside gloo",
		Long: `Measures all-reduces of float32 between workers in namespaces of their own, each behind a link of 200 Mbit/s (MTU 1500)
or 1 Gbit/s (MTU 9000), through the NIC by the native protocol; and gloo's ring over the same kind of links, where
Debian's python3-torch is installed. A raw AF_XDP sender tries each kind of link first. Every sum is checked. Needs root.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return out.measure(cmd, func(p place) (*benchreport.Report, error) {
				o.Dir, o.Log, o.Command = p.dir, p.log, p.command
				return collective.Run(cmd.Context(), o)
			})
		},
	}
	cmd.Flags().IntVar(&o.Rounds, "rounds", 5, "rounds of each size")
	out.flags(cmd)
	return cmd
}
