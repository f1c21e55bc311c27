package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"gradnic/control"
	apiv1 "gradnic/control/api/v1"
	"gradnic/control/show"
	"gradnic/dataplane"
)

// view is one thing that `gradnic show` shows: a document, and its table.
type view struct {
	name, args, short string
	fetch             func(ctx context.Context, c *control.Client, args []string) (document any, table func(io.Writer) error, err error)
}

var views = []view{
	{"nic", "", "Who the NIC is", showNIC},
	{"jobs", "", "All jobs, a line each", showJobs},
	{"job", "NAME", "All about one job, with the workers that it waits for", showJob},
	{"workers", "", "The workers of all jobs", showWorkers},
	{"slots", "[JOB]", "The pools of slots and how they are used", showSlots},
	{"groups", "[JOB]", "Where the results of a job go", showGroups},
	{"tenants", "", "What each tenant takes, and may take", showTenants},
	{"ports", "", "Ports with their counters and impairments", showPorts},
	{"port", "NAME", "All about one port, with its queues", showPort},
	{"queues", "", "How traffic spreads over the queues of ports", showQueues},
	{"lanes", "", "Lanes with their counters and frames", showLanes},
	{"stages", "", "Where the time of a frame goes, stage by stage", showStages},
	{"drops", "", "Dropped frames by reason, and frames left to the kernel", showDrops},
	{"counters", "", "All counters, and whether they add up", showCounters},
}

func newShowCmd() *cobra.Command {
	var api apiFlags
	var output outputFlags
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show a running NIC: jobs, slots, groups, tenants, ports, queues, lanes, counters",
		Args:  noSuchVerb,
		RunE:  needVerb,
	}
	api.register(cmd)
	output.register(cmd)
	cmd.AddCommand(newShowCodecsCmd(&output), newShowCardCmd(&api, &output))
	for _, v := range views {
		use, args := v.name, cobra.NoArgs
		switch v.args {
		case "NAME":
			use, args = use+" NAME", cobra.ExactArgs(1)
		case "[JOB]":
			use, args = use+" [JOB]", cobra.MaximumNArgs(1)
		}
		cmd.AddCommand(&cobra.Command{
			Use: use, Short: v.short, Args: args,
			RunE: func(cmd *cobra.Command, args []string) error {
				return api.call(cmd, func(ctx context.Context, c *control.Client) error {
					document, table, err := v.fetch(ctx, c, args)
					if err != nil {
						return err
					}
					return output.print(cmd.OutOrStdout(), document, table)
				})
			},
		})
	}
	return cmd
}

func optional(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}

func showNIC(ctx context.Context, c *control.Client, _ []string) (any, func(io.Writer) error, error) {
	m, err := c.GetNIC(ctx, &apiv1.GetNICRequest{})
	nic := show.NICFrom(m)
	return struct {
		NIC show.NIC `json:"nic"`
	}{nic}, func(w io.Writer) error { return show.TableNIC(w, nic) }, err
}

func showJobs(ctx context.Context, c *control.Client, _ []string) (any, func(io.Writer) error, error) {
	m, err := c.ListJobs(ctx, &apiv1.ListJobsRequest{})
	jobs := show.JobsFrom(m)
	return struct {
		Jobs []show.Job `json:"jobs"`
	}{jobs}, func(w io.Writer) error { return show.TableJobs(w, jobs) }, err
}

func showJob(ctx context.Context, c *control.Client, args []string) (any, func(io.Writer) error, error) {
	m, err := c.GetJob(ctx, &apiv1.GetJobRequest{Name: args[0]})
	job := show.JobFrom(m.GetJob())
	return struct {
		Job show.Job `json:"job"`
	}{job}, func(w io.Writer) error { return show.TableJob(w, job, time.Now()) }, err
}

func showWorkers(ctx context.Context, c *control.Client, _ []string) (any, func(io.Writer) error, error) {
	m, err := c.ListJobs(ctx, &apiv1.ListJobsRequest{})
	workers := show.WorkersOf(show.JobsFrom(m))
	return struct {
		Workers []show.Worker `json:"workers"`
	}{workers}, func(w io.Writer) error { return show.TableWorkers(w, workers, time.Now()) }, err
}

func showSlots(ctx context.Context, c *control.Client, args []string) (any, func(io.Writer) error, error) {
	m, err := c.ListSlots(ctx, &apiv1.ListSlotsRequest{Job: optional(args)})
	pools := show.PoolsFrom(m)
	return struct {
		Slots []show.Pool `json:"slots"`
	}{pools}, func(w io.Writer) error { return show.TablePools(w, pools) }, err
}

func showGroups(ctx context.Context, c *control.Client, args []string) (any, func(io.Writer) error, error) {
	m, err := c.ListGroups(ctx, &apiv1.ListGroupsRequest{Job: optional(args)})
	groups := show.GroupsFrom(m)
	return struct {
		Groups []show.Group `json:"groups"`
	}{groups}, func(w io.Writer) error { return show.TableGroups(w, groups) }, err
}

func showTenants(ctx context.Context, c *control.Client, _ []string) (any, func(io.Writer) error, error) {
	m, err := c.ListTenants(ctx, &apiv1.ListTenantsRequest{})
	tenants := show.TenantsFrom(m)
	return struct {
		Tenants []show.Tenant `json:"tenants"`
	}{tenants}, func(w io.Writer) error { return show.TableTenants(w, tenants) }, err
}

func showPort(ctx context.Context, c *control.Client, args []string) (any, func(io.Writer) error, error) {
	m, err := c.ListPorts(ctx, &apiv1.ListPortsRequest{})
	if err != nil {
		return nil, nil, err
	}
	for _, port := range show.PortsFrom(m) {
		if port.Name == args[0] {
			return struct {
				Port show.Port `json:"port"`
			}{port}, func(w io.Writer) error { return show.TablePort(w, &port) }, nil
		}
	}
	return nil, nil, fmt.Errorf("port %s: no such port: gradnic show ports lists those that there are", args[0])
}

func showQueues(ctx context.Context, c *control.Client, _ []string) (any, func(io.Writer) error, error) {
	m, err := c.ListPorts(ctx, &apiv1.ListPortsRequest{})
	queues := show.QueuesOf(show.PortsFrom(m))
	return struct {
		Queues []show.Queue `json:"queues"`
	}{queues}, func(w io.Writer) error { return show.TableQueues(w, queues) }, err
}

func showPorts(ctx context.Context, c *control.Client, _ []string) (any, func(io.Writer) error, error) {
	m, err := c.ListPorts(ctx, &apiv1.ListPortsRequest{})
	ports := show.PortsFrom(m)
	return struct {
		Ports []show.Port `json:"ports"`
	}{ports}, func(w io.Writer) error { return show.TablePorts(w, ports) }, err
}

func showLanes(ctx context.Context, c *control.Client, _ []string) (any, func(io.Writer) error, error) {
	m, err := c.ListLanes(ctx, &apiv1.ListLanesRequest{})
	lanes := show.LanesFrom(m)
	return struct {
		Lanes []dataplane.LaneSnapshot `json:"lanes"`
	}{lanes}, func(w io.Writer) error { return show.TableLanes(w, lanes) }, err
}

func showStages(ctx context.Context, c *control.Client, _ []string) (any, func(io.Writer) error, error) {
	m, err := c.ListStages(ctx, &apiv1.ListStagesRequest{})
	stages := show.StagesFrom(m)
	return stages, func(w io.Writer) error { return show.TableStages(w, stages) }, err
}

func showDrops(ctx context.Context, c *control.Client, _ []string) (any, func(io.Writer) error, error) {
	m, err := c.GetCounters(ctx, &apiv1.GetCountersRequest{})
	if err != nil {
		return nil, nil, err
	}
	ports, err := c.ListPorts(ctx, &apiv1.ListPortsRequest{})
	drops := show.DropsOf(show.CountersFrom(m), show.PortsFrom(ports))
	return drops, func(w io.Writer) error { return show.TableDrops(w, drops) }, err
}

func showCounters(ctx context.Context, c *control.Client, _ []string) (any, func(io.Writer) error, error) {
	m, err := c.GetCounters(ctx, &apiv1.GetCountersRequest{})
	counters := show.CountersFrom(m)
	return counters, func(w io.Writer) error { return show.TableCounters(w, counters) }, err
}
