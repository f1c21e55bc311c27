package show

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"gradnic/control"
	apiv1 "gradnic/control/api/v1"
	"gradnic/dataplane"
)

// Tenant is one owner of jobs.
type Tenant struct {
	Name    string `json:"name"` // empty: the jobs of nobody in particular
	Jobs    int    `json:"jobs"`
	Slots   int    `json:"slots"`
	Memory  uint64 `json:"memory"` // bytes of slots
	Workers int    `json:"workers"`
	Results uint64 `json:"results"`
	Quota   Quota  `json:"quota"`
	// Taken and Dropped are the frames of its workers since packets are bounded.
	Taken   uint64 `json:"packets_taken"`
	Dropped uint64 `json:"packets_dropped"`
}

// Quota is what a tenant may take; 0: no bound.
type Quota struct {
	Jobs    int    `json:"jobs"`
	Slots   int    `json:"slots"`
	Memory  uint64 `json:"memory"`
	Packets uint64 `json:"packets"` // frames a second on each port
}

// TenantsFrom makes the documents from the API's message.
func TenantsFrom(m *apiv1.ListTenantsResponse) []Tenant {
	tenants := make([]Tenant, 0, len(m.GetTenants()))
	for _, t := range m.GetTenants() {
		q := t.GetQuota()
		tenants = append(tenants, Tenant{
			Name: t.GetName(), Jobs: int(t.GetJobs()), Slots: int(t.GetSlots()), Memory: t.GetMemory(), Workers: int(t.GetWorkers()), Results: t.GetResults(),
			Quota: Quota{int(q.GetJobs()), int(q.GetSlots()), q.GetMemory(), q.GetPackets()},
			Taken: t.GetPacketsTaken(), Dropped: t.GetPacketsDropped(),
		})
	}
	return tenants
}

// TableTenants writes one line a tenant: what it takes, of what it may.
func TableTenants(w io.Writer, tenants []Tenant) error {
	t := newTable(w, "TENANT", "JOBS", "SLOTS", "MEMORY", "WORKERS", "RESULTS", "PACKETS/S", "TAKEN", "OVER BUDGET")
	limited := func(have, most uint64) string {
		if most == 0 {
			return strconv.FormatUint(have, 10)
		}
		return of(have, most)
	}
	for i := range tenants {
		x := &tenants[i]
		memory := control.FormatSize(int64(x.Memory))
		if x.Quota.Memory != 0 {
			memory += " of " + control.FormatSize(int64(x.Quota.Memory))
		}
		packets := ""
		if x.Quota.Packets != 0 {
			packets = strconv.FormatUint(x.Quota.Packets, 10)
		}
		t.row(x.Name, limited(uint64(x.Jobs), uint64(x.Quota.Jobs)), limited(uint64(x.Slots), uint64(x.Quota.Slots)), memory,
			x.Workers, x.Results, packets, x.Taken, x.Dropped)
	}
	return t.w.Flush()
}

// Completions says how long slots took from their first contribution to their completion.
type Completions struct {
	Slots   uint64   `json:"slots"`
	SumNS   int64    `json:"sum_ns"`
	Buckets []Bucket `json:"buckets"` // those that have slots
}

// Bucket counts the slots that took less than a time, a power of two, and at least half of it.
type Bucket struct {
	BelowNS int64  `json:"below_ns"` // 0: no bound
	Slots   uint64 `json:"slots"`
}

func completionsFrom(m *apiv1.Completions) Completions {
	c := Completions{SumNS: m.GetSum().AsDuration().Nanoseconds(), Buckets: []Bucket{}}
	for _, b := range m.GetBuckets() {
		if b.GetSlots() > 0 {
			c.Slots += b.GetSlots()
			c.Buckets = append(c.Buckets, Bucket{b.GetBelow().AsDuration().Nanoseconds(), b.GetSlots()})
		}
	}
	return c
}

// line is the completions in one line: the times that half, and all but the slowest, of the slots took at most.
func (c *Completions) line() string {
	if c.Slots == 0 {
		return "no slot was completed"
	}
	known := dataplane.Completions{}
	for _, b := range c.Buckets {
		known.Buckets = append(known.Buckets, dataplane.CompletionBucket{Below: time.Duration(b.BelowNS), Slots: b.Slots})
	}
	parts := []string{fmt.Sprintf("mean %v", rounded(time.Duration(c.SumNS/int64(c.Slots))))}
	for _, q := range []float64{0.5, 0.99, 1} {
		at := "more than all bounds"
		if d, ok := known.Quantile(q); ok {
			at = "below " + rounded(d).String()
		}
		parts = append(parts, fmt.Sprintf("%g %% %s", 100*q, at))
	}
	return strings.Join(parts, ", ")
}

// rounded keeps three digits.
func rounded(d time.Duration) time.Duration {
	for unit := time.Nanosecond; unit < time.Hour; unit *= 10 {
		if d < 1000*unit {
			return d.Round(unit)
		}
	}
	return d.Round(time.Second)
}

func budgetsFrom(in []*apiv1.Budget) []dataplane.BudgetSnapshot {
	out := make([]dataplane.BudgetSnapshot, 0, len(in))
	for _, b := range in {
		out = append(out, dataplane.BudgetSnapshot{Name: b.GetTenant(), Rate: b.GetRate(), Burst: int(b.GetBurst()), Taken: b.GetTaken(), Dropped: b.GetDropped()})
	}
	return out
}
