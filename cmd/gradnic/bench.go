package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"gradnic/bench"
	"gradnic/bench/peers"
)

func newBenchCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure gradnic beside what it is compared with",
		Args:  noSuchVerb,
		RunE:  needVerb,
	}
	cmd.AddCommand(newBenchEngineCmd(), newContestantCmd())
	return cmd
}

func newBenchEngineCmd() *cobra.Command {
	var (
		o        bench.EngineOptions
		jsonPath string
		page     string
		quiet    bool
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
			o.Log = cmd.ErrOrStderr()
			if quiet {
				o.Log = io.Discard
			}
			r, err := bench.Engine(cmd.Context(), o)
			if err != nil {
				return err
			}
			if jsonPath != "" {
				if err := r.WriteFile(jsonPath); err != nil {
					return err
				}
			}
			if page != "" {
				if err := r.ReplaceIn(page, "engine"); err != nil {
					return err
				}
			}
			return r.Markdown(cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.Rounds, "rounds", 5, "turns of each contestant")
	f.DurationVar(&o.Run, "run", time.Second, "length of a turn")
	f.IntSliceVar(&o.Sizes, "sizes", []int{64, 298, 1066, 1514}, "frame sizes in bytes without FCS")
	f.StringVar(&jsonPath, "json", "", "write the report to this file as well")
	f.StringVar(&page, "page", "", "put the table into this Markdown page as well, between its <!-- engine --> lines")
	f.BoolVarP(&quiet, "quiet", "q", false, "no progress on standard error")
	f.StringVar(&o.Command, "command", "gradnic bench engine", "what the report says made it")
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
