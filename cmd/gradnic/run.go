package main

import (
	"fmt"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"gradnic/control"
	"gradnic/control/daemon"
	"gradnic/dataplane"
	"gradnic/wire/inet"
	"gradnic/xdp"
)

// textFlag is a flag whose value reads itself from text.
type textFlag struct {
	set    func(string) error
	show   func() string
	typing string
}

func (f textFlag) Set(s string) error { return f.set(s) }
func (f textFlag) String() string {
	if f.show == nil {
		return ""
	}
	return f.show()
}
func (f textFlag) Type() string { return f.typing }

func newRunCmd() *cobra.Command {
	var (
		o         daemon.Options
		ports     []string
		mac       inet.MAC
		ip        inet.Addr
		mode      xdp.Mode
		logFormat string
		logLevel  slog.Level
	)
	cmd := &cobra.Command{
		Use:   "run --port IFACE --ip ADDRESS",
		Short: "Run the NIC in the foreground until SIGINT or SIGTERM",
		Long: "Run the NIC in the foreground until SIGINT or SIGTERM. It prints one line that\n" +
			"begins with \"ready\" on standard output when everything answers; logs go to\n" +
			"standard error. The address is the NIC's own and no netdev's: frames to others\n" +
			"pass to the kernel untouched.",
		Example: "  gradnic run --port eth1 --ip 10.50.0.254\n" +
			"  gradnic run --port eth1 --port eth2 --ip 10.50.0.254 --lanes 2 --cpus 2,3 --switchml 10.1.0.1",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(ports) == 0 {
				return usageErrorf("--port is missing: which interface the NIC runs on, once for each")
			}
			if ip.IsZero() {
				return usageErrorf("--ip is missing: the NIC's own address, which no interface has")
			}
			if mac.IsZero() {
				mac = inet.MAC{0x02, 0x67, ip[0], ip[1], ip[2], ip[3]}
			}
			logger, err := newLogger(cmd, logFormat, logLevel)
			if err != nil {
				return err
			}
			for _, name := range ports {
				o.Ports = append(o.Ports, dataplane.XDPPort{Interface: name, Mode: mode})
			}
			o.NIC.MAC, o.NIC.IP, o.Logger, o.Version = mac, ip, logger, buildVersion().Version
			o.Ready = func(s daemon.Status) error {
				_, err := fmt.Fprintln(cmd.OutOrStdout(), s.Line())
				return err
			}
			return daemon.Run(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&ports, "port", nil, "interface to run on; once for each")
	f.Var(textFlag{func(s string) error { return ip.UnmarshalText([]byte(s)) }, nil, "address"}, "ip", "the NIC's own IPv4 address")
	f.Var(textFlag{func(s string) error { return mac.UnmarshalText([]byte(s)) }, nil, "mac"}, "mac", "the NIC's own MAC (default 02:67 and the IPv4 address)")
	f.IntVar(&o.NIC.Lanes, "lanes", 1, "threads of the data plane; every port needs as many queues")
	f.IntSliceVar(&o.NIC.CPUs, "cpus", nil, "pin the lanes to these CPUs, one a lane")
	f.Var(textFlag{func(s string) (err error) { mode, err = parseMode(s); return err }, func() string { return mode.String() }, "mode"},
		"mode", "where the XDP program runs: auto (native where the driver can, else generic), native, generic")
	f.Var(textFlag{func(s string) error { return o.NIC.Wait.UnmarshalText([]byte(s)) }, func() string { return o.NIC.Wait.String() }, "wait"},
		"wait", "what an idle lane does: adaptive (spin, then sleep), busy (never sleep), interrupt (sleep at once)")
	f.DurationVar(&o.NIC.Spin, "spin", dataplane.DefaultSpin, "how long an adaptive lane spins before it sleeps")
	f.IntVar(&o.NIC.FramesPerQueue, "frames", dataplane.DefaultFramesPerQueue, "frames a queue, a power of two")
	f.IntVar(&o.NIC.ChunkSize, "chunk", dataplane.DefaultChunkSize, "bytes a frame, 2048 or 4096")
	f.BoolVar(&o.NIC.HugePages, "huge-pages", false, "take the frames' memory from huge pages")
	f.Uint64Var(&o.NIC.Seed, "seed", 0, "where the random numbers of impairments start")
	f.StringVar(&o.API, "api", control.DefaultAddress(), "where the API answers: path of a Unix socket, or tcp://HOST:PORT (nobody is asked who they are there)")
	f.StringVar(&o.SwitchML, "switchml", "", "answer as the SwitchML controller on HOST, HOST:PORT (port 50099 without one) or unix:PATH; off unless given")
	f.IntVar(&o.SwitchMLSlots, "switchml-slots", 0, "slots of a SwitchML session (default 8192)")
	f.DurationVar(&o.StopTimeout, "stop-timeout", daemon.DefaultStopTimeout, "how long stopping may take")
	f.StringVar(&logFormat, "log", "text", "form of the log on standard error: text or json")
	f.Var(textFlag{func(s string) error { return logLevel.UnmarshalText([]byte(s)) }, func() string { return strings.ToLower(logLevel.String()) }, "level"},
		"log-level", "least level of the log: debug, info, warn or error")
	return cmd
}

func parseMode(s string) (xdp.Mode, error) {
	for _, m := range []xdp.Mode{xdp.Auto, xdp.Native, xdp.Generic} {
		if m.String() == s {
			return m, nil
		}
	}
	return 0, fmt.Errorf("%q: legal are auto, native, generic", s)
}

func newLogger(cmd *cobra.Command, format string, level slog.Level) (*slog.Logger, error) {
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: shortTime}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(cmd.ErrOrStderr(), options)), nil
	}
	return nil, usageErrorf("--log %q: legal are text and json", format)
}

// shortTime cuts times to milliseconds.
func shortTime(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == slog.TimeKey {
		return slog.String(slog.TimeKey, a.Value.Time().Format("2006-01-02T15:04:05.000Z07:00"))
	}
	return a
}
