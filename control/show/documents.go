package show

import (
	"time"

	apiv1 "gradnic/control/api/v1"
	"gradnic/dataplane"
	"gradnic/xdp"
)

// NIC is who the NIC is.
type NIC struct {
	MAC     string `json:"mac"`
	IP      string `json:"ip"`
	Version string `json:"version"`
	Ports   int    `json:"ports"`
	Lanes   int    `json:"lanes"`
	Jobs    int    `json:"jobs"`
}

// Member is one worker as the group knows it.
type Member struct {
	Rank int    `json:"rank"`
	MAC  string `json:"mac"`
	IP   string `json:"ip"`
	Port string `json:"port"` // empty: not known yet
}

// Queue is one queue of a port.
type Queue struct {
	Port string `json:"port"`
	dataplane.QueueSnapshot
	// Kernel is null where the kernel does not count by queue, or has no socket there.
	Kernel *dataplane.KernelStatistics `json:"kernel"`
}

// Worker is one worker of a job.
type Worker struct {
	Job string `json:"job"`
	Member
	Joined      bool       `json:"joined"`
	Received    uint64     `json:"rx"`
	Contributed uint64     `json:"contributed"`
	Duplicates  uint64     `json:"duplicates"`
	Sent        uint64     `json:"tx"`
	Resent      uint64     `json:"resent"`        // results, sent again as it asked
	Last        uint64     `json:"last"`          // slots for which it was the last to come
	LastSeen    *time.Time `json:"last_seen"`     // null: never
	Missing     *time.Time `json:"missing_since"` // null: nothing waits for it
}

// Job is one job.
type Job struct {
	Name       string               `json:"name"`
	Tenant     string               `json:"tenant"`
	Protocol   string               `json:"protocol"`
	Layout     string               `json:"layout,omitempty"`
	Multicast  string               `json:"multicast,omitempty"` // SwitchML: the group that results go to
	InKernel   bool                 `json:"in_kernel,omitempty"` // contributions are added up where frames arrive
	Workers    int                  `json:"workers"`
	Joined     int                  `json:"joined"`
	Elements   int                  `json:"elements"`
	Slots      int                  `json:"slots"`
	Use        dataplane.SlotStatus `json:"slot_status"`
	Results    uint64               `json:"results"`
	Resent     uint64               `json:"resent"`
	Wrapped    uint64               `json:"wrapped"`
	Missing    []int                `json:"missing"`
	NeverCame  []int                `json:"never_came"`
	NeverReg   []int                `json:"never_registered"`
	NeverSent  []int                `json:"never_sent"`
	Origin     string               `json:"origin"`
	Generation uint64               `json:"generation"`
	Installed  *time.Time           `json:"installed"`
	Lease      *float64             `json:"lease"`   // seconds; null: it stays
	Expires    *time.Time           `json:"expires"` // null: it stays
	Members    []Worker             `json:"members"`
	Native     *Native              `json:"native,omitempty"`
	// Completions says how long slots took from the first contribution to the last.
	Completions Completions `json:"completions"`
}

// Native is what a job of the native protocol has beside the rest.
type Native struct {
	Number    uint32  `json:"number"`
	Type      string  `json:"type"`
	Op        string  `json:"op"`
	Order     string  `json:"order"`
	Policy    string  `json:"policy"`
	Codec     string  `json:"codec"`        // of contributions; none: they are not compressed
	Result    string  `json:"result_codec"` // of results
	DeadlineS float64 `json:"deadline_s"`   // negative: none
	Multicast string  `json:"multicast,omitempty"`
	Tagged    bool    `json:"tagged,omitempty"`
	Epoch     uint32  `json:"epoch"`
	State     string  `json:"state"`
	Ranks     []int   `json:"ranks"` // that have not reported, or are to blame
}

// Pool is the slots of one job.
type Pool struct {
	Job      string               `json:"job"`
	Slots    int                  `json:"slots"`
	Elements int                  `json:"elements"`
	Use      dataplane.SlotStatus `json:"slot_status"`
	Missing  []int                `json:"missing"`
}

// Group is where the results of one job go.
type Group struct {
	Job     string   `json:"job"`
	Size    int      `json:"size"`
	Members []Member `json:"members"`
	// Multicast is the IPv4 group that results go to, one frame a port; empty: each member gets its own.
	Multicast string `json:"multicast"`
}

// Port is one port. Its counters have the keys of the data plane's.
type Port struct {
	dataplane.PortSnapshot
	Impairment *dataplane.Impairment `json:"impairment"` // null: none
}

// Counters are the NIC's counters as one sum.
type Counters struct {
	Taken    time.Time                  `json:"taken"`
	Counters dataplane.Counters         `json:"counters"`
	Frames   dataplane.Frames           `json:"frames"`
	Kernel   dataplane.KernelStatistics `json:"kernel"`
	Fault    string                     `json:"fault"` // empty: the accounts add up
}

// Drops are the NIC's losses: what it dropped, what it did not send, what the kernel lost, and what the steering
// program left to the kernel although it may have been meant for the NIC, by its verdict.
type Drops struct {
	Drops        map[string]uint64          `json:"drops"`
	ReplicaDrops map[string]uint64          `json:"replica_drops"`
	Kernel       dataplane.KernelStatistics `json:"kernel"`
	Steering     map[string]uint64          `json:"steering"`
	// Budgets are the frames that came faster than the budget of their sender allows, by tenant.
	Budgets map[string]uint64 `json:"budgets"`
}

// suspect are the verdicts of frames that were for the NIC's address, or can hide it.
var suspect = [...]xdp.Verdict{xdp.Unbound, xdp.PassPort, xdp.PassProtocol, xdp.PassTagged, xdp.PassOptions, xdp.PassFragment, xdp.PassShort}

// NICFrom makes the document from the API's message.
func NICFrom(m *apiv1.GetNICResponse) NIC {
	return NIC{MAC: m.GetMac(), IP: m.GetIpv4(), Version: m.GetVersion(),
		Ports: int(m.GetPorts()), Lanes: int(m.GetLanes()), Jobs: int(m.GetJobs())}
}

// JobFrom makes the document from the API's message.
func JobFrom(m *apiv1.Job) Job {
	spec := m.GetSpec()
	j := Job{
		Name: spec.GetName(), Tenant: spec.GetTenant(), Protocol: protocolName(spec.GetProtocol()),
		Layout: spec.GetLayout(), Multicast: spec.GetMulticast(), InKernel: spec.GetInKernel(), Workers: int(spec.GetWorkers()), Elements: int(spec.GetElements()), Slots: int(spec.GetSlots()),
		Use: useFrom(m.GetSlots()), Results: m.GetResults(), Resent: m.GetResent(), Wrapped: m.GetWrapped(),
		Missing: ranks(m.GetMissing()), NeverCame: ranks(m.GetNeverCame()), NeverReg: ranks(m.GetNeverRegistered()), NeverSent: ranks(m.GetNeverSent()),
		Origin: originName(m.GetOrigin()), Generation: m.GetGeneration(),
		Members: []Worker{}, Completions: completionsFrom(m.GetCompletions()),
	}
	if n := spec.GetNative(); n != nil {
		j.Native = &Native{
			Number: n.GetNumber(), Type: n.GetType(), Op: n.GetOp(), Order: n.GetOrder(), Policy: n.GetPolicy(),
			Codec: n.GetCodec(), Result: n.GetResultCodec(),
			DeadlineS: n.GetDeadline().AsDuration().Seconds(), Multicast: n.GetMulticast(), Tagged: n.GetTagged(),
			Epoch: m.GetNative().GetEpoch(), State: m.GetNative().GetState(), Ranks: ranks(m.GetNative().GetRanks()),
		}
	}
	if m.GetInstalled() != nil {
		t := m.GetInstalled().AsTime()
		j.Installed = &t
	}
	if m.GetLease() != nil {
		seconds, t := m.GetLease().AsDuration().Seconds(), m.GetExpires().AsTime()
		j.Lease, j.Expires = &seconds, &t
	}
	for _, w := range m.GetWorkers() {
		doc := Worker{
			Job: j.Name, Member: memberFrom(w.GetSpec()), Joined: w.GetJoined(),
			Received: w.GetReceived(), Contributed: w.GetContributed(), Duplicates: w.GetDuplicates(), Sent: w.GetTransmitted(),
			Resent: w.GetResent(), Last: w.GetLast(),
		}
		if w.GetMissingSince() != nil {
			t := w.GetMissingSince().AsTime()
			doc.Missing = &t
		}
		if w.GetLastSeen() != nil {
			t := w.GetLastSeen().AsTime()
			doc.LastSeen = &t
		}
		if doc.Joined {
			j.Joined++
		}
		j.Members = append(j.Members, doc)
	}
	return j
}

// JobsFrom makes the documents from the API's message.
func JobsFrom(m *apiv1.ListJobsResponse) []Job {
	jobs := make([]Job, 0, len(m.GetJobs()))
	for _, j := range m.GetJobs() {
		jobs = append(jobs, JobFrom(j))
	}
	return jobs
}

// WorkersOf lists the workers of all jobs.
func WorkersOf(jobs []Job) []Worker {
	workers := []Worker{}
	for _, j := range jobs {
		workers = append(workers, j.Members...)
	}
	return workers
}

// PoolsFrom makes the documents from the API's message.
func PoolsFrom(m *apiv1.ListSlotsResponse) []Pool {
	pools := make([]Pool, 0, len(m.GetPools()))
	for _, p := range m.GetPools() {
		pools = append(pools, Pool{
			Job: p.GetJob(), Slots: int(p.GetSlots()), Elements: int(p.GetElements()),
			Use: useFrom(p.GetUse()), Missing: ranks(p.GetMissing()),
		})
	}
	return pools
}

// GroupsFrom makes the documents from the API's message.
func GroupsFrom(m *apiv1.ListGroupsResponse) []Group {
	groups := make([]Group, 0, len(m.GetGroups()))
	for _, g := range m.GetGroups() {
		doc := Group{Job: g.GetJob(), Size: int(g.GetSize()), Members: []Member{}, Multicast: g.GetMulticast()}
		for _, w := range g.GetMembers() {
			doc.Members = append(doc.Members, memberFrom(w))
		}
		groups = append(groups, doc)
	}
	return groups
}

// PortsFrom makes the documents from the API's message.
func PortsFrom(m *apiv1.ListPortsResponse) []Port {
	ports := make([]Port, 0, len(m.GetPorts()))
	for _, p := range m.GetPorts() {
		var queues []dataplane.KernelStatistics
		for _, k := range p.GetQueueKernel() {
			queues = append(queues, kernelFrom(k))
		}
		ports = append(ports, Port{
			PortSnapshot: dataplane.PortSnapshot{
				Name: p.GetName(), Kind: p.GetKind(), Index: int(p.GetIndex()), Mode: p.GetMode(), ZeroCopy: p.GetZeroCopy(),
				Sockets: p.GetSockets(), NoNative: p.GetNoNative(), QueueKernel: queues,
				Function: p.GetFunction(), Queues: int(p.GetQueues()),
				State: dataplane.PortState(p.GetState()), Why: p.GetWhy(), Rebuilds: p.GetRebuilds(),
				Rings: ringsFrom(p.GetRings()), PerQueue: queuesFrom(p.GetPerQueue()),
				Counters: countersFrom(p.GetCounters()), Kernel: kernelFrom(p.GetKernel()), Steering: drops(p.GetSteering()),
				Budgets: budgetsFrom(p.GetBudgets()),
			},
			Impairment: impairmentFrom(p.GetImpairment()),
		})
	}
	return ports
}

// QueuesOf takes the queues out of the ports.
func QueuesOf(ports []Port) []Queue {
	queues := []Queue{}
	for i := range ports {
		p := &ports[i]
		for _, q := range p.PerQueue {
			doc := Queue{Port: p.Name, QueueSnapshot: q}
			if q.Queue < len(p.QueueKernel) {
				doc.Kernel = &p.QueueKernel[q.Queue]
			}
			queues = append(queues, doc)
		}
	}
	return queues
}

// LanesFrom makes the documents from the API's message.
func LanesFrom(m *apiv1.ListLanesResponse) []dataplane.LaneSnapshot {
	lanes := make([]dataplane.LaneSnapshot, 0, len(m.GetLanes()))
	for _, l := range m.GetLanes() {
		lanes = append(lanes, dataplane.LaneSnapshot{
			Lane: int(l.GetIndex()), CPU: int(l.GetCpu()), Counters: countersFrom(l.GetCounters()), Frames: framesFrom(l.GetFrames()),
			HandedOut: l.GetHandedOut(), HandedIn: l.GetHandedIn(), Time: laneTimeFrom(l.GetTime()),
		})
	}
	return lanes
}

// CountersFrom makes the document from the API's message.
func CountersFrom(m *apiv1.GetCountersResponse) Counters {
	return Counters{
		Taken: m.GetTaken().AsTime(), Counters: countersFrom(m.GetCounters()), Frames: framesFrom(m.GetFrames()),
		Kernel: kernelFrom(m.GetKernel()), Fault: m.GetFault(),
	}
}

// DropsOf takes the losses out of the counters, and out of the ports what steering left to the kernel.
func DropsOf(c Counters, ports []Port) Drops {
	d := Drops{Drops: c.Counters.Drops, ReplicaDrops: c.Counters.ReplicaDrops, Kernel: c.Kernel, Steering: map[string]uint64{}, Budgets: map[string]uint64{}}
	for i := range ports {
		for _, b := range ports[i].Budgets {
			if b.Dropped > 0 {
				d.Budgets[b.Name] += b.Dropped
			}
		}
		for _, v := range suspect {
			if n := ports[i].Steering[v.String()]; n > 0 {
				d.Steering[v.String()] += n
			}
		}
	}
	return d
}

func memberFrom(m *apiv1.WorkerSpec) Member {
	return Member{Rank: int(m.GetRank()), MAC: m.GetMac(), IP: m.GetIpv4(), Port: m.GetPort()}
}

func useFrom(m *apiv1.SlotUse) dataplane.SlotStatus {
	return dataplane.SlotStatus{Total: int(m.GetTotal()), InUse: int(m.GetInUse()), Complete: int(m.GetComplete()), Waiting: int(m.GetWaiting())}
}

func ranks(in []uint32) []int {
	out := make([]int, 0, len(in))
	for _, r := range in {
		out = append(out, int(r))
	}
	return out
}

func protocolName(p apiv1.Protocol) string {
	switch p {
	case apiv1.Protocol_PROTOCOL_SWITCHML:
		return dataplane.ProtocolSwitchML
	case apiv1.Protocol_PROTOCOL_NATIVE:
		return dataplane.ProtocolNative
	}
	return "unknown"
}

func originName(o apiv1.Origin) string {
	switch o {
	case apiv1.Origin_ORIGIN_API:
		return "api"
	case apiv1.Origin_ORIGIN_SWITCHML:
		return "switchml"
	}
	return "unknown"
}

func drops(in []*apiv1.Drop) map[string]uint64 {
	out := make(map[string]uint64, len(in))
	for _, d := range in {
		out[d.GetReason()] = d.GetCount()
	}
	return out
}

func countersFrom(m *apiv1.Counters) dataplane.Counters {
	return dataplane.Counters{
		Received: m.GetReceived(), Injected: m.GetInjected(), Contributed: m.GetContributed(), Duplicates: m.GetDuplicates(),
		Answered: m.GetAnswered(), Passed: m.GetPassed(), InFlight: m.GetInFlight(), Drops: drops(m.GetDrops()),
		Results: m.GetResults(), Resent: m.GetResent(), Wrapped: m.GetWrapped(),
		Replicas: m.GetReplicas(), ReplicaDrops: drops(m.GetReplicaDrops()),
		Transmitted: m.GetTransmitted(), Completed: m.GetCompleted(),
		Batches: m.GetBatches(), Kicks: m.GetKicks(), Sleeps: m.GetSleeps(), Reclaimed: m.GetReclaimed(),
	}
}

func framesFrom(m *apiv1.Frames) dataplane.Frames {
	return dataplane.Frames{Total: m.GetTotal(), Free: m.GetFree(), Fill: m.GetFill(), Transmit: m.GetTransmit(), Handoff: m.GetHandoff(), Held: m.GetHeld()}
}

func kernelFrom(m *apiv1.KernelCounters) dataplane.KernelStatistics {
	return dataplane.KernelStatistics{
		RxDropped: m.GetRxDropped(), RxInvalid: m.GetRxInvalidDescs(), TxInvalid: m.GetTxInvalidDescs(),
		RxRingFull: m.GetRxRingFull(), FillRingEmpty: m.GetFillRingEmpty(), TxRingEmpty: m.GetTxRingEmpty(),
		StatisticsError: m.GetError(),
	}
}

func impairmentFrom(m *apiv1.Impairment) *dataplane.Impairment {
	if m == nil {
		return nil
	}
	return &dataplane.Impairment{
		IngressLoss: m.GetIngressLoss(), EgressLoss: m.GetEgressLoss(), EgressTogether: m.GetEgressTogether(),
		DropIngress: m.GetDropIngress(), DropEgress: m.GetDropEgress(),
		Duplicate: m.GetDuplicate(), Reorder: m.GetReorder(), ReorderBy: int(m.GetReorderBy()),
		ReorderHold: m.GetReorderHold().AsDuration(), Seed: m.GetSeed(),
	}
}
