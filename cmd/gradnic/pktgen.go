package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"gradnic/bench/pktgen"
)

func newPktgenCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pktgen",
		Short: "Let other packet generators drive a NIC: scripts for the kernel's pktgen, captures to replay",
		Args:  noSuchVerb,
		RunE:  needVerb,
	}
	cmd.AddCommand(newPktgenScriptCmd(), newPktgenPcapCmd())
	return cmd
}

func newPktgenScriptCmd() *cobra.Command {
	var (
		s           pktgen.Script
		mac, ip     string
		count, port uint
	)
	cmd := &cobra.Command{
		Use:   "script",
		Short: "Write a shell script that drives the Linux kernel's pktgen",
		Long: `Writes to standard output the commands for /proc/net/pktgen: one thread for each queue, one run for each frame size.
The NIC counts the frames with "gradnic bench device --pktgen".`,
		Example: `  gradnic pktgen script --interface eth0 --to-mac 02:67:0a:32:00:fe --to 10.50.0.254 --queues 2 --sizes 60,298,1066 | sudo sh`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if s.To, s.ToIP, err = address("--to-mac", mac, "--to", ip); err != nil {
				return err
			}
			if port > 65535 {
				return usageErrorf("--port %d: legal are 1 to 65535", port)
			}
			s.Count, s.Port = uint64(count), uint16(port)
			return s.Write(cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.StringVar(&s.Interface, "interface", "", "that sends")
	f.StringVar(&ip, "to", "", "destination IP address")
	f.StringVar(&mac, "to-mac", "", "destination MAC address")
	f.UintVar(&port, "port", 9, "UDP destination port")
	f.IntVar(&s.Queues, "queues", 1, "queues, each sent by the kernel thread of a CPU")
	f.IntVar(&s.FirstCPU, "first-cpu", 0, "CPU of the first queue's thread")
	f.IntSliceVar(&s.Sizes, "sizes", []int{60}, "frame sizes in bytes without FCS")
	f.UintVar(&count, "count", 1_000_000, "frames of each queue and size")
	f.Float64Var(&s.Rate, "rate", 0, "frames a second over all queues; 0: as fast as it goes")
	return cmd
}

func newPktgenPcapCmd() *cobra.Command {
	var (
		c            pktgen.Capture
		out, mac, ip string
		epoch        uint32
	)
	cmd := &cobra.Command{
		Use:   "pcap FILE",
		Short: "Write a capture of real gradients' contributions, for DPDK pktgen, TRex, tcpreplay or trafgen to replay",
		Long: `Writes the gradients of up to eight workers, packet by packet, as they would reach a NIC: worker w is 10.50.0.(w+1),
02:00:00:00:(w+1):00. A NIC that has the job completes every slot of a replay.`,
		Example: `  gradnic pktgen pcap --to-mac 02:67:0a:32:00:fe --to 10.50.0.254 --workers 4 contributions.pcap`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			out = args[0]
			if c.To, c.ToIP, err = address("--to-mac", mac, "--to", ip); err != nil {
				return err
			}
			c.Epoch = epoch
			f, err := os.Create(out)
			if err != nil {
				return err
			}
			n, err := c.Write(f)
			if err = errors.Join(err, f.Close()); err != nil {
				return errors.Join(err, os.Remove(out))
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %d frames\n", out, n)
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.Protocol, "protocol", "switchml", "switchml or native")
	f.StringVar(&ip, "to", "", "the NIC's IP address")
	f.StringVar(&mac, "to-mac", "", "the NIC's MAC address")
	f.IntVar(&c.Workers, "workers", 8, "1 to 8")
	f.IntVar(&c.Elements, "elements", 256, "of a packet: 64 or 256 for switchml, 1 to 2224 for native")
	f.IntVar(&c.Slots, "slots", 64, "used in turn")
	f.IntVar(&c.Packets, "packets", 0, "of each worker (default: all gradients)")
	f.DurationVar(&c.Gap, "gap", time.Microsecond, "time from frame to frame")
	f.Uint16Var(&c.Job, "number", 1, "native: the job's number on the wire, as gradnic install job --number has it")
	renamed(f, "job", "number")
	f.Uint32Var(&epoch, "epoch", 0, "native: the job's epoch")
	return cmd
}
