package control

import (
	"cmp"
	"fmt"
	"slices"

	"gradnic/dataplane"
)

// This file is when two specifications are the same job.

// normal fills in defaults and puts the members in order, so that specifications can be compared.
func normal(spec dataplane.JobSpec) dataplane.JobSpec {
	if spec.Protocol == "" {
		spec.Protocol = dataplane.ProtocolSwitchML
	}
	if spec.Protocol == dataplane.ProtocolNative {
		normalNative(&spec)
	}
	if spec.Elements == 0 {
		spec.Elements = DefaultElements
	}
	if spec.Slots == 0 {
		spec.Slots = dataplane.DefaultSlots
	}
	spec.Members = slices.Clone(spec.Members)
	slices.SortStableFunc(spec.Members, func(a, b dataplane.WorkerSpec) int { return cmp.Compare(a.Rank, b.Rank) })
	return spec
}

// normal is the function of that name, and says where members of a job that does not learn it are that can be at one
// port only, and where its multicast results go.
func (j *Jobs) normal(spec dataplane.JobSpec) dataplane.JobSpec {
	spec = normal(spec)
	if placed(&spec) {
		for i := range spec.Members {
			spec.Members[i] = j.place(spec.Members[i])
		}
	}
	if spec.Multicast != nil && spec.Protocol == dataplane.ProtocolSwitchML {
		spec.Multicast = j.spread(&spec)
	}
	return spec
}

func same(a, b dataplane.JobSpec) bool { return difference(a, b) == "" }

// difference names the first field in which two specifications differ.
func difference(was, is dataplane.JobSpec) string {
	switch {
	case was.Tenant != is.Tenant:
		return fmt.Sprintf("tenant %q, not %q", was.Tenant, is.Tenant)
	case was.Protocol != is.Protocol:
		return fmt.Sprintf("protocol %s, not %s", was.Protocol, is.Protocol)
	case was.Workers != is.Workers:
		return fmt.Sprintf("workers %d, not %d", was.Workers, is.Workers)
	case was.Elements != is.Elements:
		return fmt.Sprintf("elements %d, not %d", was.Elements, is.Elements)
	case was.Slots != is.Slots:
		return fmt.Sprintf("slots %d, not %d", was.Slots, is.Slots)
	case was.Layout != is.Layout:
		return fmt.Sprintf("layout %q, not %q", was.Layout, is.Layout)
	case was.InKernel != is.InKernel:
		return fmt.Sprintf("in_kernel %t, not %t", was.InKernel, is.InKernel)
	case groupOf(was) != groupOf(is):
		return fmt.Sprintf("multicast %v, not %v", groupOf(was), groupOf(is))
	case !slices.Equal(was.Members, is.Members):
		return "other members"
	}
	return nativeDifference(was, is)
}
