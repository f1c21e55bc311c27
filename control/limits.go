package control

import (
	"fmt"
	"strconv"
	"strings"

	"gradnic/control/card"
	"gradnic/dataplane"
	"gradnic/xdp"
)

// EachTenant is the name under which Limits.Tenants has the quota of each tenant
// that it does not name.
const EachTenant = "*"

// Quota is what the jobs of one tenant may take together. 0: no bound.
type Quota struct {
	Jobs   int
	Slots  int   // each in two versions
	Memory int64 // of slots, in bytes
	// Packets is how many frames a second each port takes of the tenant's workers.
	Packets uint64
}

// Limits are what jobs may take. They hold for jobs that come: those that are there
// stay when limits shrink.
type Limits struct {
	// Memory bounds the slots of all jobs together, in bytes; 0: no bound.
	Memory int64
	// Card is the device whose limits hold too; nil: none.
	Card *card.Profile
	// Pace lets the ports be no faster than the card's link.
	Pace bool
	// Tenants are the quotas by tenant. Jobs of nobody in particular have none.
	Tenants map[string]Quota
	// Strays is how many frames a second each port takes of senders that are no job's
	// workers; 0: DefaultStrays when any tenant's packets are bounded, else no bound.
	Strays uint64
}

// ParseQuota reads TENANT=jobs:N,slots:N,memory:SIZE,packets:N, each part at most once and
// in any order.
func ParseQuota(s string) (tenant string, q Quota, err error) {
	wrong := func(why string) (string, Quota, error) {
		return "", Quota{}, fmt.Errorf("quota %q: %s: write TENANT=jobs:N,slots:N,memory:SIZE,packets:N", s, why)
	}
	tenant, parts, ok := strings.Cut(s, "=")
	if !ok || tenant != EachTenant && !jobName.MatchString(tenant) {
		return wrong("no tenant, or no name")
	}
	seen := map[string]bool{}
	for part := range strings.SplitSeq(parts, ",") {
		what, value, _ := strings.Cut(part, ":")
		if seen[what] {
			return wrong(what + " is given twice")
		}
		seen[what] = true
		var n int64
		switch what {
		case "jobs", "slots":
			if n, err = strconv.ParseInt(value, 10, 32); err != nil || n < 1 {
				return wrong(what + " is not a number from 1")
			}
		case "packets":
			if n, err = strconv.ParseInt(value, 10, 64); err != nil || n < 1 || n > xdp.MaxRate {
				return wrong(fmt.Sprintf("packets is not a number of frames a second from 1 to %d", xdp.MaxRate))
			}
		case "memory":
			if n, err = ParseSize(value); err != nil {
				return wrong(err.Error())
			}
		default:
			return wrong(fmt.Sprintf("%q is not jobs, slots, memory or packets", what))
		}
		switch what {
		case "jobs":
			q.Jobs = int(n)
		case "slots":
			q.Slots = int(n)
		case "memory":
			q.Memory = n
		case "packets":
			q.Packets = uint64(n)
		}
	}
	return tenant, q, nil
}

// ParseSize reads bytes: a number, or one with KiB, MiB or GiB.
func ParseSize(s string) (int64, error) {
	number, shift := s, 0
	for i, unit := range []string{"KiB", "MiB", "GiB"} {
		if n, ok := strings.CutSuffix(s, unit); ok {
			number, shift = n, 10*(i+1)
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 1 || n > 1<<62>>shift {
		return 0, fmt.Errorf("size %q: write bytes, or as 512KiB, 64MiB, 2GiB", s)
	}
	return n << shift, nil
}

// FormatSize writes bytes so that people see how many.
func FormatSize(n int64) string {
	for i, unit := range []string{"GiB", "MiB", "KiB"} {
		if one := int64(1) << (30 - 10*i); n >= one {
			return strconv.FormatFloat(float64(n)/float64(one), 'f', 1, 64) + " " + unit
		}
	}
	return strconv.FormatInt(n, 10) + " bytes"
}

// SetLimits replaces the limits.
func (j *Jobs) SetLimits(l Limits) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.limits = l
	j.charge()
	j.pace()
}

// pace lets the ports be as fast as the card's link, or as they can. j.mu is held.
func (j *Jobs) pace() {
	rate := uint64(0)
	if c := j.limits.Card; j.limits.Pace && c != nil && c.LinkRate != nil {
		rate = uint64(c.LinkRate.Value)
	}
	if rate == 0 && !j.paced {
		return
	}
	if err := j.nic.SetPace(rate); err != nil {
		j.logger.Error("ports not paced", "rate", rate, "err", err)
		return
	}
	j.paced = rate != 0
}

// Card is the device that the NIC stands in for; nil: none.
func (j *Jobs) Card() *card.Profile {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.limits.Card
}

// use is what jobs take together.
type use struct {
	jobs, slots int
	memory      int64
	values      int64 // bytes of values alone, as cards count
}

// admit refuses a job for which there is no room, with the figures and what would
// fit. A job of the same name does not count: it would go. j.mu is held.
func (j *Jobs) admit(spec dataplane.JobSpec) error {
	if err := j.admitSenders(spec); err != nil {
		return err
	}
	if j.limits.Memory == 0 && len(j.limits.Tenants) == 0 && j.limits.Card == nil {
		return nil
	}
	bytes, err := j.slotBytes(spec)
	if err != nil {
		return fromDataplane("memory of job "+spec.Name, err)
	}
	var all, own use
	for name, r := range j.records {
		if name == spec.Name {
			continue
		}
		all.jobs++
		all.slots += r.asked.Slots
		all.memory += r.bytes
		all.values += card.MemoryOf(r.asked)
		if r.asked.Tenant == spec.Tenant {
			own.jobs++
			own.slots += r.asked.Slots
			own.memory += r.bytes
		}
	}
	if j.limits.Card != nil {
		if no := j.limits.Card.Check(spec, card.Use{Jobs: all.jobs, Slots: all.slots, Memory: all.values}); no != nil {
			kind := Unsupported
			if no.Full {
				kind = Exhausted
			}
			return refuse(kind, no.Field, "%s", no.Why)
		}
	}
	if err := fits(spec, bytes, "all jobs", all.memory, j.limits.Memory); err != nil {
		return err
	}
	if spec.Tenant == "" {
		return nil
	}
	q := j.limits.quota(spec.Tenant)
	whose := "tenant " + spec.Tenant
	if q.Jobs != 0 && own.jobs+1 > q.Jobs {
		return refuse(Exhausted, "job.tenant", "%s has %d of %d jobs: remove one first", whose, own.jobs, q.Jobs)
	}
	if q.Slots != 0 && own.slots+spec.Slots > q.Slots {
		return refuse(Exhausted, "job.slots", "%d slots: %s has %d of %d: %d would fit", spec.Slots, whose, own.slots, q.Slots, max(0, q.Slots-own.slots))
	}
	return fits(spec, bytes, whose, own.memory, q.Memory)
}

// slotBytes is the memory of a job's slots. Those in the kernel count as if lanes had them, so that quotas hold for them too.
func (j *Jobs) slotBytes(spec dataplane.JobSpec) (int64, error) {
	spec.InKernel = false
	return j.nic.SlotBytes(spec)
}

// admitSenders refuses a job whose workers, or whose tenant, could not be charged: from there on no budget would follow
// any more, and one tenant's many workers would be another's harm. j.mu is held.
func (j *Jobs) admitSenders(spec dataplane.JobSpec) error {
	if !j.limits.boundsPackets() {
		return nil
	}
	workers, tenants := 0, map[string]bool{spec.Tenant: true}
	for name, r := range j.records {
		if name != spec.Name {
			workers += r.asked.Workers
			tenants[r.asked.Tenant] = true
		}
	}
	if workers+spec.Workers > xdp.MaxSources {
		return refuse(Exhausted, "job.workers", "%d workers: all jobs have %d of the %d that packet budgets know: %d would fit",
			spec.Workers, workers, xdp.MaxSources, max(0, xdp.MaxSources-workers))
	}
	if len(tenants) > xdp.MaxBudgets {
		return refuse(Exhausted, "job.tenant", "jobs of %d tenants have packet budgets, which is the most: remove another tenant's jobs first", xdp.MaxBudgets)
	}
	return nil
}

// fits refuses slots for which there is no memory left.
func fits(spec dataplane.JobSpec, bytes int64, whose string, have, limit int64) error {
	if limit == 0 || have+bytes <= limit {
		return nil
	}
	room := max(0, limit-have) * int64(spec.Slots) / bytes
	// A pool has some bytes beside its slots: one slot less is sure to fit.
	return refuse(Exhausted, "job.slots", "%d slots of %d elements take %s: %s: %s of %s in use: %d slots would fit",
		spec.Slots, spec.Elements, FormatSize(bytes), whose, FormatSize(have), FormatSize(limit), max(0, room-1))
}
