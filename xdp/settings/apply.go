package settings

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
)

// Want says how a netdev is to be set while a NIC runs on it. The zero value leaves all as it is.
type Want struct {
	// Queues is the number of receive queues (combined, or rx and tx, as the driver has them).
	Queues int
	// RxRing and TxRing are sizes of the driver's rings in descriptors.
	RxRing, TxRing int
	// Features turns features on and off, by the kernel's names ("rx-gro") or by ethtool's own of one feature ("gro",
	// "generic-receive-offload").
	Features map[string]bool
	// HashPorts makes receive-side scaling hash the ports of UDP over IPv4 beside the addresses. A hint.
	HashPorts bool
	// Rules bring frames to queues. A hint: where the driver has none, Applied.Skipped says so.
	Rules []Rule
}

func (w *Want) none() bool {
	return w.Queues == 0 && w.RxRing == 0 && w.TxRing == 0 && len(w.Features) == 0 && !w.HashPorts && len(w.Rules) == 0
}

// Applied is what was changed on a netdev.
type Applied struct {
	// Changed has a line for each change; Skipped for each hint that the driver does not take.
	Changed, Skipped []string
	// Restored has a line for each change of a killed process that was set back first; Kept for each that somebody else has
	// changed since.
	Restored, Kept []string

	record *record // nil when nothing was to be done
}

// InUseError says that another process that runs has changed the netdev's settings.
type InUseError struct {
	Interface string
	PID       int
}

func (e *InUseError) Error() string {
	return fmt.Sprintf("interface %s: process %d runs on it and has changed its settings", e.Interface, e.PID)
}

// Apply sets a netdev, and records what it changes in dir. The calling thread must be in the netdev's network namespace.
// First it sets back what a process that was killed has left. On an error what was changed is set back.
func Apply(dir, iface string, want Want) (*Applied, error) {
	d, err := openDevice(iface)
	if err != nil {
		return nil, err
	}
	defer d.close()
	return apply(dir, d, want)
}

func apply(dir string, d *device, want Want) (*Applied, error) {
	if want.Queues < 0 || want.RxRing < 0 || want.TxRing < 0 {
		return nil, fmt.Errorf("interface %s: %d queues, rings of %d and %d: negative", d.name, want.Queues, want.RxRing, want.TxRing)
	}
	r, err := newRecord(dir, d)
	if err != nil {
		return nil, err
	}
	old, err := readRecord(r.path)
	if err != nil {
		return nil, d.hint(err, "")
	}
	a := &Applied{}
	if old != nil {
		if old.alive() && !old.own() {
			return nil, &InUseError{d.name, old.PID}
		}
		if a.Restored, a.Kept, err = old.undo(d); err != nil {
			return nil, fmt.Errorf("set back what process %d has left: %w", old.PID, err)
		}
	}
	if want.none() {
		return a, nil
	}
	a.record = r
	if err := a.all(d, &want); err != nil {
		_, _, undone := r.undo(d)
		return nil, errors.Join(err, undone)
	}
	if len(r.Changes) == 0 {
		a.record = nil
		return a, r.remove()
	}
	return a, nil
}

func (a *Applied) all(d *device, want *Want) error {
	if want.Queues > 0 {
		if err := a.setting(d, kindChannels, "", func(v values) {
			if v["combined"] > 0 {
				v["combined"] = uint32(want.Queues)
			} else {
				v["rx"], v["tx"] = uint32(want.Queues), uint32(want.Queues)
			}
		}); err != nil {
			return fmt.Errorf("%d queues: %w", want.Queues, d.hint(err, "-l"))
		}
	}
	if want.RxRing > 0 || want.TxRing > 0 {
		if err := a.setting(d, kindRings, "", func(v values) {
			for name, n := range map[string]int{"rx": want.RxRing, "tx": want.TxRing} {
				if n > 0 {
					v[name] = uint32(n)
				}
			}
		}); err != nil {
			return fmt.Errorf("rings of %s: %w", ringsText(want), d.hint(err, "-g"))
		}
	}
	features, err := inKernelsNames(want.Features)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(features)) {
		if err := a.setting(d, kindFeature, name, func(v values) { v["on"] = bit(features[name]) }); err != nil {
			return fmt.Errorf("feature %s: %w", name, d.hint(err, ""))
		}
	}
	if want.HashPorts {
		err := a.setting(d, kindHash, "", func(v values) { v["fields"] = hashUDP4ByPorts })
		if err != nil {
			a.Skipped = append(a.Skipped, fmt.Sprintf("hash of UDP ports: %v", err))
		}
	}
	for _, r := range want.Rules {
		err := a.rule(d, r)
		if err == nil {
			continue
		}
		if unsupported(err) {
			a.Skipped = append(a.Skipped, fmt.Sprintf("rules (ntuple): %v", err))
			break
		}
		// All rules or none: half of them would put half of the flows elsewhere. One that was there before is somebody else's.
		for n := len(a.record.Changes) - 1; n >= 0 && a.record.Changes[n].Rule != nil; n-- {
			if undone := d.deleteRule(*a.record.Changes[n].Rule); undone != nil {
				err = errors.Join(err, undone) // it stays in the record
				break
			}
			a.record.Changes, a.Changed = a.record.Changes[:n], a.Changed[:len(a.Changed)-1]
		}
		a.Skipped = append(a.Skipped, fmt.Sprintf("rule %v: %v", r, err))
		return a.record.write()
	}
	return nil
}

// hint adds to an error what helps: where the driver refused, the flag of ethtool that shows what it takes; where the change
// could not be written down, and was not made for that reason, where it can be.
func (d *device) hint(err error, flag string) error {
	switch {
	case errors.As(err, new(*fs.PathError)):
		return fmt.Errorf("%w (%s names a directory for it)", err, EnvDir)
	case flag != "":
		return fmt.Errorf("%w (ethtool %s %s says what it can have)", err, flag, d.name)
	}
	return err
}

func ringsText(want *Want) string {
	switch {
	case want.TxRing == 0:
		return fmt.Sprintf("%d descriptors to receive", want.RxRing)
	case want.RxRing == 0:
		return fmt.Sprintf("%d descriptors to transmit", want.TxRing)
	}
	return fmt.Sprintf("%d descriptors to receive and %d to transmit", want.RxRing, want.TxRing)
}

// setting changes one setting, when it is another one.
func (a *Applied) setting(d *device, kind, name string, to func(values)) error {
	old, err := d.get(kind, name)
	if err != nil {
		return err
	}
	v := maps.Clone(old)
	to(v)
	if maps.Equal(old, v) {
		return nil
	}
	if err := a.note(change{Kind: kind, Name: name, Old: old, New: v}); err != nil {
		return err
	}
	if err := d.set(kind, name, v); err != nil {
		return errors.Join(err, a.forget())
	}
	now, err := d.get(kind, name)
	if err != nil {
		return err
	}
	if maps.Equal(now, old) {
		return errors.Join(errors.New("the driver does not change it"), a.forget())
	}
	// A driver may round: what is there now is what must be found when it is set back.
	c := &a.record.Changes[len(a.record.Changes)-1]
	if !maps.Equal(now, v) {
		c.New = now
		if err := a.record.write(); err != nil {
			return err
		}
	}
	a.Changed = append(a.Changed, c.String())
	return nil
}

// rule adds a rule, unless it is there.
func (a *Applied) rule(d *device, r Rule) error {
	if _, ok, err := d.findRule(r); ok || err != nil {
		return err
	}
	c := change{Kind: kindRule, Rule: &r}
	if err := a.note(c); err != nil {
		return err
	}
	if err := d.insertRule(r); err != nil {
		return errors.Join(err, a.forget())
	}
	a.Changed = append(a.Changed, c.String())
	return nil
}

// note writes down a change that is about to be made.
func (a *Applied) note(c change) error {
	a.record.Changes = append(a.record.Changes, c)
	return a.record.write()
}

// forget strikes out the last change, which was not made.
func (a *Applied) forget() error {
	a.record.Changes = a.record.Changes[:len(a.record.Changes)-1]
	return a.record.write()
}
