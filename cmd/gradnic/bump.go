package main

import (
	"fmt"
	"hash/fnv"
	"log/slog"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"gradnic/control/config"
	"gradnic/control/daemon"
	"gradnic/dataplane"
	"gradnic/internal/privilege"
	"gradnic/service/bump"
	"gradnic/wire/inet"
	"gradnic/xdp"
)

// defaultBumpStatus is where a bump tells its status.
const defaultBumpStatus = "/run/gradnic/bump.sock"

// bumpFlags are the settings of a bump: the keys of its configuration file too.
type bumpFlags struct {
	daemon    daemon.Options
	start     bump.StartOptions
	rules     []string
	mode      xdp.Mode
	netdev    netdevFlags
	logFormat string
	logLevel  slog.Level
}

func newBumpCmd() *cobra.Command {
	var (
		b    bumpFlags
		file string
	)
	cmd := &cobra.Command{
		Use:   "bump --host IFACE --wire IFACE --rule RULE",
		Short: "Run a bump in the wire: compress chosen flows between two NICs, unseen by the hosts",
		Long: "Run a bump in the wire in the foreground until SIGINT or SIGTERM. What comes in on one\n" +
			"interface leaves by the other. Frames of flows that a rule names cross the wire compressed\n" +
			"as long as a bump answers at the other end; all else passes untouched. docs/bump.md has the rules.\n\n" +
			"Every flag is also a key of the configuration file; flags win.",
		Example: "  gradnic bump --host eth1 --wire eth2 --rule \"udp dport=9000 offset=16 type=float32 codec=bfp16\"\n" +
			"  gradnic bump show -j",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file != "" {
				if err := config.ReadFile(file, cmd.Flags(), "config"); err != nil {
					return err
				}
			}
			o, err := b.options(cmd)
			if err != nil {
				return err
			}
			o.Ready = func(s daemon.Status) error {
				_, err := fmt.Fprintln(cmd.OutOrStdout(), s.Line())
				return err
			}
			return daemon.Run(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	o := &b.daemon
	f.StringVarP(&file, "config", "c", "", "YAML file whose keys are these flags")
	f.StringVar(&b.start.Host, "host", "", "interface towards the host")
	f.StringVar(&b.start.Wire, "wire", "", "interface towards the network")
	f.StringArrayVar(&b.rules, "rule", nil, "flows and what becomes of them, as \"udp dport=9000 offset=16 type=float32 codec=bfp16\"; once for each, the first that matches counts")
	f.DurationVar(&b.start.Engine.Hold, "hold", 0, "how long a frame may wait for others that share its frame on the wire; 0: for those that came in with it")
	f.DurationVar(&b.start.Engine.HelloEvery, "hello", bump.DefaultHelloEvery, "how often a far end that is sent to is asked whether it is there")
	f.DurationVar(&b.start.Engine.DeadAfter, "dead-after", bump.DefaultDeadAfter, "a far end that does not answer for that long is taken for absent: its flows go raw")
	f.Uint32Var(&b.start.Engine.Seed, "seed", 0, "key of stochastic codecs")
	f.IntVar(&b.start.Engine.HostFrame, "host-frame", 0, "bytes of the longest frame to the host, Ethernet header included (default as the interface's MTU)")
	f.IntVar(&b.start.Engine.WireFrame, "wire-frame", 0, "bytes of the longest frame with compressed ones on the wire (default as the interface's MTU)")
	f.StringVar(&b.start.Status, "status", defaultBumpStatus, "path of the Unix socket that tells the status; empty: none does")
	f.Var(textFlag{func(s string) (err error) { b.mode, err = parseMode(s); return err }, func() string { return b.mode.String() }, "mode"},
		"mode", "where the XDP program runs: auto (native where the driver can, else generic), native, generic")
	f.Var(textFlag{func(s string) error { return o.NIC.Wait.UnmarshalText([]byte(s)) }, func() string { return o.NIC.Wait.String() }, "wait"},
		"wait", "what the idle lane does: adaptive (spin, then sleep), busy (never sleep), interrupt (sleep at once)")
	f.IntSliceVar(&o.NIC.CPUs, "cpus", nil, "pin the lane to this CPU")
	f.IntVar(&o.NIC.FramesPerQueue, "frames", dataplane.DefaultFramesPerQueue, "frames a queue, a power of two")
	f.IntVar(&o.NIC.ChunkSize, "chunk", dataplane.DefaultChunkSize, "bytes a frame, 2048 or 4096")
	b.netdev.register(f)
	o.Drop = privilege.Healing
	f.Var(textFlag{func(s string) error { return o.Drop.UnmarshalText([]byte(s)) }, func() string { return o.Drop.String() }, "what"},
		"drop", "capabilities to give up once it runs: none, healing, all")
	f.StringVar(&o.API, "api", "", "where the API answers, for show ports, drops and the like: path of a Unix socket; off unless given")
	f.StringVar(&o.Metrics, "metrics", "", "show metrics for Prometheus and a status page on HOST:PORT or unix:PATH; off unless given")
	f.StringVar(&b.logFormat, "log", "text", "form of the log on standard error: text or json")
	f.Var(textFlag{func(s string) error { return b.logLevel.UnmarshalText([]byte(s)) }, func() string { return strings.ToLower(b.logLevel.String()) }, "level"},
		"log-level", "least level of the log: debug, info, warn or error")
	cmd.AddCommand(newBumpShowCmd())
	return cmd
}

// options are the daemon's for these flags.
func (b *bumpFlags) options(cmd *cobra.Command) (daemon.Options, error) {
	o := b.daemon
	if b.start.Host == "" || b.start.Wire == "" {
		return o, usageErrorf("--host or --wire is missing: the interfaces that the bump is between")
	}
	if b.logFormat != "text" && b.logFormat != "json" {
		return o, usageErrorf("--log %q: legal are text and json", b.logFormat)
	}
	start := b.start
	for _, text := range b.rules {
		r, err := bump.ParseRule(text)
		if err != nil {
			return o, usageErrorf("--rule: %w", err)
		}
		start.Engine.Rules = append(start.Engine.Rules, r)
	}
	for _, name := range []string{start.Host, start.Wire} {
		p, err := b.netdev.port(name, b.mode)
		if err != nil {
			return o, err
		}
		p.WholePort = true
		o.Ports = append(o.Ports, p)
	}
	o.Version, o.Logger = buildVersion().Version, newLogger(cmd, b.logFormat, b.logLevel)
	start.Logger = o.Logger
	// Nobody can reach the NIC by its own address: its ports are taken whole. It is one of those for documentation (RFC 5737).
	h := fnv.New32a()
	h.Write([]byte(start.Wire))
	o.NIC.IP = inet.Addr{192, 0, 2, byte(1 + h.Sum32()%254)}
	o.NIC.MAC = inet.MAC{0x02, 0x67, 192, 0, 2, o.NIC.IP[3]}
	o.NIC.Lanes = 1
	o.Begin = func(n *dataplane.NIC) (daemon.Function, error) {
		r, err := bump.Start(cmd.Context(), n, start)
		if err != nil {
			return daemon.Function{}, err
		}
		return daemon.Function{Close: r.Close, Collectors: []prometheus.Collector{r.Collector()}}, nil
	}
	return o, nil
}

func newBumpShowCmd() *cobra.Command {
	var (
		output outputFlags
		path   string
	)
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show what a running bump has done, and its far ends",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := bump.AskStatus(cmd.Context(), path)
			if err != nil {
				return err
			}
			return output.print(cmd.OutOrStdout(), s, s.Table)
		},
	}
	output.register(cmd)
	cmd.Flags().StringVar(&path, "status", defaultBumpStatus, "path of the bump's Unix socket")
	return cmd
}
