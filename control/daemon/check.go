package daemon

import (
	"errors"
	"fmt"
	"strings"

	"gradnic/control/switchml"
	"gradnic/dataplane"
	"gradnic/internal/privilege"
)

// Check refuses options that can not run on any machine. It opens nothing: whether
// interfaces are there and addresses are free is known at the start only.
func Check(o Options) error {
	nic, err := dataplane.New(o.NIC, o.Ports...)
	if err != nil {
		return err
	}
	if err := o.checkSessions(nic.Snapshot().Ports); err != nil {
		return err
	}
	if err := checkAPI(o.API); err != nil {
		return err
	}
	if err := o.TLS.check(); err != nil {
		return err
	}
	if err := checkSwitchML(o.SwitchML); err != nil {
		return fmt.Errorf("SwitchML controller: %w", err)
	}
	if o.SwitchML == "" && len(o.SwitchMLWorkers) > 0 {
		return errors.New("SwitchML controller: workers are named, and it is off: say where it is with switchml")
	}
	if o.Metrics != "" {
		if err := checkMetrics(o.Metrics); err != nil {
			return fmt.Errorf("metrics: %w", err)
		}
	} else if o.Pprof {
		return errors.New("pprof: it is shown where the metrics are, and they are off: say where with metrics")
	}
	if o.SwitchMLSlots < 0 || o.SwitchMLSlots > dataplane.MaxSlots {
		return fmt.Errorf("SwitchML controller: %d slots: legal are 1 to %d", o.SwitchMLSlots, dataplane.MaxSlots)
	}
	return nil
}

// checkSwitchML refuses addresses of the controller that nothing can listen on.
func checkSwitchML(addresses string) error {
	seen := map[string]bool{}
	for _, given := range switchMLAddresses(addresses) {
		address := given
		if !strings.HasPrefix(given, "unix:") {
			var err error
			if address, err = switchMLAddress(given); err != nil {
				return err
			}
		}
		if seen[address] && !strings.HasSuffix(address, ":0") { // 0 is another port each time
			return fmt.Errorf("address %q is there twice", given)
		}
		seen[address] = true
	}
	return nil
}

// checkSessions refuses SwitchML sessions that no worker could begin.
func (o *Options) checkSessions(ports []dataplane.PortSnapshot) error {
	names := make([]string, 0, len(ports))
	for i := range ports {
		names = append(names, ports[i].Name)
	}
	if err := switchml.Check(names, o.SwitchMLWorkers, o.SwitchMLInKernel); err != nil {
		return fmt.Errorf("SwitchML controller: %w", err)
	}
	if !o.SwitchMLInKernel {
		return nil
	}
	const what = "SwitchML sessions in the kernel: "
	switch {
	case o.SwitchML == "":
		return errors.New(what + "the controller is off")
	case o.Drop == privilege.All:
		return errors.New(what + "they come when all capabilities are given up: keep those for healing")
	case o.Limits.Pace:
		return errors.New(what + "the kernel keeps to no card's pace")
	}
	for i := range ports {
		if p := &ports[i]; p.Kind != "xdp" {
			return fmt.Errorf(what+"port %s is of kind %s: all ports must be netdevs", p.Name, p.Kind)
		}
	}
	return nil
}
