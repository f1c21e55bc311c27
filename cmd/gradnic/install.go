package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"gradnic/control"
	apiv1 "gradnic/control/api/v1"
)

func newInstallCmd() *cobra.Command {
	var api apiFlags
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Install a job, or add a worker to one",
		Args:  noSuchVerb,
		RunE:  needVerb,
	}
	api.register(cmd)
	cmd.AddCommand(newInstallJobCmd(&api), newInstallWorkerCmd(&api))
	return cmd
}

func newInstallJobCmd(api *apiFlags) *cobra.Command {
	var file string
	var job control.JobFile
	var members []string
	var lease time.Duration
	var keys string
	cmd := &cobra.Command{
		Use:   "job NAME --workers N | job -f FILE",
		Short: "Install a job with its slots and its group, all or nothing",
		Long: "Install a job with its slots and its group, all or nothing. The same job again\n" +
			"changes nothing; another job under a used name is refused.",
		Example: "  gradnic install job train --workers 2 --elements 256 \\\n" +
			"    --member 0=02:00:00:00:01:00,10.50.0.1 --member 1=02:00:00:00:01:01,10.50.0.2\n" +
			"  gradnic install job -f train.yaml",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if file != "" {
				for _, f := range []string{"workers", "elements", "slots", "tenant", "protocol", "member", "number", "type", "op", "order", "policy", "deadline", "multicast", "codec", "result-codec", "layout", "in-kernel"} {
					if cmd.Flags().Changed(f) {
						return usageErrorf("--%s and -f exclude each other: write it into the file", f)
					}
				}
				read, err := readJobFile(file, cmd.InOrStdin())
				if err != nil {
					return err
				}
				job = *read
				if len(args) == 1 {
					if job.Name != "" && job.Name != args[0] {
						return usageErrorf("the file names job %q, the command line %q", job.Name, args[0])
					}
					job.Name = args[0]
				}
			} else {
				if len(args) != 1 {
					return usageErrorf("the job's name is missing: gradnic install job NAME --workers N, or -f FILE")
				}
				if !cmd.Flags().Changed("workers") {
					return usageErrorf("--workers is missing: how many workers reduce together")
				}
				job.Name = args[0]
				for _, text := range members {
					m, err := control.ParseMember(text)
					if err != nil {
						return usageErrorf("--member: %w", err)
					}
					job.Members = append(job.Members, m)
				}
			}
			spec, err := job.Proto()
			if err != nil {
				return err
			}
			request := &apiv1.InstallJobRequest{Spec: spec}
			if lease != 0 {
				request.Lease = durationpb.New(lease)
			}
			if keys != "" && spec.GetNative() == nil {
				return usageErrorf("--keys is for protocol native")
			}
			if spec.GetNative().GetTagged() && keys == "" {
				return usageErrorf("a tagged job needs --keys: where the workers' keys go")
			}
			if keys != "" {
				spec.Native.Tagged = true
			}
			return api.call(cmd, func(ctx context.Context, c *control.Client) error {
				r, err := c.InstallJob(ctx, request)
				if err != nil {
					return err
				}
				if keys != "" {
					if err := control.WriteKeys(keys, r.GetKeys()); err != nil {
						return err
					}
				}
				return report(cmd.OutOrStdout(), "job "+spec.Name, r.GetCreated())
			})
		},
	}
	f := cmd.Flags()
	f.DurationVar(&lease, "lease", 0, "remove the job when it is not renewed for so long, 1s to 168h; without one it stays")
	f.StringVar(&keys, "keys", "", "native: have messages tagged, and write the workers' keys to this file, a line each")
	f.StringVarP(&file, "file", "f", "", "YAML file of the job; - for standard input")
	f.Uint32Var(&job.Workers, "workers", 0, "how many workers reduce together, 1 to 32, or to 1024 with native")
	f.Uint32Var(&job.Elements, "elements", 0, "elements a frame, 64 or 256 (default 256); with native what a chunk takes (default what 1500 bytes take)")
	f.Uint32Var(&job.Slots, "slots", 0, "slots, 1 to 8192, each in two versions (default 512)")
	f.StringVar(&job.Tenant, "tenant", "", "who owns the job")
	f.StringVar(&job.Protocol, "protocol", "switchml", "what the job speaks on the wire: switchml or native")
	f.Uint32Var(&job.Number, "number", 0, "native: the job's number on the wire (default the lowest free one from 1)")
	f.StringVar(&job.Type, "type", "", "native: int32, int64, int8, float32, float64, float16, bfloat16 or bfp16 (default int32)")
	f.StringVar(&job.Op, "op", "", "native: sum, mean, min or max (default sum)")
	f.StringVar(&job.Order, "order", "", "native: arrival or ranked (default arrival)")
	f.StringVar(&job.Policy, "policy", "", "native: propagate or saturate (default propagate)")
	f.DurationVar(&job.Deadline, "deadline", 0, "native: how long a round waits for a worker; negative for ever (default 10s)")
	f.StringVar(&job.Multicast, "multicast", "", "IPv4 group that results go to, one frame a port (default every worker gets its own)")
	f.StringVar(&job.Codec, "codec", "", "native, float32: what contributions are compressed by, as gradnic show codecs names it (default none)")
	f.StringVar(&job.Result, "result-codec", "", "native: what results are compressed by (default --codec; for top-k what holds every sum)")
	f.StringVar(&job.Layout, "layout", "", "header that the job's frames have, by its name at the NIC (gradnic run --layout; default the protocol's own)")
	f.BoolVar(&job.InKernel, "in-kernel", false, "switchml: the ports' steering programs add up, where frames arrive; members need a port unless the NIC has one only")
	f.StringArrayVar(&members, "member", nil, "a worker as RANK=MAC,IP or RANK=MAC,IP,PORT; once for each")
	return cmd
}

func newInstallWorkerCmd(api *apiFlags) *cobra.Command {
	return &cobra.Command{
		Use:     "worker JOB RANK=MAC,IP[,PORT]",
		Short:   "Add a worker to an installed job",
		Example: "  gradnic install worker train 2=02:00:00:00:01:02,10.50.0.3",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := control.ParseMember(args[1])
			if err != nil {
				return usageErrorf("%w", err)
			}
			return api.call(cmd, func(ctx context.Context, c *control.Client) error {
				r, err := c.AddWorker(ctx, &apiv1.AddWorkerRequest{Job: args[0], Worker: m.Proto()})
				if err != nil {
					return err
				}
				return report(cmd.OutOrStdout(), fmt.Sprintf("worker %d of job %s", m.Rank, args[0]), r.GetCreated())
			})
		},
	}
}

func readJobFile(name string, in io.Reader) (*control.JobFile, error) {
	if name == "-" {
		return control.ReadJobFile("standard input", in)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return control.ReadJobFile(name, f)
}

func report(w io.Writer, what string, created bool) error {
	done := "installed"
	if !created {
		done = "unchanged"
	}
	_, err := fmt.Fprintln(w, what+" "+done)
	return err
}
