package main

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

	"gradnic/internal/acclrun"
	"gradnic/worker/accl"
)

func newACCLCmd() *cobra.Command {
	var (
		o                   acclrun.Options
		ranks               string
		collective, typ, op string
		output              outputFlags
	)
	cmd := &cobra.Command{
		Use:   "accl --rank R --ranks ADDRESSES --count N",
		Short: "Be one rank among ACCL cards: make a collective, check it, and time it",
		Long: "Be one rank of a communicator of ACCL, the FPGA cards' collective engine, over its UDP\n" +
			"protocol: on a socket of the kernel, or in a NIC of its own on AF_XDP. The rank makes the\n" +
			"collective with the others, checks every element, and prints a table as nccl-tests does.\n" +
			"All ranks must be given the same arguments but --rank and those of the transport; with\n" +
			"cards among them --check=false, since their elements are not known. The wire has no\n" +
			"handshake: all ranks must be ready within --settle of each other. Every interface on the\n" +
			"way needs an MTU of 4124 or more.",
		Example: "  gradnic accl --rank 0 --ranks 10.10.10.1,10.10.10.2 --collective allreduce --count 1024,65536\n" +
			"  gradnic accl --rank 1 --ranks hosts.json --count 17 --transport xdp --interface eth1 -j",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if ranks == "" {
				return usageErrorf("--ranks is missing: the addresses of all ranks in order, or a JSON file with them")
			}
			var errs [4]error
			o.Rank.Ranks, errs[0] = acclrun.Ranks(ranks)
			o.Call.Collective, errs[1] = accl.ParseCollective(collective)
			o.Call.Type, errs[2] = accl.ParseType(typ)
			o.Call.Op, errs[3] = accl.ParseOp(op)
			err := errors.Join(errs[:]...)
			if err == nil {
				err = o.Validate()
			}
			if err != nil {
				return usageErrorf("%w", err)
			}
			report, err := acclrun.Run(cmd.Context(), o)
			if err != nil && len(report.Rows) == 0 && !output.json && !output.pretty {
				return err // there is nothing to show in a table
			}
			return errors.Join(err, output.print(cmd.OutOrStdout(), report, report.Table))
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.Rank.Rank, "rank", 0, "rank of this one")
	f.StringVar(&ranks, "ranks", "", "addresses of all ranks in order: IP, IP:PORT, IP@MAC, with commas, or a file `x.json` with {\"ips\": [...]}; ports left out are 5500 + rank")
	f.StringVar(&collective, "collective", "allreduce", "send, bcast, scatter, gather, reduce, allgather, reduce_scatter or allreduce; send is the root's to the rank behind it")
	f.IntSliceVar(&o.Counts, "count", []int{1024}, "elements of the call, one row of the table each")
	f.StringVar(&typ, "type", "float32", "float16, float32, float64, int32 or int64")
	f.StringVar(&op, "op", "sum", "sum or max")
	f.IntVar(&o.Call.Root, "root", 0, "root of send, bcast, scatter, gather and reduce")
	f.Uint32Var(&o.Call.Tag, "tag", 0, "tag of send")
	f.BoolVar(&o.Call.Half, "half", false, "float32 is float16 on the wire, and added up so")
	f.StringVar(&o.Transport, "transport", acclrun.OverUDP, "udp: a socket of the kernel; xdp: a NIC of this rank's own on --interface, whose kernel must not have the rank's address")
	f.StringVar(&o.Interface, "interface", "", "xdp: the interface")
	f.Var(textFlag{set: func(s string) error { return o.MAC.UnmarshalText([]byte(s)) }, typing: "mac"}, "mac", "xdp: the NIC's MAC address; left out: made of its IP address")
	f.IntVar(&o.Rank.Segment, "segment", accl.DefaultSegment, "bytes of a receive buffer, the same at all ranks; over 4032 only with --long-messages")
	f.BoolVar(&o.Rank.LongMessages, "long-messages", false, "allow messages of several datagrams, of which not every loss can be found")
	f.IntVar(&o.Rank.MaxEager, "max-eager", accl.DefaultMaxEager, "longest call in bytes; over it a card waits for a rendezvous that never comes")
	f.IntVar(&o.Rank.Buffers, "buffers", accl.DefaultBuffers, "messages that may wait to be used")
	f.DurationVar(&o.Rank.Timeout, "timeout", accl.DefaultTimeout, "longest wait for the next message")
	f.BoolVar(&o.Rank.CardPadding, "card-padding", false, "fill a message's last word as the card's emulator does, with what was there before")
	f.IntVar(&o.Iterations, "iters", 5, "calls to time")
	f.IntVar(&o.Warmup, "warmup", 1, "calls before those")
	f.BoolVar(&o.Sync, "sync", true, "an allreduce of one element a rank between calls that do not keep the ranks together")
	f.BoolVar(&o.Check, "check", true, "check every element of every result")
	f.Uint64Var(&o.Seed, "seed", 1, "seed of the elements, the same at all ranks")
	f.DurationVar(&o.Settle, "settle", time.Second, "time between being ready and the first message")
	f.DurationVar(&o.Join, "join-timeout", 30*time.Second, "xdp: longest search for the other ranks' MAC addresses")
	output.register(cmd)
	return cmd
}
