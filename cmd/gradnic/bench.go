package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"gradnic/bench"
	"gradnic/bench/collective"
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
	cmd.AddCommand(newBenchEngineCmd(), newBenchAllReduceCmd(), newBenchGenCmd(), newBenchSinkCmd(), newBenchDeviceCmd(), newContestantCmd())
	return cmd
}

// output is where a bench leaves its report.
type output struct {
	json, page string
	quiet      bool
}

func (o *output) flags(cmd *cobra.Command, name string) {
	f := cmd.Flags()
	f.StringVar(&o.json, "json", "", "write the report to this file as well")
	f.StringVar(&o.page, "page", "", "put the table into this Markdown page as well, between its <!-- "+name+" --> lines")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "no progress on standard error")
}

// log is where progress goes.
func (o *output) log(cmd *cobra.Command) io.Writer {
	if o.quiet {
		return io.Discard
	}
	return cmd.ErrOrStderr()
}

func (o *output) write(cmd *cobra.Command, name string, r *benchreport.Report) error {
	if o.json != "" {
		if err := r.WriteFile(o.json); err != nil {
			return err
		}
	}
	if o.page != "" {
		if err := r.ReplaceIn(o.page, name); err != nil {
			return err
		}
	}
	return r.Markdown(cmd.OutOrStdout())
}

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
			dir, err := os.MkdirTemp("", "gradnic-bench-")
			if err != nil {
				return fmt.Errorf("folder for the yardstick: %w", err)
			}
			defer os.RemoveAll(dir)
			o.Dir, o.Log = dir, out.log(cmd)
			r, err := collective.Run(cmd.Context(), o)
			if err != nil {
				return err
			}
			return out.write(cmd, "allreduce", r)
		},
	}
	cmd.Flags().IntVar(&o.Rounds, "rounds", 5, "rounds of each size")
	cmd.Flags().StringVar(&o.Command, "command", "gradnic bench allreduce", "what the report says made it")
	out.flags(cmd, "allreduce")
	return cmd
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
shows medians, and ratios of turns of the same round. Needs root, two CPUs and a C compiler.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			self, err := os.Executable()
			if err != nil {
				return fmt.Errorf("find this program: %w", err)
			}
			o.Self = []string{self, "bench", "contestant"}
			if o.Dir, err = os.MkdirTemp("", "gradnic-bench-"); err != nil {
				return fmt.Errorf("folder for the C yardstick: %w", err)
			}
			defer os.RemoveAll(o.Dir)
			o.Log = out.log(cmd)
			r, err := bench.Engine(cmd.Context(), o)
			if err != nil {
				return err
			}
			return out.write(cmd, "engine", r)
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.Rounds, "rounds", 5, "turns of each contestant")
	f.DurationVar(&o.Run, "run", time.Second/2, "length of a turn")
	f.IntSliceVar(&o.Sizes, "sizes", []int{64, 298, 1066, 1514}, "frame sizes in bytes without FCS")
	f.StringVar(&o.Command, "command", "gradnic bench engine", "what the report says made it")
	out.flags(cmd, "engine")
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
