package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"gradnic/control"
	apiv1 "gradnic/control/api/v1"
	"gradnic/control/show"
	"gradnic/dataplane"
)

func newTraceCmd() *cobra.Command {
	var (
		api    apiFlags
		asJSON bool
		r      apiv1.TraceRequest
	)
	cmd := &cobra.Command{
		Use:   "trace --slot N",
		Short: "Follow the next frames of a slot through every stage",
		Long: "Follow the next frames of a slot of a running NIC through every stage: received,\n" +
			"parsed, matched to a worker, contributed to the slot, replied to, sent. It ends after\n" +
			"--count frames, on SIGINT, or with the NIC.",
		Example: "  gradnic trace --slot 17 --count 4\n" +
			"  gradnic trace --slot 17 --job train -j",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("slot") {
				return usageErrorf("--slot is missing: the slot whose frames to follow")
			}
			n, lost := 0, uint64(0)
			err := api.stream(cmd, func(c *control.Client) error {
				return c.TraceFrames(cmd.Context(), &r, func(m *apiv1.TraceResponse) error {
					lost = m.GetLost()
					if m.GetFrame() == nil {
						fmt.Fprintf(cmd.ErrOrStderr(), "tracing slot %d\n", r.GetSlot())
						return nil
					}
					n++
					f := show.TracedFrom(m.GetFrame())
					if asJSON {
						return json.NewEncoder(cmd.OutOrStdout()).Encode(f)
					}
					f.Time = f.Time.Local()
					return show.TextTraced(cmd.OutOrStdout(), n, f)
				})
			})
			if err == nil && lost > 0 {
				fmt.Fprintf(cmd.ErrOrStderr(), "%d more frames were not read in time\n", lost)
			}
			return err
		},
	}
	api.register(cmd)
	f := cmd.Flags()
	f.Uint32Var(&r.Slot, "slot", 0, "the slot, in both its sets")
	f.StringVar(&r.Job, "job", "", "only frames of this job (default: of all, and of none)")
	f.Uint32Var(&r.Count, "count", dataplane.DefaultTraceCount, "end after so many frames")
	f.BoolVarP(&asJSON, "json", "j", false, "print one JSON document a frame and line")
	return cmd
}
