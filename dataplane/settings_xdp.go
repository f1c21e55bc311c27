package dataplane

import (
	"errors"
	"fmt"

	"github.com/safchain/ethtool"
	"golang.org/x/sys/unix"

	"gradnic/wire/switchml"
	"gradnic/xdp/settings"
)

// prepare sets the netdev as the port wants it, and brings flows to queues where the driver can be told to. It returns
// what sets it back, which may be called any time later.
func (p XDPPort) prepare(cfg *Config) (undo func() error, err error) {
	// Before anything is touched.
	if err := p.inNamespace(func() error { _, err := interfaceByName(p.Interface); return err }); err != nil {
		return nil, err
	}
	if err := p.refuseKernelAddress(cfg.IP); err != nil {
		return nil, err
	}
	want := p.Settings
	var applied *settings.Applied
	err = p.inNamespace(func() error {
		if !p.NoSteering {
			queues := want.Queues
			if queues == 0 {
				e, err := ethtool.NewEthtool()
				if err != nil {
					return fmt.Errorf("ethtool: %w", err)
				}
				defer e.Close()
				if queues, err = receiveQueues(e, p.Interface); err != nil {
					return err
				}
			}
			want.HashPorts, want.Rules = queues > 1, append(want.Rules, p.rules(cfg, queues)...)
		}
		applied, err = settings.Apply(settings.Dir(), p.Interface, want)
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, c := range applied.Restored {
		cfg.Logger.Info("netdev set back", "interface", p.Interface, "change", c, "why", "a NIC that was killed had left it")
	}
	for _, k := range applied.Kept {
		cfg.Logger.Warn("netdev setting kept", "why", k)
	}
	for _, c := range applied.Changed {
		cfg.Logger.Info("netdev set", "interface", p.Interface, "change", c)
	}
	for _, s := range applied.Skipped {
		cfg.Logger.Debug("netdev not set", "interface", p.Interface, "why", s)
	}
	return func() error { return p.setBack(cfg, applied) }, nil
}

// rules bring each of SwitchML's UDP ports, which a client uses one a thread, to one queue. They are a hint: a frame that
// comes in elsewhere is handed to the lane of its slot.
func (p XDPPort) rules(cfg *Config, queues int) (rules []settings.Rule) {
	if queues < 2 || p.WholePort {
		return nil
	}
	for i := range int(^uint16(switchml.PortMask)) + 1 {
		rules = append(rules, settings.Rule{IP: cfg.IP, Port: uint16(switchml.PortBase + i), Queue: i % queues})
	}
	return rules
}

func (p XDPPort) setBack(cfg *Config, applied *settings.Applied) error {
	var kept []string
	err := p.inNamespace(func() (err error) {
		kept, err = applied.Undo()
		return err
	})
	for _, k := range kept {
		cfg.Logger.Warn("netdev setting kept", "why", k)
	}
	if err != nil && cfg.NoHealing && (errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES)) {
		// The process has given up what this takes, and knows that somebody else has to do it.
		cfg.Logger.Warn("netdev not set back: gradnic restore does it", "interface", p.Interface, "err", err)
		return nil
	}
	return err
}
