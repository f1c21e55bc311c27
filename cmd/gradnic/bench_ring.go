package main

import (
	"github.com/spf13/cobra"

	benchreport "gradnic/bench/report"
	"gradnic/bench/ringbench"
)

func newBenchRingCmd() *cobra.Command {
	var (
		o      ringbench.Options
		out    output
		rateMb uint64
	)
	cmd := &cobra.Command{
		Use:   "ring",
		Short: "The ring of NICs over links of a limited rate: beside the links' bound, TCP, and the model",
		Long: `Measures rings of NICs between namespaces of their own, over links of a limited rate: one all-reduce of 16 MiB at 4
nodes beside what the links allow; then training steps of 20 layers, whose compute is a timed wait, at 2, 4 and 6 nodes,
in turns: naive and overlapped over TCP, through the NICs, and through the NICs with bfp16; and what the model, fitted to
all-reduces of 4 nodes, says of each. Every sum is checked. A raw AF_XDP sender tries the links first. Needs root.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Rate = rateMb * 1e6
			if rateMb == 0 || o.Rounds == 0 || len(o.Nodes) == 0 {
				return usageErrorf("--rate-mbit and --rounds above 0, and some --nodes")
			}
			if err := o.Check(); err != nil {
				return usageErrorf("%v", err)
			}
			return out.measure(cmd, func(p place) (*benchreport.Report, error) {
				o.Log, o.Command = p.log, p.command
				return ringbench.Run(cmd.Context(), o)
			})
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.Rounds, "rounds", 5, "turns of each contestant")
	f.Uint64Var(&rateMb, "rate-mbit", 200, "rate of each node's link, in 10^6 bits a second")
	f.IntSliceVar(&o.Nodes, "nodes", []int{2, 4, 6}, "numbers of nodes of the training steps, comma-separated")
	out.flags(cmd)
	return cmd
}
