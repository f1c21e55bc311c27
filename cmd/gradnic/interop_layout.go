package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"gradnic/interop"
	"gradnic/wire/layout"
)

// newInteropLayoutCmd groups what there is for layouts of headers.
func newInteropLayoutCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "layout",
		Short: "Check files that describe a card's header",
		Args:  cobra.NoArgs,
	}
	cmd.AddCommand(newInteropLayoutCheckCmd(), newInteropLayoutShowCmd())
	return cmd
}

func newInteropLayoutCheckCmd() *cobra.Command {
	var (
		pcap  string
		count int
	)
	cmd := &cobra.Command{
		Use:   "check FILE [--pcap CAPTURE]",
		Short: "Check a layout, and decode a capture by it",
		Long: "Check a layout: a file, or the name of one that comes with gradnic (" + strings.Join(layout.Shipped(), ", ") + ").\n" +
			"With a capture, show each field of each frame, and say what is no frame of the layout.\n" +
			"The exit status is 0 only when the layout is right and every frame of its encapsulation\n" +
			"decodes.",
		Example: "  gradnic interop layout check mycard.yaml\n" +
			"  gradnic interop layout check switchml --pcap hello.pcap --count 3",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := layout.Load(args[0])
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			if pcap == "" {
				_, err := fmt.Fprint(out, l.Summary())
				return err
			}
			return interop.ShowCapture(out, l, pcap, count)
		},
	}
	f := cmd.Flags()
	f.StringVar(&pcap, "pcap", "", "capture to decode, pcap or pcapng")
	f.IntVar(&count, "count", 0, "decode so many frames; 0: all")
	return cmd
}

func newInteropLayoutShowCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "show NAME",
		Short: "Print a layout that comes with gradnic, to start from",
		Long: "Print a layout that comes with gradnic (" + strings.Join(layout.Shipped(), ", ") + "), to start from;\n" +
			"inhouse is annotated.",
		Example: "  gradnic interop layout show inhouse >mycard.yaml",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := layout.Source(args[0])
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(text)
			return err
		},
	}
}
