package main

import (
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/spf13/cobra"

	"gradnic/internal/allreduce"
	"gradnic/wire/inet"
	"gradnic/worker"
)

// switchmlPort is where SwitchML's controller listens.
const switchmlPort = "50099"

func newWorkerCmd() *cobra.Command {
	var (
		o          allreduce.Options
		ip         inet.Addr
		mac        inet.MAC
		group      inet.Addr
		controller string
		saturate   bool
		output     outputFlags
		protocol   string
		forNative  nativeFlags
	)
	cmd := &cobra.Command{
		Use:   "worker --controller ADDRESS --rank R --workers N --ip ADDRESS (--input FILE | --random COUNT)",
		Short: "Be one worker: sum an array with the other workers' through the NIC",
		Long: "Be one worker of a SwitchML session: join it at the controller, sum an array with the\n" +
			"other workers' through the NIC, check the sum, and print a table as nccl-tests does.\n" +
			"All workers must be given the same arguments but --rank, --ip and --mac, and arrays of\n" +
			"the same length.",
		Example: "  gradnic worker --controller 10.1.0.254 --rank 0 --workers 2 --ip 10.50.0.1 --random 1048576 --check\n" +
			"  gradnic worker --controller 10.1.0.254 --rank 1 --workers 2 --ip 10.50.0.2 --input 'grad-w{rank}.npy' --output sum.npy",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch protocol {
			case "switchml":
			case "native":
				return forNative.run(cmd, &o, ip, &output)
			default:
				return usageErrorf("--protocol %q: legal are switchml and native", protocol)
			}
			w := &o.Worker
			switch {
			case controller == "" && forNative.nic.IsZero():
				return usageErrorf("--controller is missing: host, host:port or unix:///path of the SwitchML controller; or --nic, for a job that is installed")
			case controller != "" && !forNative.nic.IsZero():
				return usageErrorf("--controller and --nic exclude each other: the controller tells the NIC's address")
			case ip.IsZero():
				return usageErrorf("--ip is missing: this worker's address, on the interface that leads to the NIC")
			}
			w.IP, w.MAC, w.NICIP, w.Group = ip, mac, forNative.nic, group
			if controller != "" {
				w.Controller = controllerAddress(controller)
			}
			w.Waiting = func(what string) { fmt.Fprintf(cmd.ErrOrStderr(), "gradnic worker: waiting: %s\n", what) }
			if saturate {
				w.NonFinite = worker.Saturate
			}
			if err := errors.Join(o.Validate(), w.Validate()); err != nil {
				return usageErrorf("%w", err)
			}
			report, err := allreduce.Run(cmd.Context(), o)
			if err != nil && len(report.Rows) == 0 && !output.json && !output.pretty {
				return err // there is nothing to show in a table
			}
			return errors.Join(err, output.print(cmd.OutOrStdout(), report, report.Table))
		},
	}
	f := cmd.Flags()
	f.StringVar(&protocol, "protocol", "switchml", "switchml or native")
	forNative.register(cmd)
	f.StringVar(&controller, "controller", "", "SwitchML's controller: host, host:port (port "+switchmlPort+" if left out) or unix:///path")
	f.IntVar(&o.Worker.Rank, "rank", 0, "rank of this worker, 0 to workers-1")
	f.IntVar(&o.Worker.Workers, "workers", 0, "number of workers, 1 to 32; native: 0 takes the job's")
	f.Var(textFlag{set: func(s string) error { return ip.UnmarshalText([]byte(s)) }, typing: "address"}, "ip", "this worker's IPv4 address")
	f.Var(textFlag{set: func(s string) error { return mac.UnmarshalText([]byte(s)) }, typing: "mac"}, "mac", "this worker's MAC address; left out: that of the interface that has --ip")
	f.Var(textFlag{set: func(s string) error { return group.UnmarshalText([]byte(s)) }, typing: "address"}, "multicast", "switchml: IPv4 group that the job's results go to, as gradnic install job --multicast has it")
	f.IntVar(&o.Worker.Port, "udp-port", worker.DefaultPort, "UDP port, the first of one a thread; the same at all workers")
	f.StringVar(&o.Input, "input", "", ".npy file of int32 or float32, native: of what the job has; {rank} stands for the rank")
	f.IntSliceVar(&o.Random, "random", nil, "lengths of random arrays, one row of the table each")
	f.Uint64Var(&o.Seed, "seed", 1, "seed of the random arrays, the same at all workers")
	f.StringVar(&o.Output, "output", "", "write the last sum to this .npy file; {rank} stands for the rank")
	f.StringVar(&o.Type, "type", "", "int32 or float32; left out: the file's, float32 for random arrays; native: what the job must have")
	f.IntVar(&o.Iterations, "iters", 5, "all-reduces to time")
	f.IntVar(&o.Warmup, "warmup", 1, "all-reduces before those")
	f.IntVar(&o.Worker.Elements, "elements", worker.DefaultElements, "elements a packet: 64 or 256")
	f.IntVar(&o.Worker.Outstanding, "outstanding", 0, "packets in flight, over all threads; 0: 64 a thread")
	f.IntVar(&o.Worker.Threads, "threads", 1, "threads, each with its own UDP port and slots")
	f.DurationVar(&o.Worker.Timeout, "timeout", worker.DefaultTimeout, "first wait for a result before a packet is sent again; round trips decide later")
	f.DurationVar(&o.Deadline, "deadline", 0, "longest time of one all-reduce, and of joining; 0: wait for ever")
	f.DurationVar(&o.JoinTimeout, "join-timeout", 0, "longest wait for the controller and all workers; 0: the deadline")
	f.BoolVar(&saturate, "saturate", false, "clamp NaN, infinities and magnitudes of 2^126 or more and flag it, instead of failing")
	f.BoolVar(&o.Check, "check", false, "check every element of every sum; with --input all ranks' files are read")
	output.register(cmd)
	return cmd
}

// controllerAddress adds the port where it is left out.
func controllerAddress(s string) string {
	if strings.Contains(s, "://") || strings.HasPrefix(s, "unix:") {
		return s
	}
	if _, _, err := net.SplitHostPort(s); err == nil {
		return s
	}
	return net.JoinHostPort(strings.Trim(s, "[]"), switchmlPort)
}
