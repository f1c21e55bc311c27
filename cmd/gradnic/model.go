package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"gradnic/codec"
	"gradnic/plan"
	"gradnic/plan/forecast"
)

// modelFlags are the figures of a system that a flag may change.
type modelFlags struct {
	link, host, tflops, share, stepUs, linkShare, slowdown float64
	pad                                                    bool
}

func newModelCmd() *cobra.Command {
	var (
		output                                   outputFlags
		html, table, system, codecName, timeline string
		ratio                                    float64
		figures                                  modelFlags
		o                                        forecast.Options
	)
	cmd := &cobra.Command{
		Use:   "model",
		Short: "Predict training with sums in the NIC against plain NICs, from a table of layers",
		Long: `Lays out one training iteration of a model in time: compute, and the all-reduce of each layer as soon as its gradients
are there, summed by software over plain NICs or around a ring inside the NICs, with and without compression. Prints the
iteration's parts, the layers' timeline, what communication is exposed, and the speed-up by nodes. docs/model.md has the
formulas and how to write tables and systems.`,
		Example: `  gradnic model
  gradnic model --batch 448,1792 --html mlp.html
  gradnic model --table resnet-50 --nodes 16 --link-gbit 100 --tflops 20`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if o.Table, err = load("--table", table, plan.ShippedTable, plan.ReadTable); err != nil {
				return err
			}
			if o.System, err = load("--system", system, plan.ShippedSystem, plan.ReadSystem); err != nil {
				return err
			}
			if o.Nodes < 1 {
				return usageErrorf("--nodes %d: at least 1", o.Nodes)
			}
			figures.apply(cmd, o.System)
			if err := o.System.Check(); err != nil {
				return usageErrorf("system: %v", err)
			}
			c, err := codec.ByName(codecName)
			if err != nil {
				return usageErrorf("--codec: %v", err)
			}
			o.Codec, o.Ratio = codecName, ratio
			switch {
			case cmd.Flags().Changed("ratio"):
			case codecName == "none":
				o.Ratio = 1
			default: // the codec's bits are those of a float32
				o.Ratio = c.Info().Ratio() * float64(o.Table.GradientBytes) / 4
			}
			if !(o.Ratio >= 1 && o.Ratio <= math.MaxFloat64) {
				if cmd.Flags().Changed("ratio") {
					return usageErrorf("--ratio %g: a number from 1 up", o.Ratio)
				}
				return usageErrorf("--codec %s makes gradients of %d bytes no smaller for certain: say with --ratio what it makes of yours (gradnic codec eval)",
					codecName, o.Table.GradientBytes)
			}
			d, err := forecast.Build(o)
			if err != nil {
				return usageErrorf("%v", err)
			}
			if timeline != "" {
				if _, err := d.Find(timeline); err != nil {
					return usageErrorf("--timeline: %v", err)
				}
			}
			if html != "" {
				if err := writePage(html, d); err != nil {
					return err
				}
			}
			return output.print(cmd.OutOrStdout(), d, func(w io.Writer) error { return d.Text(w, timeline) })
		},
	}
	output.register(cmd)
	f := cmd.Flags()
	f.StringVar(&table, "table", "mlp-20x2048", "layers: "+strings.Join(plan.Tables(), ", ")+", or a YAML file")
	f.StringVar(&system, "system", "paper", "nodes and links: "+strings.Join(plan.Systems(), ", ")+", or a YAML file")
	f.IntVar(&o.Nodes, "nodes", 6, "nodes of the timeline")
	f.IntSliceVar(&o.ByNodes, "by-nodes", []int{2, 4, 6, 8, 16, 32}, "numbers of nodes to compare, comma-separated")
	f.IntSliceVar(&o.Batches, "batch", nil, "samples a node, comma-separated; the timeline has the first (default the table's)")
	f.StringVar(&codecName, "codec", codec.Default, "compression between NICs (see gradnic show codecs)")
	f.Float64Var(&ratio, "ratio", 0, "compression ratio, if not the codec's own")
	f.Float64Var(&figures.link, "link-gbit", 0, "change the system: rate of a NIC's link")
	f.Float64Var(&figures.host, "host-gbit", 0, "change the system: rate between host and NIC")
	f.Float64Var(&figures.tflops, "tflops", 0, "change the system: 10^12 operations a second that a node reaches")
	f.Float64Var(&figures.share, "share", 0, "change the system: communication's share of the naive iteration, from which compute follows")
	f.Float64Var(&figures.stepUs, "software-step-us", 0, "change the system: what a step of overlapped software costs")
	f.Float64Var(&figures.linkShare, "software-share", 0, "change the system: part of the link that overlapped software reaches")
	f.Float64Var(&figures.slowdown, "slowdown", 0, "change the system: how much longer compute takes beside software")
	f.BoolVar(&figures.pad, "pad", false, "change the system: count the padding of the last block")
	cmd.MarkFlagsMutuallyExclusive("tflops", "share")
	f.StringVar(&timeline, "timeline", "", "mode whose layers are printed: naive, overlapped, ideal, nic or nic+CODEC (default the last)")
	f.StringVar(&html, "html", "", "also write a page with plots to this file")
	cmd.AddCommand(newModelCalibrateCmd())
	return cmd
}

// apply changes the system where a flag was given, and says so in its name.
func (m *modelFlags) apply(cmd *cobra.Command, s *plan.System) {
	changed := false
	for _, c := range []struct {
		flag   string
		change func()
	}{
		{"link-gbit", func() { s.LinkGbit = m.link }},
		{"host-gbit", func() { s.HostGbit = m.host }},
		{"share", func() {
			if s.Compute.Table == "" {
				s.Compute = plan.Compute{Table: "mlp-20x2048", Nodes: 6, Batch: 448}
			}
			s.Compute.Share = m.share
		}},
		{"tflops", func() { s.Compute = plan.Compute{TFLOPS: m.tflops} }},
		{"software-step-us", func() { s.Overlapped.StepUs = m.stepUs }},
		{"software-share", func() { s.Overlapped.LinkShare = m.linkShare }},
		{"slowdown", func() { s.Slowdown = m.slowdown }},
		{"pad", func() { s.PadBlocks = m.pad }},
	} {
		if cmd.Flags().Changed(c.flag) {
			c.change()
			changed = true
		}
	}
	if changed {
		s.Name += ", changed by flags"
	}
}

// load takes what is shipped under a name, or reads a file: what has a dot or a
// slash in it.
func load[T any](flag, name string, shipped func(string) (*T, error), read func(string, io.Reader) (*T, error)) (*T, error) {
	if !strings.ContainsAny(name, "./") {
		v, err := shipped(name)
		if err != nil {
			return nil, usageErrorf("%s: %v, or a file with a dot or a slash in its name", flag, err)
		}
		return v, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	defer f.Close()
	return read(name, f)
}
