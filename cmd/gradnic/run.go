package main

import (
	"fmt"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gradnic/control"
	"gradnic/control/config"
	"gradnic/control/daemon"
	"gradnic/control/switchml"
	"gradnic/dataplane"
	"gradnic/internal/privilege"
	"gradnic/wire/inet"
	"gradnic/wire/layout"
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

// runFlags are the settings of a NIC: the keys of its configuration file too.
type runFlags struct {
	daemon    daemon.Options
	ports     []string
	mac       inet.MAC
	ip        inet.Addr
	mode      xdp.Mode
	netdev    netdevFlags
	guard     guardFlags
	layouts   []string
	logFormat string
	logLevel  slog.Level
}

// notKeys are the flags of run that are no keys of a file.
var notKeys = []string{"config", "check", "print-config"}

func newRunCmd() *cobra.Command {
	var (
		r            runFlags
		file         string
		check, print bool
	)
	cmd := &cobra.Command{
		Use:   "run --port IFACE --ip ADDRESS",
		Short: "Run the NIC in the foreground until SIGINT or SIGTERM",
		Long: "Run the NIC in the foreground until SIGINT or SIGTERM. It prints one line that\n" +
			"begins with \"ready\" on standard output when everything answers; logs go to\n" +
			"standard error. The address is the NIC's own and no netdev's: frames to others\n" +
			"pass to the kernel untouched.\n\n" +
			"Every flag is also a key of the configuration file; flags win. SIGHUP reads the\n" +
			"file and the certificates again, changes what can change and says what needs a\n" +
			"restart.",
		Example: "  gradnic run --port eth1 --ip 10.50.0.254\n" +
			"  gradnic run --port eth1 --port eth2 --ip 10.50.0.254 --lanes 2 --cpus 2,3 --switchml 10.1.0.1\n" +
			"  gradnic run -c /etc/gradnic/gradnic.yaml --check",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			given := config.GivenOf(cmd.Flags())
			if file != "" {
				if err := config.ReadFile(file, cmd.Flags(), notKeys...); err != nil {
					return err
				}
			}
			if print {
				return config.Print(cmd.OutOrStdout(), cmd.Flags(), notKeys...)
			}
			o, err := r.options()
			if err != nil {
				return err
			}
			if err := o.TLS.Read(); err != nil {
				return err
			}
			// What --check and a reload refuse does not start either.
			if err := daemon.Check(o); err != nil {
				return err
			}
			if check {
				_, err := fmt.Fprintln(cmd.OutOrStdout(), "the configuration is right")
				return err
			}
			level := new(slog.LevelVar)
			level.Set(r.logLevel)
			o.Logger = newLogger(cmd, r.logFormat, level)
			o.Ready = func(s daemon.Status) error {
				_, err := fmt.Fprintln(cmd.OutOrStdout(), s.Line())
				return err
			}
			reload, stop := watchReload(cmd.Context(), &reloader{file: file, given: given, running: cmd.Flags(), door: o.TLS, level: level, logger: o.Logger})
			defer stop()
			o.Reload = reload
			return daemon.Run(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&file, "config", "c", "", "YAML file whose keys are these flags")
	f.BoolVar(&check, "check", false, "check flags and file, and run nothing")
	f.BoolVar(&print, "print-config", false, "print flags and file as one file with all keys, and run nothing")
	r.register(f)
	return cmd
}

func (r *runFlags) register(f *pflag.FlagSet) {
	o := &r.daemon
	f.StringArrayVar(&r.ports, "port", nil, "interface to run on; once for each (mem:NAME is one of memory, to try the API without root)")
	f.Var(textFlag{func(s string) error { return r.ip.UnmarshalText([]byte(s)) }, func() string { return unlessZero(r.ip, r.ip.IsZero()) }, "address"}, "ip", "the NIC's own IPv4 address")
	f.Var(textFlag{func(s string) error { return r.mac.UnmarshalText([]byte(s)) }, func() string { return unlessZero(r.mac, r.mac.IsZero()) }, "mac"}, "mac", "the NIC's own MAC (default 02:67 and the IPv4 address)")
	f.IntVar(&o.NIC.Lanes, "lanes", 1, "threads of the data plane; every port needs as many queues")
	f.IntSliceVar(&o.NIC.CPUs, "cpus", nil, "pin the lanes to these CPUs, one a lane")
	f.Var(textFlag{func(s string) (err error) { r.mode, err = parseMode(s); return err }, func() string { return r.mode.String() }, "mode"},
		"mode", "where the XDP program runs: auto (native where the driver can, else generic), native, generic")
	f.Var(textFlag{func(s string) error { return o.NIC.Wait.UnmarshalText([]byte(s)) }, func() string { return o.NIC.Wait.String() }, "wait"},
		"wait", "what an idle lane does: adaptive (spin, then sleep), busy (never sleep), interrupt (sleep at once)")
	f.Var(textFlag{func(s string) error { return o.NIC.Replicate.UnmarshalText([]byte(s)) }, func() string { return o.NIC.Replicate.String() }, "how"},
		"replicate", "how copies of results are made: auto (copy, but chain where all drivers have zero-copy and frames of several chunks), copy (a frame each), chain (headers each, one payload)")
	f.DurationVar(&o.NIC.Spin, "spin", dataplane.DefaultSpin, "how long an adaptive lane spins before it sleeps; 0: not at all")
	f.IntVar(&o.NIC.FramesPerQueue, "frames", dataplane.DefaultFramesPerQueue, "frames a queue, a power of two")
	f.IntVar(&o.NIC.ChunkSize, "chunk", dataplane.DefaultChunkSize, "bytes a frame, 2048 or 4096")
	f.StringArrayVar(&r.layouts, "layout", nil, "header of cards that jobs may name, a file or a shipped one's name (gradnic interop layout); once for each. One behind bare Ethernet takes every frame of the interfaces")
	r.netdev.register(f)
	o.Drop = privilege.Healing
	f.IntVar(&o.NIC.LongestFrame, "longest-frame", 0, "bytes of the longest frame, Ethernet header included (default as the interfaces' MTUs need it)")
	f.Var(textFlag{func(s string) error { return o.Drop.UnmarshalText([]byte(s)) }, func() string { return o.Drop.String() }, "what"},
		"drop", "capabilities to give up once the NIC runs: none, healing (all but those that healing a port takes), all (ports do not heal then)")
	f.BoolVar(&o.NIC.HugePages, "huge-pages", false, "take the frames' memory from huge pages")
	f.Uint64Var(&o.NIC.Seed, "seed", 0, "where the random numbers of impairments start")
	f.StringVar(&o.API, "api", control.DefaultAddress(), "where the API answers: path of a Unix socket; who may open it is an administrator")
	f.StringVar(&o.SwitchML, "switchml", "", "answer as the SwitchML controller on HOST, HOST:PORT (port 50099 without one) or unix:PATH, several separated by commas; off unless given")
	f.BoolVar(&o.SwitchMLInKernel, "switchml-in-kernel", false, "let the ports' steering programs add up what SwitchML sessions' workers send; with several ports, each worker is named with its port by --switchml-worker")
	f.IntVar(&o.SwitchMLSlots, "switchml-slots", switchml.DefaultSlots, "slots of a SwitchML session")
	r.guard.register(f, o)
	f.StringVar(&o.Store, "store", "", "file that keeps installed jobs over restarts; without one they end with the process")
	f.StringVar(&o.Metrics, "metrics", "", "show metrics for Prometheus and a status page on HOST:PORT or unix:PATH; off unless given")
	f.BoolVar(&o.Pprof, "pprof", false, "show Go's profiles at the metrics address too")
	f.DurationVar(&o.StopTimeout, "stop-timeout", daemon.DefaultStopTimeout, "how long stopping may take")
	f.StringVar(&r.logFormat, "log", "text", "form of the log on standard error: text or json")
	f.Var(textFlag{func(s string) error { return parseLevel(s, &r.logLevel) }, func() string { return strings.ToLower(r.logLevel.String()) }, "level"},
		"log-level", "least level of the log: debug, info, warn or error")
}

// options are the daemon's for these flags.
func (r *runFlags) options() (daemon.Options, error) {
	o := r.daemon
	if len(r.ports) == 0 {
		return o, usageErrorf("--port is missing: which interface the NIC runs on, once for each")
	}
	if r.ip.IsZero() {
		return o, usageErrorf("--ip is missing: the NIC's own address, which no interface has")
	}
	if r.logFormat != "text" && r.logFormat != "json" {
		return o, usageErrorf("--log %q: legal are text and json", r.logFormat)
	}
	var err error
	if o.Limits, err = r.guard.limits(); err != nil {
		return o, err
	}
	if o.SwitchMLWorkers, err = r.guard.named(); err != nil {
		return o, err
	}
	o.NIC.MAC, o.NIC.IP, o.Version = r.mac, r.ip, buildVersion().Version
	if o.NIC.MAC.IsZero() {
		o.NIC.MAC = dataplane.DefaultMAC(r.ip)
	}
	whole := false // bare Ethernet is not among the frames that are taken otherwise
	o.NIC.Layouts = nil
	for _, name := range r.layouts {
		l, err := layout.Load(name)
		if err != nil {
			return o, err
		}
		o.NIC.Layouts = append(o.NIC.Layouts, l)
		whole = whole || l.EtherType != 0
	}
	o.Ports = nil
	for _, name := range r.ports {
		if mem, ok := strings.CutPrefix(name, "mem:"); ok {
			o.Ports = append(o.Ports, dataplane.NewMemPort(mem))
			continue
		}
		p, err := r.netdev.port(name, r.mode)
		if err != nil {
			return o, err
		}
		p.WholePort = p.WholePort || whole
		o.Ports = append(o.Ports, p)
	}
	return o, checkValues(&o)
}

func unlessZero(v fmt.Stringer, zero bool) string {
	if zero {
		return ""
	}
	return v.String()
}

func parseMode(s string) (xdp.Mode, error) {
	for _, m := range []xdp.Mode{xdp.Auto, xdp.Native, xdp.Generic} {
		if m.String() == s {
			return m, nil
		}
	}
	return 0, fmt.Errorf("%q: legal are auto, native, generic", s)
}

func parseLevel(s string, level *slog.Level) error {
	if level.UnmarshalText([]byte(s)) != nil {
		return fmt.Errorf("%q: legal are debug, info, warn, error", s)
	}
	return nil
}

func newLogger(cmd *cobra.Command, format string, level slog.Leveler) *slog.Logger {
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: shortTime}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(cmd.ErrOrStderr(), options))
	}
	return slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), options))
}

// shortTime cuts times to milliseconds.
func shortTime(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == slog.TimeKey {
		return slog.String(slog.TimeKey, a.Value.Time().Format("2006-01-02T15:04:05.000Z07:00"))
	}
	return a
}
