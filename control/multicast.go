package control

import (
	"slices"

	"gradnic/dataplane"
	"gradnic/wire/inet"
	"gradnic/wire/native"
)

// This file is where the results of jobs go that send one frame for all workers of a port. A native job finds out by
// itself which ports have workers; for one of SwitchML it is said here.

func groupFromProto(field, text string) (*dataplane.MulticastSpec, error) {
	if text == "" {
		return nil, nil
	}
	ip, err := inet.ParseAddr(text)
	if err != nil || ip[0]>>4 != 14 {
		return nil, refuse(Invalid, field, "%q: an IPv4 group, 224.0.0.0 to 239.255.255.255", text)
	}
	return &dataplane.MulticastSpec{IP: ip}, nil
}

// groupOf is the group that a job's results go to, zero for none.
func groupOf(spec dataplane.JobSpec) inet.Addr {
	if spec.Multicast == nil {
		return inet.Addr{}
	}
	return spec.Multicast.IP
}

// placed is true for a job that does not learn at which ports its workers are.
func placed(spec *dataplane.JobSpec) bool {
	return spec.InKernel || spec.Multicast != nil && spec.Protocol == dataplane.ProtocolSwitchML
}

// spread has results go to the ports that members are at, or to the only one that there is.
func (j *Jobs) spread(spec *dataplane.JobSpec) *dataplane.MulticastSpec {
	m := *spec.Multicast
	m.MAC, m.Ports = native.GroupMAC(m.IP), nil
	for _, w := range spec.Members {
		if w.Port >= 0 && !slices.Contains(m.Ports, w.Port) {
			m.Ports = append(m.Ports, w.Port)
		}
	}
	if len(m.Ports) == 0 && len(j.ports) == 1 {
		m.Ports = []int{0}
	}
	slices.Sort(m.Ports)
	return &m
}

// checkGroup refuses a job of SwitchML whose results would not reach all of its workers.
func (j *Jobs) checkGroup(spec dataplane.JobSpec) error {
	if spec.Layout != "" {
		return refuse(Invalid, "job.multicast", "results in layout %s go to each worker alone: leave one of them out", spec.Layout)
	}
	if len(j.ports) > 1 && len(spec.Members) < spec.Workers {
		return refuse(Invalid, "job.members", "%d of %d: with several ports (%v), a job with multicast results has all members from the start", len(spec.Members), spec.Workers, j.ports)
	}
	return nil
}
