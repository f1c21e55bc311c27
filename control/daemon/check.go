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
	for _, address := range switchMLAddresses(o.SwitchML) {
		if strings.HasPrefix(address, "unix:") {
			continue
		}
		if _, err := switchMLAddress(address); err != nil {
			return fmt.Errorf("SwitchML controller: %w", err)
		}
	}
	if o.Metrics != "" {
		if err := checkMetrics(o.Metrics); err != nil {
			return fmt.Errorf("metrics: %w", err)
		}
	}
	if o.SwitchMLSlots < 0 || o.SwitchMLSlots > dataplane.MaxSlots {
		return fmt.Errorf("SwitchML controller: %d slots: legal are 1 to %d", o.SwitchMLSlots, dataplane.MaxSlots)
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
