package main

import (
	"fmt"
	"io"
	"os"
	"text/tabwriter"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"

	"gradnic/bench/ringbench"
)

func newModelCalibrateCmd() *cobra.Command {
	var (
		o      ringbench.CalibrateOptions
		output outputFlags
		rateMb uint64
		file   string
	)
	cmd := &cobra.Command{
		Use:   "calibrate",
		Short: "Fit a system's figures to all-reduces measured on this machine",
		Long: `Measures all-reduces of three sizes between namespaces of this machine, over links of a limited rate: around a ring of
NICs with and without compression, and in software over TCP, in turns. Fits the link's rate and the cost of a hop, what
software reaches of the link and what its steps cost, measures copying, adding and (unless --tflops says it) a matrix
product in plain Go, and prints a system for --system, with how far the fitted figures are off. Needs root.`,
		Example: `  gradnic model calibrate --out here.yaml
  gradnic model --system ./here.yaml --nodes 6`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Rate, o.Log = rateMb*1e6, cmd.ErrOrStderr()
			if o.Nodes < 2 || o.Nodes > 16 || rateMb == 0 || o.Rounds < 1 {
				return usageErrorf("--nodes from 2 to 16, --rate-mbit and --rounds above 0")
			}
			c, err := ringbench.Calibrate(cmd.Context(), o)
			if err != nil {
				return err
			}
			text, err := yaml.Marshal(c.System)
			if err != nil {
				return fmt.Errorf("write the system: %w", err)
			}
			if file != "" {
				if err := os.WriteFile(file, text, 0o644); err != nil {
					return fmt.Errorf("--out: %w", err)
				}
			}
			return output.print(cmd.OutOrStdout(), c, func(w io.Writer) error {
				t := tabwriter.NewWriter(cmd.ErrOrStderr(), 0, 0, 2, ' ', tabwriter.AlignRight)
				fmt.Fprintln(t, "\tBYTES\tMEASURED\tFITTED\tOFF\t")
				for _, p := range c.Points {
					fmt.Fprintf(t, "%s\t%d\t%.2f ms\t%.2f ms\t%+.1f %%\t\n", p.What, p.Bytes, p.Measured, p.Fitted, 100*(p.Fitted/p.Measured-1))
				}
				if err := t.Flush(); err != nil {
					return err
				}
				_, err := w.Write(text)
				return err
			})
		},
	}
	output.register(cmd)
	f := cmd.Flags()
	f.IntVar(&o.Nodes, "nodes", 4, "nodes that are measured, 2 to 16")
	f.Uint64Var(&rateMb, "rate-mbit", 200, "rate of each node's link, in 10^6 bits a second")
	f.IntVar(&o.MTU, "mtu", 1500, "largest IPv4 packet")
	f.IntVar(&o.Rounds, "rounds", 5, "rounds of each size")
	f.StringVar(&o.Codec, "codec", "bfp16", "the compressed format")
	f.Float64Var(&o.TFLOPS, "tflops", 0, "10^12 operations a second that a node computes (default: measured in plain Go)")
	f.StringVar(&file, "out", "", "also write the system to this file")
	return cmd
}
