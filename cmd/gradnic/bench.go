package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"gradnic/bench"
	"gradnic/bench/ndr"
	"gradnic/bench/peers"
	benchreport "gradnic/bench/report"
)

func newBenchCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure gradnic beside what it is compared with",
		Args:  noSuchVerb,
		RunE:  needVerb,
	}
	cmd.AddCommand(newBenchEngineCmd(), newBenchNDRCmd(), newBenchCompareCmd(), newBenchScaleCmd(), newBenchAllReduceCmd(), newBenchSqueezeCmd(), newBenchRingCmd(), newBenchReportCmd(), newBenchAgreeCmd(),
		newBenchGenCmd(), newBenchSinkCmd(), newBenchDeviceCmd(), newContestantCmd())
	return cmd
}

// aboveZero refuses flags that are given as 0: the options behind them mean their defaults by that.
func aboveZero(cmd *cobra.Command, flags ...string) error {
	for _, name := range flags {
		if f := cmd.Flags().Lookup(name); f.Changed && (f.Value.String() == "0" || f.Value.String() == "0s") {
			return usageErrorf("--%s %s: must be above 0", name, f.Value)
		}
	}
	return nil
}

func newBenchEngineCmd() *cobra.Command {
	var (
		o   bench.EngineOptions
		out output
	)
	cmd := &cobra.Command{
		Use:   "engine",
		Short: "Receive, return and aggregate on one core: the engine, asavie/xdp, C, UDP sockets, the kernel",
		Long: `Measures on a veth pair between two namespaces of its own, one core generating and one receiving: receive and
drop, receive and return, and aggregation of eight workers. All contestants take turns in every round; the table
shows medians, and ratios of turns of the same round. On a virtual machine a neighbour may have the other half of a core: of a turn
parts of 15 ms are looked at, and the 90th percentile of their rates counts; aggregation and echoes wait until a loop of additions finds both CPUs
undisturbed, and are repeated when it does not afterwards, as long as there is patience. Needs root, two CPUs and a C compiler.`,
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
				return bench.Engine(cmd.Context(), o)
			})
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.Rounds, "rounds", 5, "turns of each contestant")
	f.DurationVar(&o.Run, "run", time.Second/2, "length of a turn")
	f.IntSliceVar(&o.Sizes, "sizes", []int{64, 298, 1066, 1514}, "frame sizes in bytes without FCS")
	f.DurationVar(&o.Patience, "patience", 5*time.Minute, "how long aggregation and echoes wait in all for CPUs that nobody disturbs, and disturbed ones are repeated; 0: they count as they come")
	out.flags(cmd)
	return cmd
}

func newBenchNDRCmd() *cobra.Command {
	var (
		o     bench.NDROptions
		goals []float64
		final time.Duration
		out   output
	)
	cmd := &cobra.Command{
		Use:   "ndr",
		Short: "Search for the highest rates without loss, and with half a percent (RFC 2544)",
		Long: `Searches by bisection, for devices that send every frame back on a veth pair between two namespaces of its own, the
highest rates at which at most the given shares of frames are lost. Trials are short at first and long at the end. A trial whose
generator sent less than 99.9 % of what was asked, or took over 1.01 times as long, is INVALID. The same search without a
device bounds what can be told: results that come near it are marked "tester-bound". Needs root and two CPUs.`,
		Example: `  gradnic bench ndr --devices lane,asavie --sizes 1066 --loss 0.5`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := aboveZero(cmd, "rounds"); err != nil {
				return err
			}
			if final <= 0 {
				return usageErrorf("--trial %v: the last trials must take some time", final)
			}
			o.Search = ndr.Options{Precision: o.Search.Precision, Trials: []time.Duration{final / 10, final * 3 / 10, final}}
			for _, g := range goals {
				o.Search.Goals = append(o.Search.Goals, g/100)
			}
			if err := o.Check(); err != nil {
				return usageErrorf("%v", err)
			}
			return out.measure(cmd, func(p place) (*benchreport.Report, error) {
				o.Self, o.Dir, o.Log, o.Command = p.self, p.dir, p.log, p.command
				return bench.NDR(cmd.Context(), o)
			})
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.Devices, "devices", []string{"in-kernel", "lane", "rings", "asavie-example", "asavie"}, "of in-kernel, lane, rings, asavie, asavie-example, c, udp, packet, testpmd, kernel")
	f.IntSliceVar(&o.Sizes, "sizes", []int{64, 298, 1066, 1514}, "frame sizes in bytes without FCS")
	f.Float64SliceVar(&goals, "loss", []float64{0, 0.5}, "shares of frames that may be lost, in percent, rising")
	f.DurationVar(&final, "trial", time.Second, "length of the last trials")
	f.Float64Var(&o.Search.Precision, "precision", 0.02, "how far apart the highest rate that passed and the lowest that failed may be")
	f.IntVar(&o.Rounds, "rounds", 3, "searches of each device and size")
	out.flags(cmd)
	return cmd
}

func newBenchReportCmd() *cobra.Command {
	var (
		html   string
		strict bool
	)
	cmd := &cobra.Command{
		Use:   "report FILE [FILE]",
		Short: "Show a report, or compare two with confidence",
		Long: `Prints the table of one report, or compares the rows that two have in common: medians, the change, and the probability
that samples would differ as much by chance (Mann-Whitney U test). "~" is a difference that may be chance (p >= 0.05). Of one report the last line says which goals are missed and which rows are
INVALID; with --strict the status is 1 for missed goals, and 3 for INVALID rows.`,
		Example: `  gradnic bench report before.json after.json
  gradnic bench report --html engine.html engine.json`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := benchreport.Read(args[0])
			if err != nil {
				return err
			}
			if html != "" && len(args) > 1 {
				return usageErrorf("--html shows one report, not two")
			}
			if len(args) == 1 {
				if html != "" {
					err = r.WriteHTML(html)
				} else {
					err = r.Markdown(cmd.OutOrStdout())
				}
				if err != nil {
					return err
				}
				err := verdict(cmd.ErrOrStderr(), r, strict)
				if err != nil && !strict {
					fmt.Fprintln(cmd.ErrOrStderr(), err)
					return nil
				}
				return err
			}
			if strict {
				return usageErrorf("--strict judges one report, not two: see gradnic bench agree")
			}
			after, err := benchreport.Read(args[1])
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "before: `%s` on %s\nafter: `%s` on %s\n\n", r.Command, r.Machine, after.Command, after.Machine)
			rows, missing := benchreport.Compare(r, after)
			return benchreport.WriteComparison(cmd.OutOrStdout(), rows, missing)
		},
	}
	cmd.Flags().StringVar(&html, "html", "", "write the report as a page to this file instead")
	cmd.Flags().BoolVar(&strict, "strict", false, "the status says whether goals are missed, or rows INVALID")
	return cmd
}

// newContestantCmd is the process that one contestant runs in; the bench starts it in the device's namespace.
func newContestantCmd() *cobra.Command {
	return &cobra.Command{
		Use:    "contestant KIND IFNAME QUEUE TASK CPU",
		Short:  "One contestant's process (started by the bench)",
		Hidden: true,
		Args:   cobra.ExactArgs(5),
		RunE: func(cmd *cobra.Command, args []string) error {
			return peers.Main(args, cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
}
