package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"gradnic/control"
	apiv1 "gradnic/control/api/v1"
)

func newRemoveCmd() *cobra.Command {
	var api apiFlags
	cmd := &cobra.Command{
		Use:   "remove",
		Short: "Remove a job",
		Args:  noSuchVerb,
		RunE:  needVerb,
	}
	api.register(cmd)
	cmd.AddCommand(&cobra.Command{
		Use:   "job NAME",
		Short: "Remove a job, its slots and its group",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return api.call(cmd, func(ctx context.Context, c *control.Client) error {
				if _, err := c.RemoveJob(ctx, &apiv1.RemoveJobRequest{Name: args[0]}); err != nil {
					return err
				}
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "job %s removed\n", args[0])
				return err
			})
		},
	})
	return cmd
}
