package show

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "gradnic/control/api/v1"
)

var update = flag.Bool("update", false, "write the golden files anew")

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func job() *apiv1.Job {
	return &apiv1.Job{
		Spec:       &apiv1.JobSpec{Name: "train", Tenant: "team-a", Protocol: apiv1.Protocol_PROTOCOL_SWITCHML, Workers: 4, Elements: 256, Slots: 512},
		Generation: 7, Origin: apiv1.Origin_ORIGIN_SWITCHML, Installed: timestamppb.New(now.Add(-90 * time.Second)),
		Lease: durationpb.New(time.Minute), Expires: timestamppb.New(now.Add(48 * time.Second)),
		Workers: []*apiv1.Worker{
			{Spec: &apiv1.WorkerSpec{Rank: 0, Mac: "02:00:00:00:01:00", Ipv4: "10.50.0.1", Port: "veth0"}, Joined: true, Received: 12, Contributed: 10, Duplicates: 2, Transmitted: 9, LastSeen: timestamppb.New(now.Add(-3 * time.Second)), Resent: 2, Last: 1},
			{Spec: &apiv1.WorkerSpec{Rank: 1, Mac: "02:00:00:00:01:01", Ipv4: "10.50.0.2", Port: "veth1"}, Joined: true, Received: 10, Contributed: 10, Transmitted: 9, LastSeen: timestamppb.New(now), Last: 8, MissingSince: timestamppb.New(now.Add(-1250 * time.Millisecond))},
			{Spec: &apiv1.WorkerSpec{Rank: 2, Mac: "02:00:00:00:01:02", Ipv4: "10.50.0.3"}, MissingSince: timestamppb.New(now.Add(-90 * time.Second))},
		},
		Slots:   &apiv1.SlotUse{Total: 1024, InUse: 4, Complete: 3, Waiting: 1},
		Missing: []uint32{1, 2, 3}, NeverCame: []uint32{2, 3}, NeverRegistered: []uint32{3}, NeverSent: []uint32{2}, Results: 9, Resent: 2, Wrapped: 1,
		Completions: &apiv1.Completions{Sum: durationpb.New(90 * time.Microsecond), Buckets: []*apiv1.CompletionBucket{
			{Below: durationpb.New(8192)}, {Below: durationpb.New(16384), Slots: 8}, {Below: durationpb.New(32768), Slots: 1}, {},
		}},
	}
}

func counters() *apiv1.Counters {
	return &apiv1.Counters{
		Received: 30, Injected: 1, Contributed: 20, Duplicates: 2, Answered: 3, Passed: 1, InFlight: 1,
		Drops:   []*apiv1.Drop{{Reason: "fragment", Count: 1}, {Reason: "unknown-worker", Count: 3}},
		Results: 9, Resent: 2, Wrapped: 1, Replicas: 38, ReplicaDrops: []*apiv1.Drop{{Reason: "impaired-egress", Count: 2}},
		Transmitted: 39, Completed: 39, Batches: 5, Kicks: 4, Sleeps: 2,
	}
}

func kernel() *apiv1.KernelCounters {
	return &apiv1.KernelCounters{RxDropped: 1, RxRingFull: 2, FillRingEmpty: 3, RxInvalidDescs: 4, TxInvalidDescs: 5, TxRingEmpty: 6}
}

func frames() *apiv1.Frames {
	return &apiv1.Frames{Total: 21, Free: 1, Fill: 2, Transmit: 3, Handoff: 4, Held: 11}
}

func stage(k uint64) []*apiv1.Stage {
	return []*apiv1.Stage{
		{Name: "receive", Frames: 640 * k, Batches: 20 * k, TimedFrames: 64, TimedNs: 1000 * k}, {Name: "parse", Frames: 640 * k, Batches: 10 * k}, {Name: "function"},
	}
}

// Every view as a table and as JSON: keys are stable, and what scripts read is seen in a diff.
func TestViews(t *testing.T) {
	ports := PortsFrom(&apiv1.ListPortsResponse{Ports: []*apiv1.Port{
		{Name: "veth0", Kind: "xdp", Mode: "native", ZeroCopy: true, Sockets: "zero-copy need-wakeup", QueueKernel: []*apiv1.KernelCounters{kernel(), {}}, Queues: 2,
			PerQueue: []*apiv1.Queue{
				{Received: 640, Batches: 20, Transmitted: 320, Completed: 319, Rings: &apiv1.Rings{Fill: 2047, FillMost: 2048, Transmit: 1, TransmitMost: 2048}},
				{Index: 1, Lane: 1, Rings: &apiv1.Rings{Fill: 2048, FillMost: 2048, TransmitMost: 2048}}, {Index: 2, Received: 7, Batches: 7},
			},
			State: "down", Why: "interface veth0 has no carrier", Rebuilds: 3, Function: "aggregate", Counters: counters(), Kernel: kernel(),
			Steering:   []*apiv1.Drop{{Reason: "pass-other", Count: 7}, {Reason: "pass-tagged", Count: 2}, {Reason: "taken-udp", Count: 30}, {Reason: "over-budget", Count: 5}, {Reason: "summed", Count: 40}, {Reason: "repeated", Count: 3}},
			Budgets:    []*apiv1.Budget{{Tenant: "(strays)", Rate: 10000, Burst: 512, Taken: 1}, {Tenant: "team-a", Rate: 200000, Burst: 512, Taken: 29, Dropped: 5}},
			Impairment: &apiv1.Impairment{IngressLoss: 0.01, EgressLoss: 0.1, DropIngress: []uint64{3}, DropEgress: []uint64{4, 5}, Duplicate: 0.5, Reorder: 0.25, ReorderBy: 3, ReorderHold: durationpb.New(5 * time.Millisecond), Seed: 9}},
		{Name: "veth1", Kind: "xdp", Index: 2, Mode: "generic", NoNative: "no space left on device", Sockets: "copy need-wakeup tx-budget=32 anchored", Queues: 1, State: "up", Function: "sink", Counters: &apiv1.Counters{}, Kernel: &apiv1.KernelCounters{}},
		{Name: "mem1", Kind: "mem", Index: 1, Queues: 1, Function: "sink", Counters: &apiv1.Counters{}, Kernel: &apiv1.KernelCounters{Error: "socket is gone"}},
	}})
	lanes := LanesFrom(&apiv1.ListLanesResponse{Lanes: []*apiv1.Lane{
		{Index: 0, Cpu: 3, Counters: counters(), Frames: frames(), HandedOut: 5, HandedIn: 6, Time: &apiv1.LaneTime{LifeNs: 1000, BusyNs: 250, SpinNs: 125, SleepNs: 625}}, {Index: 1, Cpu: -1, Counters: &apiv1.Counters{}, Frames: &apiv1.Frames{}},
	}})
	sums := CountersFrom(&apiv1.GetCountersResponse{Counters: counters(), Frames: frames(), Kernel: kernel(), Taken: timestamppb.New(now)})
	jobs := JobsFrom(&apiv1.ListJobsResponse{Jobs: []*apiv1.Job{job(), {Spec: &apiv1.JobSpec{Name: "z", Workers: 1, InKernel: true, Multicast: "239.1.1.1"}}}})
	pools := PoolsFrom(&apiv1.ListSlotsResponse{Pools: []*apiv1.Pool{{Job: "train", Slots: 512, Elements: 256, Use: job().GetSlots(), Missing: []uint32{1}}}})
	groups := GroupsFrom(&apiv1.ListGroupsResponse{Groups: []*apiv1.Group{
		{Job: "train", Size: 4, Members: []*apiv1.WorkerSpec{job().GetWorkers()[0].GetSpec(), job().GetWorkers()[2].GetSpec()}}, {Job: "z", Size: 1},
	}})
	tenants := TenantsFrom(&apiv1.ListTenantsResponse{Tenants: []*apiv1.Tenant{
		{Jobs: 1, Slots: 16, Memory: 4096, Workers: 2, Quota: &apiv1.Quota{}},
		{Name: "team-a", Jobs: 2, Slots: 1024, Memory: 3 << 20, Workers: 8, Results: 77, PacketsTaken: 900, PacketsDropped: 100,
			Quota: &apiv1.Quota{Jobs: 4, Slots: 4096, Memory: 64 << 20, Packets: 200000}},
	}})
	nic := NICFrom(&apiv1.GetNICResponse{Mac: "02:67:0a:32:00:fe", Ipv4: "10.50.0.254", Version: "v1", Ports: 2, Lanes: 1, Jobs: 1})

	stages := StagesFrom(&apiv1.ListStagesResponse{Total: stage(3), Lanes: []*apiv1.LaneStages{{Lane: 0, Stages: stage(1)}, {Lane: 1, Stages: stage(2)}}})
	traced := TracedFrom(&apiv1.TracedFrame{
		Time: timestamppb.New(now), Lane: 1, FromLane: 0, Port: "veth0", Length: 308, Job: "train", Rank: 1, Outcome: "completed", Verdict: "contributed",
		Message: &apiv1.TracedMessage{Protocol: "switchml", Mac: "02:00:00:00:01:01", Ipv4: "10.50.0.2", UdpPort: 4000, ToUdpPort: 48864, Kind: "request", JobId: 3, Slot: 17, Set: 1, Tsi: "01000000", Elements: 64},
		Seen:    []uint32{0, 1}, Lost: []*apiv1.Drop{{Reason: "port-unknown", Count: 2}},
		Replies: []*apiv1.TracedReply{
			{Rank: 0, Mac: "02:00:00:00:01:00", Ipv4: "10.50.0.1", UdpPort: 4000, Port: "veth0", Length: 308, Posted: true},
			{Rank: -1, Mac: "01:00:5e:01:01:01", Ipv4: "239.1.1.1", UdpPort: 4001, Port: "veth1", Length: 308, Reason: "tx-full"},
		},
	})
	unknown := TracedFrom(&apiv1.TracedFrame{Time: timestamppb.New(now), FromLane: -1, Rank: -1, Port: "veth0", Length: 60, Verdict: "drop", Reason: "unknown-job",
		Message: &apiv1.TracedMessage{Protocol: "native", Kind: "contribution", Round: 9, Elements: 4}})

	for _, v := range []struct {
		name     string
		document any
		table    func(*bytes.Buffer) error
	}{
		{"nic", nic, func(b *bytes.Buffer) error { return TableNIC(b, nic) }},
		{"jobs", jobs, func(b *bytes.Buffer) error { return TableJobs(b, jobs) }},
		{"job", jobs[0], func(b *bytes.Buffer) error { return TableJob(b, jobs[0], now) }},
		{"workers", WorkersOf(jobs), func(b *bytes.Buffer) error { return TableWorkers(b, WorkersOf(jobs), now) }},
		{"slots", pools, func(b *bytes.Buffer) error { return TablePools(b, pools) }},
		{"groups", groups, func(b *bytes.Buffer) error { return TableGroups(b, groups) }},
		{"tenants", tenants, func(b *bytes.Buffer) error { return TableTenants(b, tenants) }},
		{"ports", ports, func(b *bytes.Buffer) error { return TablePorts(b, ports) }},
		{"port", ports[0], func(b *bytes.Buffer) error { return TablePort(b, &ports[0]) }},
		{"queues", QueuesOf(ports), func(b *bytes.Buffer) error { return TableQueues(b, QueuesOf(ports)) }},
		{"lanes", lanes, func(b *bytes.Buffer) error { return TableLanes(b, lanes) }},
		{"stages", stages, func(b *bytes.Buffer) error { return TableStages(b, stages) }},
		{"trace", traced, func(b *bytes.Buffer) error { return TextTraced(b, 1, traced) }},
		{"trace-unknown", unknown, func(b *bytes.Buffer) error { return TextTraced(b, 2, unknown) }},
		{"drops", DropsOf(sums, ports), func(b *bytes.Buffer) error { return TableDrops(b, DropsOf(sums, ports)) }},
		{"counters", sums, func(b *bytes.Buffer) error { return TableCounters(b, sums) }},
	} {
		var table bytes.Buffer
		if err := v.table(&table); err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(table.String(), "\n") {
			if strings.TrimRight(line, " ") != line {
				t.Errorf("%s: line %d ends in blanks: %q", v.name, i+1, line)
			}
		}
		golden(t, v.name+".txt", table.Bytes())
		document, err := json.MarshalIndent(v.document, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		golden(t, v.name+".json", append(document, '\n'))
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is\n%s\nwant\n%s", name, got, want)
	}
}

func TestRanks(t *testing.T) {
	for want, ranks := range map[string][]int{
		"-": nil, "3": {3}, "1,2": {2, 1}, "0-2": {0, 1, 2}, "0-3,7,9,10": {10, 9, 7, 0, 1, 2, 3},
	} {
		if got := Ranks(ranks); got != want {
			t.Errorf("%v is %s, want %s", ranks, got, want)
		}
	}
}

// Lists are [] and maps {} where there is nothing: scripts need no case for null. Times are null when there is none.
func TestNothingIsNotNull(t *testing.T) {
	for name, document := range map[string]any{
		"jobs": JobsFrom(nil), "job": JobFrom(nil), "workers": WorkersOf(nil), "slots": PoolsFrom(nil), "groups": GroupsFrom(nil), "tenants": TenantsFrom(nil),
		"ports": PortsFrom(nil), "queues": QueuesOf(nil), "lanes": LanesFrom(nil), "stages": StagesFrom(nil), "trace": TracedFrom(nil), "drops": DropsOf(CountersFrom(nil), nil),
	} {
		b, err := json.Marshal(document)
		if err != nil {
			t.Fatal(err)
		}
		s := strings.NewReplacer(`"installed":null`, "", `"lease":null`, "", `"expires":null`, "").Replace(string(b))
		if strings.Contains(s, "null") {
			t.Errorf("%s: %s", name, b)
		}
	}
}
