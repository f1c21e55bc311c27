package control

import (
	"fmt"

	"gradnic/dataplane"
	"gradnic/wire/inet"
)

// check refuses a job that can not be, naming the field. The data plane has the
// last word; this is for errors that a user can act on.
func (j *Jobs) check(spec dataplane.JobSpec) error {
	if err := checkName("job.name", spec.Name); err != nil {
		return err
	}
	if spec.Tenant != "" {
		if err := checkName("job.tenant", spec.Tenant); err != nil {
			return err
		}
	}
	native := spec.Protocol == dataplane.ProtocolNative
	if spec.Protocol != dataplane.ProtocolSwitchML && !native {
		return refuse(Unsupported, "job.protocol", "%q: supported are %s and %s", spec.Protocol, dataplane.ProtocolSwitchML, dataplane.ProtocolNative)
	}
	if most := maxWorkers(spec.Protocol); spec.Workers < 1 || spec.Workers > most {
		return refuse(Invalid, "job.workers", "%d: a job has 1 to %d workers", spec.Workers, most)
	}
	if !native && spec.Elements != 64 && spec.Elements != 256 {
		return refuse(Invalid, "job.elements", "%d: a frame has 64 or 256 elements", spec.Elements)
	}
	if spec.Slots < 1 || spec.Slots > dataplane.MaxSlots {
		return refuse(Invalid, "job.slots", "%d: a job has 1 to %d slots", spec.Slots, dataplane.MaxSlots)
	}
	if spec.InKernel {
		if err := j.checkInKernel(spec); err != nil {
			return err
		}
	}
	if spec.Multicast != nil && !native {
		if err := j.checkGroup(spec); err != nil {
			return err
		}
	}
	if placed(&spec) {
		for _, w := range spec.Members {
			if err := j.checkPlace(fmt.Sprintf("job.members[rank %d]", w.Rank), w); err != nil {
				return err
			}
		}
	}
	ranks := map[int]int{}
	addresses := map[inet.Addr]int{}
	for i, w := range spec.Members {
		field := fmt.Sprintf("job.members[rank %d]", w.Rank)
		if err := j.checkWorker(field, w, spec.Workers); err != nil {
			return err
		}
		if _, taken := ranks[w.Rank]; taken {
			return refuse(Invalid, field+".rank", "rank %d is given twice: %v and %v", w.Rank, spec.Members[ranks[w.Rank]].IP, w.IP)
		}
		if other, taken := addresses[w.IP]; taken && !native {
			return refuse(Invalid, field+".ipv4", "%v is given twice: to rank %d and to rank %d", w.IP, other, w.Rank)
		}
		if native { // its messages say whose they are
			ranks[w.Rank] = i
			continue
		}
		if err := j.checkOthers(field, w, spec.Name, spec.Tenant); err != nil {
			return err
		}
		ranks[w.Rank], addresses[w.IP] = i, w.Rank
	}
	return nil
}

// checkInKernel refuses a job that steering programs cannot add up.
func (j *Jobs) checkInKernel(spec dataplane.JobSpec) error {
	const field = "job.in_kernel"
	switch {
	case spec.Protocol != dataplane.ProtocolSwitchML:
		return refuse(Invalid, field, "it is for protocol %s, not %s", dataplane.ProtocolSwitchML, spec.Protocol)
	case spec.Layout != "":
		return refuse(Invalid, field, "the kernel knows the protocol's own header, not layout %s: leave one of them out", spec.Layout)
	}
	ports := j.nic.Snapshot().Ports
	for i := range ports {
		if p := &ports[i]; p.Kind != "xdp" {
			return refuse(Unsupported, field, "port %s is of kind %s: all ports must be netdevs, whose steering programs add up", p.Name, p.Kind)
		}
	}
	return nil
}

// place gives a worker the only port that there is, unless it has one.
func (j *Jobs) place(w dataplane.WorkerSpec) dataplane.WorkerSpec {
	if w.Port < 0 && len(j.ports) == 1 {
		w.Port = 0
	}
	return w
}

// checkPlace refuses a worker that could be at several ports, in a job that does not learn it.
func (j *Jobs) checkPlace(field string, w dataplane.WorkerSpec) error {
	if w.Port < 0 {
		return refuse(Invalid, field+".port", "missing: jobs in the kernel, or with multicast results, do not learn at which of %v a worker is", j.ports)
	}
	return nil
}

// checkWorker refuses a worker that can not be in a job of so many workers.
func (j *Jobs) checkWorker(field string, w dataplane.WorkerSpec, workers int) error {
	switch {
	case w.Rank < 0 || w.Rank >= workers:
		return refuse(Invalid, field+".rank", "%d: a job of %d workers has ranks 0 to %d", w.Rank, workers, workers-1)
	case w.MAC.IsZero() || w.MAC.IsMulticast():
		return refuse(Invalid, field+".mac", "%v is not a unicast address", w.MAC)
	case w.MAC == j.mac:
		return refuse(Invalid, field+".mac", "%v is the NIC's own address", w.MAC)
	case !w.IP.IsUnicast():
		return refuse(Invalid, field+".ipv4", "%v is not a unicast address", w.IP)
	case w.IP == j.ip:
		return refuse(Invalid, field+".ipv4", "%v is the NIC's own address", w.IP)
	}
	return nil
}

// endpoint is what tells one worker from another on the wire.
type endpoint struct {
	mac inet.MAC
	ip  inet.Addr
}

type owner struct {
	job  string
	rank int
}

// checkOthers refuses a worker that belongs to a job of another name. What tenants call their jobs is theirs to know.
func (j *Jobs) checkOthers(field string, w dataplane.WorkerSpec, job, tenant string) error {
	if o, taken := j.owners[endpoint{w.MAC, w.IP}]; taken && o.job != job {
		if r := j.records[o.job]; r != nil && tenant != "" && r.asked.Tenant != tenant {
			return refuse(Exists, field, "%v %v is a worker of another tenant's job", w.MAC, w.IP)
		}
		return refuse(Exists, field, "%v %v is rank %d of job %s: a worker belongs to one job", w.MAC, w.IP, o.rank, o.job)
	}
	return nil
}
