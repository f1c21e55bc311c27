package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"gradnic/interop"
)

func newInteropCardCmd() *cobra.Command {
	var (
		o          interop.CardRun
		mac, ip    string
		tap, junit string
		asJSON     bool
	)
	cmd := &cobra.Command{
		Use:   "card --interface IFACE --protocol native|switchml",
		Short: "Play the card's part for workers under test",
		Long: "Play the card's part for workers under test, which are on the other end of an interface's\n" +
			"link. It answers them as a card does, loses, doubles, delays and swaps packets phase by\n" +
			"phase, and watches that they keep the protocol's rules: no slot used before its result is\n" +
			"there, packets sent again as they were, turns kept. It ends when the phases are over, or\n" +
			"when nothing new has come for a while. It takes CAP_NET_RAW. SwitchML's workers register\n" +
			"at a controller, --controller; native ones find the job, whose number is 1, by themselves.",
		Example: "  gradnic interop card --interface eth1 --protocol native --workers 2 --elements 256\n" +
			"  gradnic interop card --interface eth1 --protocol switchml --controller 10.1.0.1",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Interface == "" {
				return usageErrorf("--interface is missing: which one leads to the workers")
			}
			var card interop.Options
			if err := card.SetCard(mac, ip); err != nil {
				return usageErrorf("%w", err)
			}
			o.MAC, o.IP = card.NIC.MAC, card.NIC.IP
			o.Ready = func() error {
				_, err := fmt.Fprintf(cmd.ErrOrStderr(), "ready: workers of %v may start\n", o.IP)
				return err
			}
			r, err := interop.RunCard(cmd.Context(), o)
			if err != nil {
				return err
			}
			return writeReports(cmd.OutOrStdout(), []*interop.Report{r}, tap, junit, asJSON)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Interface, "interface", "", "interface that leads to the workers")
	f.StringVar(&o.Protocol, "protocol", "native", "native or switchml")
	f.StringVar(&mac, "card-mac", "06:00:00:00:00:fe", "the card's MAC address")
	f.StringVar(&ip, "card-ip", "10.50.0.254", "the card's IPv4 address")
	f.IntVar(&o.Workers, "workers", 2, "native: how many workers reduce together")
	f.IntVar(&o.Elements, "elements", 256, "native: int32 a packet")
	f.IntVar(&o.Slots, "slots", 64, "native: slots of the job")
	f.StringVar(&o.Controller, "controller", "", "switchml: where the controller answers, HOST or HOST:PORT")
	f.DurationVar(&o.Idle, "idle", 5*time.Second, "how long nothing new ends the test")
	f.StringVar(&tap, "tap", "", "write TAP to this file, - for standard output instead of the matrix")
	f.StringVar(&junit, "junit", "", "write JUnit's XML to this file")
	f.BoolVarP(&asJSON, "json", "j", false, "print one JSON document instead of the matrix")
	return cmd
}
