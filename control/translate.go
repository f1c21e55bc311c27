package control

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "gradnic/control/api/v1"
	"gradnic/dataplane"
	"gradnic/wire/inet"
)

// This file is the edge where protobuf's types end: from them on the way in, to
// them on the way out.

// portNames is how a worker's port goes by index inside and by name outside.
type portNames []string

func (p portNames) index(field, name string) (int, error) {
	if name == "" {
		return -1, nil
	}
	if i := slices.Index(p, name); i >= 0 {
		return i, nil
	}
	return 0, refuse(Invalid, field+".port", "%q is not a port of the NIC: its ports are %v", name, []string(p))
}

func (p portNames) name(index int) string {
	if index < 0 || index >= len(p) {
		return ""
	}
	return p[index]
}

func jobSpecFromProto(m *apiv1.JobSpec, ports portNames) (dataplane.JobSpec, error) {
	if m == nil {
		return dataplane.JobSpec{}, refuse(Invalid, "job", "no job in the request")
	}
	spec := dataplane.JobSpec{
		Name:     m.GetName(),
		Tenant:   m.GetTenant(),
		Workers:  clampInt(m.GetWorkers()),
		Elements: clampInt(m.GetElements()),
		Slots:    clampInt(m.GetSlots()),
		Layout:   m.GetLayout(),
		InKernel: m.GetInKernel(),
	}
	switch m.GetProtocol() {
	case apiv1.Protocol_PROTOCOL_UNSPECIFIED, apiv1.Protocol_PROTOCOL_SWITCHML:
		spec.Protocol = dataplane.ProtocolSwitchML
		var err error
		if spec.Multicast, err = groupFromProto("job.multicast", m.GetMulticast()); err != nil {
			return spec, err
		}
	case apiv1.Protocol_PROTOCOL_NATIVE:
		spec.Protocol = dataplane.ProtocolNative
		if m.GetMulticast() != "" {
			return spec, refuse(Invalid, "job.multicast", "a native job's is job.native.multicast")
		}
		if err := nativeFromProto(&spec, m.GetNative()); err != nil {
			return spec, err
		}
	default:
		return spec, refuse(Unsupported, "job.protocol", "%v: supported are %v and %v", m.GetProtocol(), apiv1.Protocol_PROTOCOL_SWITCHML, apiv1.Protocol_PROTOCOL_NATIVE)
	}
	if n, most := len(m.GetMembers()), maxWorkers(spec.Protocol); n > most {
		return spec, refuse(Invalid, "job.members", "%d members: a job has at most %d", n, most)
	}
	for _, w := range m.GetMembers() {
		member, err := workerFromProto(fmt.Sprintf("job.members[rank %d]", w.GetRank()), w, ports)
		if err != nil {
			return spec, err
		}
		spec.Members = append(spec.Members, member)
	}
	return spec, nil
}

func workerFromProto(field string, m *apiv1.WorkerSpec, ports portNames) (w dataplane.WorkerSpec, err error) {
	if m == nil {
		return w, refuse(Invalid, field, "no worker in the request")
	}
	w.Rank = clampInt(m.GetRank())
	if w.MAC, err = inet.ParseMAC(m.GetMac()); err != nil {
		return w, &Error{Kind: Invalid, Field: field + ".mac", Why: "as 02:00:00:00:01:00", err: err}
	}
	if w.IP, err = inet.ParseAddr(m.GetIpv4()); err != nil {
		return w, &Error{Kind: Invalid, Field: field + ".ipv4", Why: "as 10.50.0.1", err: err}
	}
	w.Port, err = ports.index(field, m.GetPort())
	return w, err
}

func leaseFromProto(m *durationpb.Duration) (time.Duration, error) {
	if m == nil {
		return 0, nil
	}
	if m.CheckValid() != nil || m.AsDuration() <= 0 {
		return 0, refuse(Invalid, "lease", "%v: a lease is %v to %v, or none", m, MinLease, MaxLease)
	}
	return m.AsDuration(), nil
}

// clampInt keeps a huge number huge where int has 32 bits, so that range checks see it.
func clampInt(v uint32) int {
	return int(min(v, 1<<31-1))
}

func jobToProto(j JobInfo, ports portNames) *apiv1.Job {
	m := &apiv1.Job{
		Spec: &apiv1.JobSpec{
			Name: j.Name, Tenant: j.Tenant, Protocol: protocolToProto(j.Protocol),
			Workers: uint32(j.Workers), Elements: uint32(j.Elements), Slots: uint32(j.Slots), Layout: j.Layout, InKernel: j.InKernel,
		},
		Generation: j.Generation,
		Origin:     apiv1.Origin(j.Origin),
		Installed:  timeToProto(j.Installed),
		Slots:      slotsToProto(j.Use),
		Missing:    ranksToProto(j.Missing),
		NeverCame:  ranksToProto(j.NeverCame()), NeverRegistered: ranksToProto(j.NeverRegistered()), NeverSent: ranksToProto(j.NeverSent()),
		Results: j.Results, Resent: j.Resent, Wrapped: j.Wrapped,
	}
	if j.Multicast != nil && j.Native == nil {
		m.Spec.Multicast = j.Multicast.IP.String()
	}
	m.Completions = completionsToProto(&j.Times)
	nativeToProto(m, j)
	if j.Lease != 0 {
		m.Lease, m.Expires = durationpb.New(j.Lease), timeToProto(j.Expires)
	}
	for _, w := range j.Members() {
		spec := workerToProto(w, ports)
		m.Spec.Members = append(m.Spec.Members, spec)
		m.Workers = append(m.Workers, &apiv1.Worker{
			Spec: spec, Joined: w.Joined,
			Received: w.Received, Contributed: w.Contributed, Duplicates: w.Duplicates, Transmitted: w.Sent,
			LastSeen: timeToProto(w.LastSeen), Resent: w.Resent, Last: w.Last, MissingSince: timeToProto(j.MissingSince(w.Rank)),
		})
	}
	return m
}

func completionsToProto(c *dataplane.Completions) *apiv1.Completions {
	if c.Count() == 0 {
		return nil
	}
	m := &apiv1.Completions{Sum: durationpb.New(c.Sum)}
	for _, b := range c.Buckets {
		bucket := &apiv1.CompletionBucket{Slots: b.Slots}
		if b.Below != 0 {
			bucket.Below = durationpb.New(b.Below)
		}
		m.Buckets = append(m.Buckets, bucket)
	}
	return m
}

func budgetsToProto(budgets []dataplane.BudgetSnapshot) []*apiv1.Budget {
	out := make([]*apiv1.Budget, 0, len(budgets))
	for _, b := range budgets {
		out = append(out, &apiv1.Budget{Tenant: b.Name, Rate: b.Rate, Burst: uint32(b.Burst), Taken: b.Taken, Dropped: b.Dropped})
	}
	return out
}

func protocolToProto(name string) apiv1.Protocol {
	switch name {
	case dataplane.ProtocolSwitchML:
		return apiv1.Protocol_PROTOCOL_SWITCHML
	case dataplane.ProtocolNative:
		return apiv1.Protocol_PROTOCOL_NATIVE
	}
	return apiv1.Protocol_PROTOCOL_UNSPECIFIED
}

func workerToProto(w dataplane.WorkerStatus, ports portNames) *apiv1.WorkerSpec {
	return &apiv1.WorkerSpec{Rank: uint32(w.Rank), Mac: w.MAC.String(), Ipv4: w.IP.String(), Port: ports.name(w.Port)}
}

func slotsToProto(s dataplane.SlotStatus) *apiv1.SlotUse {
	return &apiv1.SlotUse{Total: uint64(s.Total), InUse: uint64(s.InUse), Complete: uint64(s.Complete), Waiting: uint64(s.Waiting)}
}

func ranksToProto(ranks []int) []uint32 {
	out := make([]uint32, 0, len(ranks))
	for _, r := range ranks {
		out = append(out, uint32(r))
	}
	return out
}

func timeToProto(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

func dropsToProto(drops map[string]uint64) []*apiv1.Drop {
	out := make([]*apiv1.Drop, 0, len(drops))
	for _, reason := range slices.Sorted(maps.Keys(drops)) {
		out = append(out, &apiv1.Drop{Reason: reason, Count: drops[reason]})
	}
	return out
}

func countersToProto(c *dataplane.Counters) *apiv1.Counters {
	return &apiv1.Counters{
		Received: c.Received, Injected: c.Injected, Contributed: c.Contributed, Duplicates: c.Duplicates,
		Answered: c.Answered, Passed: c.Passed, InFlight: c.InFlight, Drops: dropsToProto(c.Drops),
		Results: c.Results, Resent: c.Resent, Wrapped: c.Wrapped,
		Replicas: c.Replicas, ReplicaDrops: dropsToProto(c.ReplicaDrops),
		Transmitted: c.Transmitted, Completed: c.Completed, Batches: c.Batches, Kicks: c.Kicks, Sleeps: c.Sleeps,
		Reclaimed: c.Reclaimed,
	}
}

func framesToProto(f dataplane.Frames) *apiv1.Frames {
	return &apiv1.Frames{Total: f.Total, Free: f.Free, Fill: f.Fill, Transmit: f.Transmit, Handoff: f.Handoff, Held: f.Held}
}

func kernelToProto(k dataplane.KernelStatistics) *apiv1.KernelCounters {
	return &apiv1.KernelCounters{
		RxDropped: k.RxDropped, RxRingFull: k.RxRingFull, FillRingEmpty: k.FillRingEmpty,
		RxInvalidDescs: k.RxInvalid, TxInvalidDescs: k.TxInvalid, TxRingEmpty: k.TxRingEmpty,
		Error: k.StatisticsError,
	}
}

func impairmentFromProto(m *apiv1.Impairment) (i dataplane.Impairment, err error) {
	if m == nil {
		return i, refuse(Invalid, "impairment", "no impairment in the request")
	}
	for _, p := range []struct {
		field string
		value float64
	}{
		{"ingress_loss", m.GetIngressLoss()}, {"egress_loss", m.GetEgressLoss()},
		{"duplicate", m.GetDuplicate()}, {"reorder", m.GetReorder()},
	} {
		if !(p.value >= 0 && p.value <= 1) { // false for NaN too
			return i, refuse(Invalid, "impairment."+p.field, "%v: a probability is 0 to 1", p.value)
		}
	}
	for _, p := range []struct {
		field  string
		values []uint64
	}{{"drop_ingress", m.GetDropIngress()}, {"drop_egress", m.GetDropEgress()}} {
		if slices.Contains(p.values, 0) {
			return i, refuse(Invalid, "impairment."+p.field, "0: frames are counted from 1")
		}
	}
	hold := m.GetReorderHold().AsDuration()
	if m.GetReorderHold() != nil && (m.GetReorderHold().CheckValid() != nil || hold < 0) {
		return i, refuse(Invalid, "impairment.reorder_hold", "%v: a time of 0 or more", m.GetReorderHold())
	}
	return dataplane.Impairment{
		IngressLoss: m.GetIngressLoss(), EgressLoss: m.GetEgressLoss(), EgressTogether: m.GetEgressTogether(),
		DropIngress: slices.Clone(m.GetDropIngress()), DropEgress: slices.Clone(m.GetDropEgress()),
		Duplicate: m.GetDuplicate(), Reorder: m.GetReorder(), ReorderBy: clampInt(m.GetReorderBy()), ReorderHold: hold,
		Seed: m.GetSeed(),
	}, nil
}

func impairmentToProto(i dataplane.Impairment) *apiv1.Impairment {
	if perfect(i) {
		return nil
	}
	m := &apiv1.Impairment{
		IngressLoss: i.IngressLoss, EgressLoss: i.EgressLoss, EgressTogether: i.EgressTogether,
		DropIngress: i.DropIngress, DropEgress: i.DropEgress,
		Duplicate: i.Duplicate, Reorder: i.Reorder, ReorderBy: uint32(i.ReorderBy), Seed: i.Seed,
	}
	if i.ReorderHold > 0 {
		m.ReorderHold = durationpb.New(i.ReorderHold)
	}
	return m
}

// perfect is true for the impairment of a perfect port: what remains are settings without effect.
func perfect(i dataplane.Impairment) bool {
	return i.IngressLoss == 0 && i.EgressLoss == 0 && i.Duplicate == 0 && i.Reorder == 0 &&
		len(i.DropIngress) == 0 && len(i.DropEgress) == 0
}
