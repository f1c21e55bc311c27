package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"gradnic/bench/flow"
	"gradnic/bench/rate"
	"gradnic/bench/sink"
	"gradnic/bench/traffic"
	"gradnic/dataplane"
	"gradnic/wire/inet"
)

// address parses a MAC and an IP address flag; both may be empty.
func address(macFlag, mac, ipFlag, ip string) (m inet.MAC, a inet.Addr, err error) {
	if mac != "" {
		if m, err = inet.ParseMAC(mac); err != nil {
			return m, a, usageErrorf("%s: %v", macFlag, err)
		}
	}
	if ip != "" {
		if a, err = inet.ParseAddr(ip); err != nil {
			return m, a, usageErrorf("%s: %v", ipFlag, err)
		}
	}
	return m, a, nil
}

func newBenchGenCmd() *cobra.Command {
	var (
		g                          traffic.Generate
		output                     outputFlags
		kind, speed, link, mac, ip string
		dry                        bool
	)
	cmd := &cobra.Command{
		Use:   "gen",
		Short: "Generate frames at a rate: from inside the kernel, by AF_XDP from one or many queues, or by UDP sockets",
		Long: `Sends SwitchML, native, ACCL or plain UDP frames out of an interface, and says what was sent. A run that sent less than
99.9 % of what was asked, or took more than 1.01 times as long, is INVALID and ends with status 3. Each frame carries its
number, its time and a checksum, by which "gradnic bench sink" finds what was lost, late, twice or damaged.

Sizes are bytes without FCS, unless --fcs. Rates are max, or a number with pps, bit/s-L1 (with preamble, gap and FCS),
bit/s-L2 (frames with FCS) or % of the link. Needs root, but for --kind udp.`,
		Example: `  gradnic bench gen --interface eth1 --to-mac 02:67:0a:32:00:fe --to 10.50.0.254 --sizes 64 --fcs --rate 50%
  gradnic bench gen --kind udp --to 10.50.0.254 --imix --rate 1Gbit/s-L2 --loss 0.01 --seed 7
  gradnic bench gen --dry-run --to 10.50.0.254 --to-mac 02:67:0a:32:00:fe --sizes 64 --fcs --rate 10Gbit/s-L1`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if g.Flow.Kind, err = flow.ParseKind(kind); err != nil {
				return usageErrorf("--flow: %v", err)
			}
			if g.Rate, err = rate.Parse(speed); err != nil {
				return usageErrorf("--rate: %v", err)
			}
			if link != "" {
				l, err := rate.Parse(link)
				if err != nil || l.Unit != rate.L1 {
					return usageErrorf("--link %q: want bits on the wire, such as 10Gbit/s-L1", link)
				}
				g.Link = l.Value
			}
			if g.Flow.To, g.Flow.ToIP, err = address("--to-mac", mac, "--to", ip); err != nil {
				return err
			}
			if dry {
				p, err := g.Plan()
				if err != nil {
					return usageErrorf("%v", err)
				}
				return output.print(cmd.OutOrStdout(), p, p.Write)
			}
			sent, err := g.Run(cmd.Context())
			if sent == nil {
				return err
			}
			// What an interrupted run has sent is said as well.
			err = errors.Join(err, output.print(cmd.OutOrStdout(), sent, sent.Write))
			if err == nil && sent.Invalid != "" {
				return &invalidError{sent.Invalid}
			}
			return err
		},
	}
	output.register(cmd)
	f := cmd.Flags()
	f.StringVar(&g.Kind, "kind", "xdp", "who sends: kernel (one size, one thread, the fastest), xdp, udp")
	f.StringVar(&g.Interface, "interface", "", "that sends (not for udp)")
	f.StringVar(&kind, "flow", "udp", "udp, switchml, native or accl")
	f.StringVar(&ip, "to", "", "destination IP address")
	f.StringVar(&mac, "to-mac", "", "destination MAC address (not for udp)")
	f.IntSliceVar(&g.Flow.Sizes, "sizes", nil, "frame sizes, 60 to 9014 bytes, mixed alike (default: the smallest of the flow)")
	f.BoolVar(&g.IMIX, "imix", false, "the Internet mix: 7 of 60, 4 of 590 and 1 of 1514 bytes")
	f.BoolVar(&g.FCS, "fcs", false, "--sizes count the 4 bytes of FCS, as RFC 2544 does")
	f.StringVar(&speed, "rate", "max", "over all queues")
	f.StringVar(&link, "link", "", "speed of the link for a rate in percent (default: what the interface says)")
	f.IntVar(&g.Queues, "queues", 1, "queues, or sockets, that send")
	f.DurationVar(&g.For, "for", time.Second, "how long")
	f.IntSliceVar(&g.CPUs, "cpus", nil, "CPUs that the queues' threads are bound to, in turn")
	f.IntVar(&g.Flow.Workers, "workers", 1, "workers that contribute in turn, 1 to 64")
	f.IntVar(&g.Flow.Slots, "slots", 64, "slots of switchml and native flows, used in turn")
	f.Float64Var(&g.Flow.Loss, "loss", 0, "share of numbers left out")
	f.Float64Var(&g.Flow.Duplicate, "duplicate", 0, "share of frames sent twice")
	f.Float64Var(&g.Flow.Reorder, "reorder", 0, "share of frames sent behind the next one")
	f.Float64Var(&g.Flow.Malformed, "malformed", 0, "share of frames sent in addition whose headers contradict each other")
	f.Uint64Var(&g.Flow.Seed, "seed", 1, "of everything random")
	f.BoolVar(&dry, "dry-run", false, "say what would be sent, and send nothing")
	return cmd
}

func newBenchSinkCmd() *cobra.Command {
	var (
		o             sink.Options
		output        outputFlags
		kind, ifi, ip string
		d             time.Duration
	)
	cmd := &cobra.Command{
		Use:   "sink",
		Short: "Receive what bench gen sends: lost, late, twice, damaged, latency",
		Long: `Receives every frame of an interface over AF_XDP, or datagrams at an address through UDP sockets, until Ctrl-C or --for,
and says what became of the flow. Latency is from the stamp in the frame to the receipt; it means something on the sender's
machine only. A percentile is printed from as many samples on as it needs. Damaged frames end it with status 1.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if o.Flow, err = flow.ParseKind(kind); err != nil {
				return usageErrorf("--flow: %v", err)
			}
			if (ifi == "") == (ip == "") {
				return usageErrorf("one of --interface and --listen is needed")
			}
			s, err := traffic.Receive(cmd.Context(), ifi, ip, d, o, func() { fmt.Fprintf(cmd.ErrOrStderr(), "ready interface=%s listen=%s\n", ifi, ip) })
			if s == nil {
				return err
			}
			err = errors.Join(err, output.print(cmd.OutOrStdout(), s, func(w io.Writer) error { return traffic.WriteSummary(w, s) }))
			if err == nil && s.Damaged > 0 {
				return fmt.Errorf("%d frames are damaged", s.Damaged)
			}
			return err
		},
	}
	output.register(cmd)
	f := cmd.Flags()
	f.StringVar(&ifi, "interface", "", "that receives, over AF_XDP")
	f.StringVar(&ip, "listen", "", "IP address at which UDP sockets receive")
	f.StringVar(&kind, "flow", "udp", "udp, switchml, native or accl")
	f.IntVar(&o.Queues, "queues", 1, "queues of the interface, or sockets")
	f.BoolVar(&o.Latency, "latency", true, "keep latencies")
	f.IntVar(&o.Longest, "longest", 1514, "longest frame that may come; above 3840 bytes they come in pieces (Linux 6.6)")
	f.DurationVar(&d, "for", 0, "how long (default: until Ctrl-C)")
	f.IntSliceVar(&o.CPUs, "cpus", nil, "CPUs that the queues' threads are bound to, in turn")
	return cmd
}

func newBenchDeviceCmd() *cobra.Command {
	var (
		d               traffic.Device
		output          outputFlags
		function        string
		macText, ipText string
	)
	cmd := &cobra.Command{
		Use:   "device",
		Short: "Be the device under test: gradnic's lanes that sink or reflect, for bench gen, pktgen or a hardware tester",
		Long: `Takes every frame of an interface with gradnic's data plane and sinks it, or sends it back with the MAC addresses
exchanged, until Ctrl-C or --for. With --pktgen the frames of the Linux kernel's packet generator are recognised and accounted for: lost,
late, twice, latency. With --in-kernel the steering program does all that in the driver, at several times the rate; then what
the driver could not send back is in its own counters, of which those that have grown are listed at the end. On a veth the
other end needs an XDP program. Needs root.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if d.Function, err = dataplane.ParseFunctionKind(function); err != nil || (d.Function != dataplane.Sink && d.Function != dataplane.Reflect) {
				return usageErrorf("--function %q: legal are sink and reflect", function)
			}
			if d.MAC, d.IP, err = address("--mac", macText, "--ip", ipText); err != nil {
				return err
			}
			r, err := d.Run(cmd.Context(), func() { fmt.Fprintf(cmd.ErrOrStderr(), "ready interface=%s function=%v\n", d.Interface, d.Function) })
			if r == nil {
				return err
			}
			return errors.Join(err, output.print(cmd.OutOrStdout(), r, r.Write))
		},
	}
	output.register(cmd)
	f := cmd.Flags()
	f.StringVar(&d.Interface, "interface", "", "that is taken")
	f.StringVar(&function, "function", "reflect", "sink or reflect")
	f.BoolVar(&d.InKernel, "in-kernel", false, "let the steering program do it where frames arrive: several times faster, and no lane sees them")
	f.BoolVar(&d.Pktgen, "pktgen", false, "account for the frames of the kernel's packet generator")
	f.StringVar(&macText, "mac", "06:00:00:00:00:fe", "the NIC's own MAC address")
	f.StringVar(&ipText, "ip", "10.50.0.254", "the NIC's own IP address")
	f.IntVar(&d.Lanes, "lanes", 1, "threads; the interface needs as many queues")
	f.IntSliceVar(&d.CPUs, "cpus", nil, "CPUs of the lanes")
	f.BoolVar(&d.Busy, "busy", false, "spin instead of sleeping when there is nothing to do")
	f.DurationVar(&d.For, "for", 0, "how long (default: until Ctrl-C)")
	if err := cmd.MarkFlagRequired("interface"); err != nil {
		panic(err) // the flag is named right above
	}
	return cmd
}
