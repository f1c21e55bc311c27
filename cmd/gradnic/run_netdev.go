package main

import (
	"strings"
	"time"

	"github.com/spf13/pflag"

	"gradnic/dataplane"
	"gradnic/xdp"
	"gradnic/xdp/settings"
)

// netdevFlags say how the interfaces are to be set while the NIC runs on them. They are set back at the end.
type netdevFlags struct {
	queues, rxRing, txRing int
	features               []string
	noSteering             bool
	zeroCopy               string
	busyPoll               time.Duration
}

func (n *netdevFlags) register(f *pflag.FlagSet) {
	f.IntVar(&n.queues, "queues", 0, "receive queues that every interface is set to while the NIC runs; 0 leaves them as they are")
	f.IntVar(&n.rxRing, "rx-ring", 0, "descriptors of the driver's receive rings while the NIC runs; 0 leaves them as they are")
	f.IntVar(&n.txRing, "tx-ring", 0, "descriptors of the driver's transmit rings while the NIC runs; 0 leaves them as they are")
	f.StringArrayVar(&n.features, "feature", nil, "NAME=on or NAME=off: a feature of the interfaces while the NIC runs, as ethtool -k names it; once for each")
	f.BoolVar(&n.noSteering, "no-steering", false, "add no rules (ntuple) and leave the receive-side scaling of interfaces with several queues alone")
	f.StringVar(&n.zeroCopy, "zero-copy", "auto", "whether the kernel shares the frames' memory with the driver: auto (where the driver can), on (interfaces that cannot are refused), off")
	f.DurationVar(&n.busyPoll, "busy-poll", 0, "how long a lane's own system calls may receive from the driver (SO_PREFER_BUSY_POLL), in microseconds and up; 0: interrupts do")
}

// port is an interface with these settings.
func (n *netdevFlags) port(name string, mode xdp.Mode) (dataplane.XDPPort, error) {
	p := dataplane.XDPPort{
		Interface: name, Mode: mode, NoSteering: n.noSteering,
		Settings: settings.Want{Queues: n.queues, RxRing: n.rxRing, TxRing: n.txRing},
	}
	for flag, v := range map[string]int{"--queues": n.queues, "--rx-ring": n.rxRing, "--tx-ring": n.txRing} {
		if v < 0 {
			return p, usageErrorf("%s %d: legal are 0 (as it is) and up", flag, v)
		}
	}
	switch n.zeroCopy {
	case "auto":
	case "on":
		p.ForceZeroCopy = true
	case "off":
		p.ForceCopy = true
	default:
		return p, usageErrorf("--zero-copy %q: legal are auto, on, off", n.zeroCopy)
	}
	if n.busyPoll < 0 || n.busyPoll%time.Microsecond != 0 || n.busyPoll > time.Second {
		return p, usageErrorf("--busy-poll %v: legal are whole microseconds, up to a second; 0 is off", n.busyPoll)
	}
	p.BusyPoll.Microseconds = int(n.busyPoll / time.Microsecond)
	for _, f := range n.features {
		feature, value, ok := strings.Cut(f, "=")
		if !ok || feature == "" || value != "on" && value != "off" {
			return p, usageErrorf("--feature %q: write NAME=on or NAME=off", f)
		}
		if p.Settings.Features == nil {
			p.Settings.Features = map[string]bool{}
		}
		p.Settings.Features[feature] = value == "on"
	}
	return p, nil
}
