package control

import (
	"cmp"
	"slices"

	"gradnic/dataplane"
	"gradnic/wire/inet"
)

// This file turns the tenants' packet quotas into the budgets of the ports.

// DefaultStrays is how many frames a second each port takes of senders that are no
// job's workers, where packets are bounded and nothing else is said: enough for ARP,
// echo requests, and workers that are only coming.
const DefaultStrays = 10_000

// Names of budgets that are no tenant's: no tenant can have them.
const (
	StrayBudget  = "(strays)"
	NobodyBudget = "(nobody)"
)

// boundsPackets is true when any tenant's packets are bounded, or those of strays.
func (l *Limits) boundsPackets() bool {
	if l.Strays != 0 {
		return true
	}
	for _, q := range l.Tenants {
		if q.Packets != 0 {
			return true
		}
	}
	return false
}

// quota is what a tenant may take.
func (l *Limits) quota(tenant string) Quota {
	if tenant == "" {
		return Quota{}
	}
	if q, named := l.Tenants[tenant]; named {
		return q
	}
	return l.Tenants[EachTenant]
}

// budgetName is how a tenant goes among the budgets.
func budgetName(tenant string) string { return cmp.Or(tenant, NobodyBudget) }

// charge gives the ports the budgets that the jobs and quotas of now make. j.mu is
// held. What could not be set is tried again by Tend.
func (j *Jobs) charge() {
	if !j.limits.boundsPackets() {
		if j.charged {
			j.setBudgets(nil)
		}
		return
	}
	b := &dataplane.Budgets{Strays: dataplane.Budget{Name: StrayBudget, Rate: cmp.Or(j.limits.Strays, DefaultStrays)}}
	records := make([]*record, 0, len(j.records))
	for _, r := range j.records {
		records = append(records, r)
	}
	// An address that two tenants claim is charged to who had it first.
	slices.SortFunc(records, func(a, b *record) int { return cmp.Compare(a.generation, b.generation) })
	index := map[string]int{}
	for _, r := range records {
		tenant := r.asked.Tenant
		i, known := index[tenant]
		if !known {
			i = len(b.Named)
			index[tenant] = i
			b.Named = append(b.Named, dataplane.Budget{Name: budgetName(tenant), Rate: j.limits.quota(tenant).Packets})
		}
		b.Named[i].Senders = r.appendSenders(b.Named[i].Senders)
	}
	j.setBudgets(b)
}

func (j *Jobs) setBudgets(b *dataplane.Budgets) {
	err := j.nic.SetBudgets(b)
	j.charged = b != nil || err != nil
	was := j.uncharged
	j.uncharged = err != nil
	if err != nil && !was { // it is tried again and again
		j.logger.Error("packet budgets not set", "err", err)
	}
}

// appendSenders appends the workers of a job, where they are known to be.
func (r *record) appendSenders(out []dataplane.Sender) []dataplane.Sender {
	seen := make(map[inet.MAC]bool, len(r.learned))
	for _, w := range r.learned {
		seen[w.MAC] = true
		out = append(out, w)
	}
	for _, workers := range [][]dataplane.WorkerSpec{r.asked.Members, r.added} {
		for _, w := range workers {
			if len(seen) == 0 || !seen[w.MAC] {
				out = append(out, dataplane.Sender{MAC: w.MAC, Port: w.Port})
			}
		}
	}
	return out
}

// learns is true as long as there is something to learn of a job's workers.
func (r *record) learns() bool {
	if len(r.asked.Members)+len(r.added) < r.asked.Workers {
		return true
	}
	return slices.ContainsFunc(slices.Concat(r.asked.Members, r.added), func(w dataplane.WorkerSpec) bool { return w.Port < 0 })
}

// Tend looks where workers have come from, so that they are charged to their tenant
// on that port and on no other. It is to be called every second or so.
func (j *Jobs) Tend() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.limits.boundsPackets() && !j.uncharged {
		return
	}
	changed := j.uncharged
	for name, r := range j.records {
		if !r.learns() {
			continue
		}
		status, err := j.nic.Job(name)
		if err != nil {
			continue
		}
		var now []dataplane.Sender
		for _, w := range status.Status {
			if w.Known && w.Port >= 0 {
				now = append(now, dataplane.Sender{MAC: w.MAC, Port: w.Port})
			}
		}
		if !slices.Equal(now, r.learned) {
			r.learned, changed = now, true
		}
	}
	if changed {
		j.charge()
	}
}

// TenantInfo is what a tenant takes and may take.
type TenantInfo struct {
	Name           string // empty: the jobs of nobody in particular
	Jobs, Slots    int
	Memory         int64 // bytes of slots
	Workers        int   // that are known
	Results        uint64
	Quota          Quota
	Taken, Dropped uint64 // frames that ports charged since packets are bounded
}

// Tenants are those that have jobs and those that have a quota of their own, by name.
func (j *Jobs) Tenants() []TenantInfo {
	byName := map[string]*TenantInfo{}
	at := func(name string) *TenantInfo {
		t := byName[name]
		if t == nil {
			t = &TenantInfo{Name: name}
			byName[name] = t
		}
		return t
	}
	for _, job := range j.List() {
		t := at(job.Tenant)
		t.Jobs++
		t.Slots += job.Slots
		t.Workers += len(job.Members())
		t.Results += job.Results
	}
	j.mu.Lock()
	for _, r := range j.records {
		at(r.asked.Tenant).Memory += r.bytes
	}
	for name := range j.limits.Tenants {
		if name != EachTenant {
			at(name)
		}
	}
	for name, t := range byName {
		t.Quota = j.limits.quota(name)
	}
	j.mu.Unlock()
	for _, p := range j.nic.Snapshot().Ports {
		for _, b := range p.Budgets {
			for _, t := range byName {
				if budgetName(t.Name) == b.Name {
					t.Taken += b.Taken
					t.Dropped += b.Dropped
				}
			}
		}
	}
	out := make([]TenantInfo, 0, len(byName))
	for _, t := range byName {
		out = append(out, *t)
	}
	slices.SortFunc(out, func(a, b TenantInfo) int { return cmp.Compare(a.Name, b.Name) })
	return out
}
