package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"gradnic/interop"
	"gradnic/wire/inet"
)

func newInteropReplayCmd() *cobra.Command {
	var (
		o      interop.ReplayOptions
		iface  string
		speed  string
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "replay FILE --interface IFACE",
		Short: "Send the frames of a capture",
		Long: "Send the frames of a capture, pcap or pcapng, out of an interface as they are: at the\n" +
			"distances in which they were recorded, so many times faster, or as fast as they go.\n" +
			"Frames that were recorded cut, or are longer than the interface takes, are left out\n" +
			"and counted. It takes CAP_NET_RAW.",
		Example: "  gradnic interop replay trouble.pcapng --interface eth1\n" +
			"  gradnic interop replay trouble.pcapng --interface eth1 --speed 10\n" +
			"  gradnic interop replay trouble.pcapng --interface eth1 --speed max --count 1000",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if iface == "" {
				return usageErrorf("--interface is missing: which one the frames leave by")
			}
			if o.Count < 0 {
				return usageErrorf("--count %d: frames from 1, or 0 for all", o.Count)
			}
			switch speed {
			case "original":
			case "max":
				o.Max = true
			default:
				x, err := strconv.ParseFloat(speed, 64)
				if err != nil || !(x > 0) || x > 1e9 {
					return usageErrorf("--speed %q: original, max, or a factor above 0", speed)
				}
				o.Speed = x
			}
			link, err := interop.OpenLink(iface)
			if err != nil {
				return err
			}
			defer link.Close()
			o.Longest = link.MTU + inet.EthernetLen
			r, err := interop.Replay(cmd.Context(), args[0], link, o)
			if err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(r)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%d frames, %d bytes in %v, recorded in %v; %d cut and %d too long were left out; at most %v late\n",
				r.Frames, r.Bytes, r.Took.Round(time.Microsecond), r.Span.Round(time.Microsecond), r.Cut, r.Long, r.Latest.Round(time.Microsecond))
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&iface, "interface", "", "interface that the frames leave by")
	f.StringVar(&speed, "speed", "original", "original, a factor, or max")
	f.IntVar(&o.Count, "count", 0, "end after so many frames; 0: all")
	f.BoolVarP(&asJSON, "json", "j", false, "print one JSON document")
	return cmd
}
