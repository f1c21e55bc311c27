package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"gradnic/control"
	apiv1 "gradnic/control/api/v1"
)

func newRenewCmd() *cobra.Command {
	var api apiFlags
	cmd := &cobra.Command{
		Use:   "renew",
		Short: "Renew the lease of a job",
		Args:  noSuchVerb,
		RunE:  needVerb,
	}
	api.register(cmd)
	cmd.AddCommand(&cobra.Command{
		Use:   "job NAME",
		Short: "Let the lease of a job begin anew",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return api.call(cmd, func(ctx context.Context, c *control.Client) error {
				r, err := c.RenewLease(ctx, &apiv1.RenewLeaseRequest{Name: args[0]})
				if err != nil {
					return err
				}
				until := "has no lease"
				if r.GetExpires() != nil {
					until = "renewed until " + r.GetExpires().AsTime().Format(time.RFC3339)
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "job %s %s\n", args[0], until)
				return err
			})
		},
	})
	return cmd
}

func newWatchCmd() *cobra.Command {
	var api apiFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "watch",
		Short: "Watch the jobs of a running NIC change",
		Args:  noSuchVerb,
		RunE:  needVerb,
	}
	cmd.PersistentFlags().StringVar(&api.address, "api", control.DefaultAddress(), "the NIC's API: path of its Unix socket, or tcp://HOST:PORT")
	api.registerTLS(cmd.PersistentFlags())
	jobs := &cobra.Command{
		Use:   "jobs",
		Short: "Print a line for each job, and for each change, until SIGINT",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := control.DialTLS(api.address, api.tls)
			if err != nil {
				return usageErrorf("--api: %w", err)
			}
			defer c.Close()
			stream, err := c.WatchJobs(cmd.Context(), &apiv1.WatchJobsRequest{})
			for err == nil {
				var m *apiv1.WatchJobsResponse
				if m, err = stream.Recv(); err == nil {
					err = printChange(cmd.OutOrStdout(), m, asJSON)
				}
			}
			if cmd.Context().Err() != nil {
				return nil // SIGINT is how a watch ends
			}
			return api.explain(err)
		},
	}
	jobs.Flags().BoolVarP(&asJSON, "json", "j", false, "print one JSON document a line")
	cmd.AddCommand(jobs)
	return cmd
}

func printChange(w io.Writer, m *apiv1.WatchJobsResponse, asJSON bool) error {
	change := strings.ToLower(strings.TrimPrefix(m.GetChange().String(), "CHANGE_"))
	if asJSON {
		return json.NewEncoder(w).Encode(struct {
			Change     string `json:"change"`
			Job        string `json:"job"`
			Generation uint64 `json:"generation"`
			Why        string `json:"why"`
		}{change, m.GetName(), m.GetGeneration(), m.GetWhy()})
	}
	_, err := fmt.Fprintf(w, "%-9s  %s  generation %d  %s\n", change, m.GetName(), m.GetGeneration(), m.GetWhy())
	return err
}
