package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"gradnic/control"
	apiv1 "gradnic/control/api/v1"
)

// percent is a probability that people write in percent: "1", "1%", "0.5%".
type percent float64

func (p *percent) Set(s string) error {
	v, err := strconv.ParseFloat(strings.TrimSuffix(s, "%"), 64)
	if err != nil || !(v >= 0 && v <= 100) {
		return fmt.Errorf("%q: a percentage from 0 to 100", s)
	}
	*p = percent(v / 100)
	return nil
}

func (p *percent) String() string {
	return strconv.FormatFloat(float64(*p)*100, 'g', -1, 64) + "%"
}

func (p *percent) Type() string { return "percent" }

// ordinals are frames counted from 1: "3" or "3,17".
type ordinals []uint64

func (o *ordinals) Set(s string) error {
	for _, part := range strings.Split(s, ",") {
		k, err := strconv.ParseUint(strings.TrimSpace(part), 10, 64)
		if err != nil || k == 0 {
			return fmt.Errorf("%q: numbers of frames, counted from 1, as in 3,17", s)
		}
		*o = append(*o, k)
	}
	return nil
}

func (o *ordinals) String() string {
	parts := make([]string, 0, len(*o))
	for _, k := range *o {
		parts = append(parts, strconv.FormatUint(k, 10))
	}
	return strings.Join(parts, ",")
}

func (o *ordinals) Type() string { return "frames" }

func newSetCmd() *cobra.Command {
	var api apiFlags
	cmd := &cobra.Command{
		Use:   "set",
		Short: "Change a running NIC: impair a port on purpose",
		Args:  noSuchVerb,
		RunE:  needVerb,
	}
	api.register(cmd)
	cmd.AddCommand(newSetImpairCmd(&api))
	return cmd
}

func newSetImpairCmd(api *apiFlags) *cobra.Command {
	var (
		ingressLoss, egressLoss, duplicate, reorder percent
		dropIngress, dropEgress                     ordinals
		reorderBy                                   uint32
		reorderHold                                 time.Duration
		together                                    bool
		seed                                        uint64
	)
	cmd := &cobra.Command{
		Use:   "impair PORT",
		Short: "Make a port lose, double or delay frames, in the place of what it did before",
		Example: "  gradnic set impair veth0 --ingress-loss 1% --egress-loss 1% --seed 7\n" +
			"  gradnic set impair veth0 --drop-egress 17",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			what := false
			for _, f := range []string{"ingress-loss", "egress-loss", "drop-ingress", "drop-egress", "duplicate", "reorder"} {
				what = what || cmd.Flags().Changed(f)
			}
			if !what {
				return usageErrorf("no impairment is given: one or more of --ingress-loss, --egress-loss, --drop-ingress, --drop-egress, --duplicate, --reorder (gradnic clear impair ends one)")
			}
			m := &apiv1.Impairment{
				IngressLoss: float64(ingressLoss), EgressLoss: float64(egressLoss), EgressTogether: together,
				DropIngress: dropIngress, DropEgress: dropEgress,
				Duplicate: float64(duplicate), Reorder: float64(reorder), ReorderBy: reorderBy, Seed: seed,
			}
			if reorderHold != 0 {
				m.ReorderHold = durationpb.New(reorderHold)
			}
			return api.call(cmd, func(ctx context.Context, c *control.Client) error {
				if _, err := c.SetImpairment(ctx, &apiv1.SetImpairmentRequest{Port: args[0], Impairment: m}); err != nil {
					return err
				}
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "port %s impaired\n", args[0])
				return err
			})
		},
	}
	f := cmd.Flags()
	f.Var(&ingressLoss, "ingress-loss", "received frames to lose, in percent")
	f.Var(&egressLoss, "egress-loss", "frames to be sent to lose, in percent")
	f.BoolVar(&together, "egress-together", false, "decide egress loss once for all copies of a result, as the real switch does")
	f.Var(&dropIngress, "drop-ingress", "lose exactly these received frames, counted from 1 from now on")
	f.Var(&dropEgress, "drop-egress", "lose exactly these frames to be sent, counted from 1 from now on")
	f.Var(&duplicate, "duplicate", "received frames to take twice, in percent")
	f.Var(&reorder, "reorder", "received frames to hold back, in percent")
	f.Uint32Var(&reorderBy, "reorder-by", 0, "how many frames go by one that is held back (default 3)")
	f.DurationVar(&reorderHold, "reorder-hold", 0, "the longest time a frame is held back (default 5ms)")
	f.Uint64Var(&seed, "seed", 0, "where the random numbers start (default the NIC's seed)")
	return cmd
}

func newClearCmd() *cobra.Command {
	var api apiFlags
	cmd := &cobra.Command{
		Use:   "clear",
		Short: "Undo what set did",
		Args:  noSuchVerb,
		RunE:  needVerb,
	}
	api.register(cmd)
	var all bool
	impair := &cobra.Command{
		Use:   "impair PORT | impair --all",
		Short: "End the impairment of a port, or of all",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if all == (len(args) == 1) {
				return usageErrorf("name one port, or --all")
			}
			return api.call(cmd, func(ctx context.Context, c *control.Client) error {
				if _, err := c.ClearImpairment(ctx, &apiv1.ClearImpairmentRequest{Port: optional(args)}); err != nil {
					return err
				}
				what := "all ports"
				if !all {
					what = "port " + args[0]
				}
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s no longer impaired\n", what)
				return err
			})
		},
	}
	impair.Flags().BoolVar(&all, "all", false, "all ports")
	cmd.AddCommand(impair)
	return cmd
}
