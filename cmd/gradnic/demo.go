package main

import (
	"encoding/json"
	"errors"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"gradnic/internal/demo"
)

func newDemoCmd() *cobra.Command {
	var (
		o         demo.Options
		transport string
		asJSON    bool
		verbose   bool
		types     string
		codecs    string
		shuffles  int
	)
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Sum real gradients in the network, end to end, and check every element",
		Long: "demo runs a NIC, its SwitchML controller and workers that sum the gradients of a small\n" +
			"language model through it. As root the NIC runs on AF_XDP and every worker in a network\n" +
			"namespace of its own; all of it is removed at the end, also on Ctrl-C. Without root the same\n" +
			"runs over memory inside the process.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if o.Transport, err = demo.ParseTransport(transport); err != nil {
				return usageErrorf("--transport: %w", err)
			}
			o.Root = os.Geteuid() == 0
			if verbose {
				o.Logger = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
			}
			for flag, n := range map[string]int{"workers": o.Workers, "elements": o.Elements, "iters": o.Iterations} {
				if n == 0 { // in the options the default's name
					return usageErrorf("--%s 0: at least 1", flag)
				}
			}
			if err := o.Check(); err != nil {
				return usageErrorf("%w", err)
			}
			if types != "" && codecs != "" {
				return usageErrorf("--type and --codec exclude each other")
			}
			if types != "" {
				return demoTypes(cmd, o, types, shuffles, asJSON)
			}
			if codecs != "" {
				return demoCodecs(cmd, o, codecs, shuffles, asJSON)
			}
			report, err := demo.Run(cmd.Context(), o)
			if asJSON {
				return errors.Join(err, json.NewEncoder(cmd.OutOrStdout()).Encode(report))
			}
			if !report.Checked() {
				return err
			}
			return errors.Join(err, report.Table(cmd.OutOrStdout()))
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.Workers, "workers", 8, "workers, 1 to 32; there are gradients of 8, further workers have them again")
	f.IntVar(&o.Elements, "elements", 256, "elements a packet: 64 or 256")
	f.StringVar(&transport, "transport", "auto", "xdp (needs root), mem, or auto: xdp as root, else mem")
	f.StringVar(&o.Mode, "mode", "auto", "where the XDP program is attached: native, generic, or auto")
	f.IntVar(&o.Iterations, "iters", 5, "all-reduces to time, after one to warm up")
	f.StringVar(&types, "type", "", "sum over the native protocol in this element type, in several (int32,float16) or in all")
	f.StringVar(&codecs, "codec", "", "sum over the native protocol, compressed by this codec, by several (bfp16,topk) or by all")
	f.IntVar(&shuffles, "shuffles", 20, "with --type or --codec: all-reduces in order of rank, with the workers starting in another order each time")
	f.Float64Var(&o.Loss, "loss", 0, "probability, up to 0.5, that a port loses a frame, in each direction, after the warm-up")
	f.BoolVarP(&asJSON, "json", "j", false, "print one JSON document (docs/json.md)")
	f.BoolVarP(&verbose, "verbose", "v", false, "report on standard error what the NIC and the controller do")
	return cmd
}

// demoTypes runs the demo of the native protocol.
func demoTypes(cmd *cobra.Command, o demo.Options, names string, shuffles int, asJSON bool) error {
	types, err := demo.ParseTypes(names)
	if err != nil {
		return usageErrorf("--type: %w", err)
	}
	if shuffles < 1 {
		return usageErrorf("--shuffles %d: at least 1", shuffles)
	}
	report, err := demo.RunTypes(cmd.Context(), o, types, shuffles)
	if asJSON {
		return errors.Join(err, json.NewEncoder(cmd.OutOrStdout()).Encode(report))
	}
	if len(report.Rows) == 0 {
		return err
	}
	return errors.Join(err, report.Table(cmd.OutOrStdout()))
}

// demoCodecs runs the demo of the codecs in the pipeline.
func demoCodecs(cmd *cobra.Command, o demo.Options, names string, shuffles int, asJSON bool) error {
	codecs, err := demo.ParseCodecs(names)
	if err != nil {
		return usageErrorf("--codec: %w", err)
	}
	if shuffles < 1 {
		return usageErrorf("--shuffles %d: at least 1", shuffles)
	}
	report, err := demo.RunCodecs(cmd.Context(), o, codecs, shuffles)
	if asJSON {
		return errors.Join(err, json.NewEncoder(cmd.OutOrStdout()).Encode(report))
	}
	if len(report.Rows) == 0 {
		return err
	}
	return errors.Join(err, report.Table(cmd.OutOrStdout()))
}
