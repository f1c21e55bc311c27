package main

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"gradnic/control"
	"gradnic/internal/ringrun"
)

func newRingCmd() *cobra.Command {
	var (
		o      ringrun.NodeOptions
		output outputFlags
		nodes  string
	)
	cmd := &cobra.Command{
		Use:   "ring --interface IFACE --nodes LIST --node N",
		Short: "Run one node of a ring of NICs, and sum arrays with the others",
		Long: `Runs a NIC on the interface that is one node of a ring, as the FPGA AI smart NIC is: the nodes' arrays are reduced from
NIC to NIC, compressed on the way. Starts with the other nodes, in any order; sums the array once to warm up and --iters
times more, checks every element, and prints times as nccl-tests does and what the card counts. Status 1 when a node dies
or an element is wrong. With --host-socket it sums what processes of this host hand in, from Go, C, Python or PyTorch, until
it is interrupted. docs/ring.md tells more. Needs root.`,
		Example: `  gradnic ring --interface eth1 --nodes 10.61.1.1,10.61.1.2,10.61.1.3 --node 0
  gradnic ring demo --nodes 6 --kill`,
		Args: noSuchVerb,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if nodes == "" {
				return usageErrorf("--nodes is missing: the addresses of all NICs in the order of the ring")
			}
			if o.Peers, err = ringrun.ParsePeers(nodes); err != nil {
				return usageErrorf("--nodes: %v", err)
			}
			if err := o.Check(); err != nil {
				return usageErrorf("%v", err)
			}
			o.Waiting = func(what string) { fmt.Fprintln(cmd.ErrOrStderr(), "gradnic ring: waiting:", what) }
			o.Logger = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
			r, err := ringrun.RunNode(cmd.Context(), o)
			if r == nil {
				return err
			}
			return errors.Join(err, output.print(cmd.OutOrStdout(), r, r.Write))
		},
	}
	output.register(cmd)
	f := cmd.Flags()
	f.StringVar(&o.Interface, "interface", "", "netdev that the NIC has")
	f.StringVar(&nodes, "nodes", "", "IPv4 addresses of all NICs in the order of the ring, or a file with a line IP or IP MAC for each")
	f.IntVar(&o.Node, "node", 0, "which of them this one is, from 0")
	f.Var(sizeFlag(&o.Bytes, 16<<20), "size", "bytes of the array of float32, such as 64KiB or 16MiB")
	f.StringVar(&o.Codec, "codec", "bfp16", "format between NICs: none, bfp16, bfp16-intel, fp16 or bf16")
	f.IntVar(&o.Iterations, "iters", 5, "all-reduces to time, after one to warm up")
	f.IntVar(&o.MTU, "mtu", 0, "largest IPv4 packet (default the interface's)")
	f.IntVar(&o.Window, "window", 0, "blocks on their way at once (default 16, less with more than 8 nodes)")
	f.DurationVar(&o.DeadAfter, "dead-after", time.Second, "how long a neighbour may be silent")
	f.DurationVar(&o.Deadline, "deadline", time.Minute, "how long an all-reduce may take")
	f.StringVar(&o.HostSocket, "host-socket", "", "give the node to processes of this host, at this Unix socket, until interrupted; sum nothing here")
	f.DurationVar(&o.Join, "join-timeout", 30*time.Second, "how long the ring may take to form")
	cmd.AddCommand(newRingDemoCmd(&output))
	return cmd
}

func newRingDemoCmd(output *outputFlags) *cobra.Command {
	var (
		o      ringrun.DemoOptions
		rateMb uint64
		codecs string
	)
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "A ring of NICs in namespaces of its own, over links of a limited rate, with real gradients",
		Long: `Makes a namespace for each node, connected by a switch over links of a limited rate, runs a NIC in each, and sums real
gradients around the ring with each codec. --loss loses frames on purpose. --kill then takes the power of one NIC away in
the middle of a request, shows what the others say, and goes on without it. Needs root.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Rate, o.Codecs = rateMb*1e6, strings.Split(codecs, ",")
			if err := o.Check(); err != nil {
				return usageErrorf("%v", err)
			}
			r, err := ringrun.Demo(cmd.Context(), o)
			if r == nil {
				return err
			}
			return errors.Join(err, output.print(cmd.OutOrStdout(), r, r.Write))
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.Nodes, "nodes", 6, "nodes, 2 to 16")
	f.Uint64Var(&rateMb, "rate-mbit", 200, "rate of each node's link, in 10^6 bits a second; 0: no limit")
	f.IntVar(&o.MTU, "mtu", 1500, "largest IPv4 packet")
	f.Var(sizeFlag(&o.Bytes, 2<<20), "size", "bytes of float32 a node")
	f.StringVar(&codecs, "codec", "none,bfp16,bfp16-intel", "formats between NICs, comma-separated")
	f.IntVar(&o.Iterations, "iters", 3, "all-reduces of each")
	f.Float64Var(&o.Loss, "loss", 0, "probability, up to 0.5, that a NIC loses a frame that it receives")
	f.BoolVar(&o.Kill, "kill", false, "kill a NIC in the middle of a request, and go on without it")
	return cmd
}

// sizeFlag is a number of bytes, such as 64KiB or 16MiB.
func sizeFlag(to *int64, unless int64) textFlag {
	*to = unless
	return textFlag{
		set:    func(s string) (err error) { *to, err = control.ParseSize(s); return err },
		show:   func() string { return fmt.Sprintf("%dMiB", *to>>20) },
		typing: "bytes",
	}
}
