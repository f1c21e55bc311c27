package main

import "github.com/spf13/cobra"

// newInteropCmd groups what tests and shows other people's cards.
func newInteropCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "interop",
		Short: "Test cards against the protocols, and show their frames",
		Long: "Test cards against the protocols, and show their frames: conformance suites against\n" +
			"gradnic in memory, a card on an interface or a simulator behind a pipe, layouts of\n" +
			"headers, and replay of captures. docs/interop.md is the guide.",
		Args: cobra.NoArgs,
	}
	cmd.AddCommand(newInteropRunCmd(), newInteropCardCmd(), newInteropLayoutCmd(), newInteropReplayCmd())
	return cmd
}
