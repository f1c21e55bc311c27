package daemon

import (
	"time"

	"gradnic/dataplane"
)

// probeTime is how long the networks have to say that the NIC's address is somebody's.
const probeTime = time.Second

// probes ask each port's network whether somebody has the NIC's address, which the kernel here cannot know. What is asked
// before the NIC answers there is answered by others only: by another NIC too, which has the same MAC for the same address.
type probes []*dataplane.AddressProbe

func probe(o *Options) (all probes) {
	for _, p := range o.Ports {
		netdev, ok := p.(dataplane.XDPPort)
		if !ok {
			continue
		}
		q, err := netdev.Probe(o.NIC.IP)
		if err != nil { // a netdev that is down, or not there: the start says so
			o.Logger.Debug("not asked", "err", err)
			continue
		}
		all = append(all, q)
	}
	return all
}

// report logs who has answered, and ends the probes.
func (all *probes) report(o *Options) {
	for _, q := range *all {
		for _, mac := range q.Answers() {
			attrs := []any{"ip", o.NIC.IP.String(), "mac", mac.String(), "port", q.Interface}
			if mac == o.NIC.MAC || mac == dataplane.DefaultMAC(o.NIC.IP) {
				attrs = append(attrs, "which", "another gradnic")
			}
			o.Logger.Warn("another station has the NIC's address", attrs...)
		}
	}
	all.close()
}

func (all *probes) close() {
	for _, q := range *all {
		_ = q.Close() // it has only been read
	}
	*all = nil
}
