package main

import (
	"time"

	"github.com/spf13/cobra"

	"gradnic/bench"
	benchreport "gradnic/bench/report"
)

func newBenchCompareCmd() *cobra.Command {
	var (
		o   bench.CompareOptions
		out output
	)
	cmd := &cobra.Command{
		Use:   "compare",
		Short: "Side by side: gradnic, asavie/xdp, C, AF_PACKET, UDP sockets, DPDK's testpmd, the kernel",
		Long: `Receive-and-drop and receive-and-return on a veth pair between two namespaces of its own, one core generating and one
receiving, all contestants in turns: medians, spread, load, processor time a frame, and what bounds each. testpmd is measured
where Debian's dpdk-dev is installed (its af_xdp driver). Needs root, two CPUs and a C compiler.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := aboveZero(cmd, "rounds", "run"); err != nil {
				return err
			}
			if err := o.Check(); err != nil {
				return usageErrorf("%v", err)
			}
			return out.measure(cmd, func(p place) (*benchreport.Report, error) {
				o.Self, o.Dir, o.Log, o.Command = p.self, p.dir, p.log, p.command
				return bench.Compare(cmd.Context(), o)
			})
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.Devices, "devices", []string{"in-kernel", "lane", "rings", "asavie", "c", "packet", "udp", "testpmd", "kernel"}, "who takes turns")
	f.StringVar(&o.Against, "against", "asavie", "whose figures the others' are ratios of")
	f.IntSliceVar(&o.Sizes, "sizes", []int{64, 298, 1066, 1514}, "frame sizes in bytes without FCS")
	f.IntVar(&o.Rounds, "rounds", 5, "turns of each contestant")
	f.DurationVar(&o.Run, "run", time.Second/2, "length of a turn")
	out.flags(cmd)
	return cmd
}

func newBenchScaleCmd() *cobra.Command {
	var (
		o   bench.ScaleOptions
		out output
	)
	cmd := &cobra.Command{
		Use:   "scale",
		Short: "How cost grows: workers, members of a group, slots, jobs, frame sizes",
		Long: `Measures a lane's busy time for each contribution under more load than it can take, on a veth pair between two
namespaces of its own, while one thing grows; and the sum alone, where the slots outgrow the caches. Needs root and two CPUs.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := aboveZero(cmd, "rounds", "run"); err != nil {
				return err
			}
			if err := o.Check(); err != nil {
				return usageErrorf("%v", err)
			}
			return out.measure(cmd, func(p place) (*benchreport.Report, error) {
				o.Log, o.Command = p.log, p.command
				return bench.Scale(cmd.Context(), o)
			})
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.Rounds, "rounds", 3, "of each point")
	f.DurationVar(&o.Run, "run", 200*time.Millisecond, "length of each")
	out.flags(cmd)
	return cmd
}
