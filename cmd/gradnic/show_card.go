package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"gradnic/control"
	apiv1 "gradnic/control/api/v1"
	"gradnic/control/card"
)

func newShowCardCmd(api *apiFlags, output *outputFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "card [NAME]",
		Short: "What the card that the NIC stands in for would take, or a profile by name, without a NIC",
		Long: "What the card that the NIC stands in for (run --card) would take, with the source of\n" +
			"each figure; or a profile by name, for which no NIC is needed. Shipped are:\n" + strings.Join(card.Shipped(), ", ") + ".",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				p, err := card.Load(args[0])
				if err != nil {
					return err
				}
				return printCard(cmd.OutOrStdout(), output, p)
			}
			return api.call(cmd, func(ctx context.Context, c *control.Client) error {
				r, err := c.GetCard(ctx, &apiv1.GetCardRequest{})
				if err != nil {
					return err
				}
				if r.GetProfile() == "" {
					return printCard(cmd.OutOrStdout(), output, nil)
				}
				p, err := card.Parse("of the NIC", []byte(r.GetProfile()))
				if err != nil {
					return err
				}
				return printCard(cmd.OutOrStdout(), output, p)
			})
		},
	}
}

// printCard prints a profile; nil: there is none.
func printCard(out io.Writer, output *outputFlags, p *card.Profile) error {
	return output.print(out, struct {
		Card *card.Profile `json:"card"`
	}{p}, func(w io.Writer) error {
		if p == nil {
			_, err := fmt.Fprintf(w, "no card: run --card takes %s\n", strings.Join(card.Shipped(), ", "))
			return err
		}
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintf(t, "card\t%s\t%s\n", p.Name, p.What)
		if p.Protocols != nil {
			fmt.Fprintf(t, "protocols\t%s\t%s\n", strings.Join(p.Protocols.Value, " "), p.Protocols.Source)
		}
		if p.Jobs != nil {
			fmt.Fprintf(t, "jobs\t%d\t%s\n", p.Jobs.Value, p.Jobs.Source)
		}
		if p.Slots != nil {
			fmt.Fprintf(t, "slots\t%d\t%s\n", p.Slots.Value, p.Slots.Source)
		}
		for _, f := range []struct {
			name, unit string
			figure     *card.Figure
		}{{"slot memory", " bytes", p.SlotMemory}, {"link rate", " bit/s", p.LinkRate}, {"latency", " ns", p.Latency}} {
			if f.figure != nil {
				fmt.Fprintf(t, "%s\t%d%s\t%s\n", f.name, f.figure.Value, f.unit, f.figure.Source)
			}
		}
		if p.Types != nil {
			fmt.Fprintf(t, "types\t%s\t%s\n", strings.Join(p.Types.Value, " "), p.Types.Source)
		}
		for _, s := range p.Sizes {
			fmt.Fprintf(t, "elements\t%d\tup to %d workers: %s\n", s.Elements, s.Workers, s.Source)
		}
		return t.Flush()
	})
}
