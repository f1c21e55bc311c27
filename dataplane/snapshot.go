package dataplane

import (
	"fmt"
	"time"

	"gradnic/xdp"
)

// Counters are the counts of a NIC, a lane or a port since it started. Verdicts (Contributed to Drops) are counted
// under the port that the frame came in by; Replicas and what follows under the port that a frame leaves by.
type Counters struct {
	// Received is the number of frames taken from receive rings.
	Received uint64 `json:"received"`
	// Injected is the number of copies that an impairment made of received frames.
	Injected uint64 `json:"injected"`
	// Contributed is the number of frames whose values were added to a slot.
	Contributed uint64 `json:"contributed"`
	// Duplicates is the number of frames of a contribution that had been seen before.
	Duplicates uint64 `json:"duplicates"`
	// Answered is the number of ARP requests and ICMP echo requests that were answered.
	Answered uint64 `json:"answered"`
	// Passed is the number of frames that were reflected, forwarded, sunk or taken by a service.
	Passed uint64 `json:"passed"`
	// InFlight is the number of frames between two lanes or delayed by an impairment. Zero for a port.
	InFlight uint64 `json:"in_flight"`
	// Drops has the number of dropped frames by reason; reasons that never happened are left out.
	Drops map[string]uint64 `json:"drops"`

	// Results is the number of slots that were completed; Resent the number of results sent again to one
	// worker that asked again for a complete slot. Wrapped counts elements that overflowed.
	Results uint64 `json:"results"`
	Resent  uint64 `json:"resent"`
	Wrapped uint64 `json:"wrapped"`

	// Replicas is the number of copies of results, and of frames made by services, that were to be sent; ReplicaDrops those that were not, by reason.
	Replicas     uint64            `json:"replicas"`
	ReplicaDrops map[string]uint64 `json:"replica_drops"`
	// Transmitted is the number of frames posted to transmit rings. Completed is the number of chunks that came back:
	// a frame larger than a chunk has several.
	Transmitted uint64 `json:"transmitted"`
	Completed   uint64 `json:"completed"`
	// Reclaimed is the number of frames that were posted and neither reported sent nor not, when their socket was
	// closed because its netdev was gone or had changed.
	Reclaimed uint64 `json:"reclaimed"`

	// Batches is the number of non-empty receive batches.
	Batches uint64 `json:"batches"`
	// Kicks is the number of times that the kernel was asked to transmit.
	Kicks uint64 `json:"kicks"`
	// Sleeps is the number of times that a lane went to sleep. Zero for a port.
	Sleeps uint64 `json:"sleeps"`
}

// Frames says where the frames are: the ledger of promise 1.
type Frames struct {
	Total    uint64 `json:"total"`    // chunks of the area
	Free     uint64 `json:"free"`     // in the lanes' free stacks
	Fill     uint64 `json:"fill"`     // posted to fill rings and not received yet
	Transmit uint64 `json:"transmit"` // posted to transmit rings and not completed yet
	Handoff  uint64 `json:"handoff"`  // between two lanes, either way
	Held     uint64 `json:"held"`     // in a lane's hands: delayed by an impairment
}

// Sum is the number of frames that are in a known place.
func (f Frames) Sum() uint64 { return f.Free + f.Fill + f.Transmit + f.Handoff + f.Held }

// LaneSnapshot is what one lane published last.
type LaneSnapshot struct {
	Lane int `json:"lane"`
	CPU  int `json:"cpu"` // -1 when not pinned
	Counters
	// HandedOut is the number of frames given to the lanes that own their slots, HandedIn those taken from other
	// lanes. A frame's verdict is counted by the lane that ends up with it.
	HandedOut uint64 `json:"handed_out"`
	HandedIn  uint64 `json:"handed_in"`
	Frames    Frames `json:"frames"`
	// Time is what the lane did with its time, Stages where its frames went.
	Time   LaneTime        `json:"time"`
	Stages []StageSnapshot `json:"stages,omitempty"`
}

// PortSnapshot is one port's share.
type PortSnapshot struct {
	Name  string `json:"name"`
	Kind  string `json:"kind"` // xdp, mem or pcap
	Index int    `json:"index"`
	// Mode is native or generic for an xdp port, empty otherwise. ZeroCopy is true when the driver has it.
	Mode     string `json:"mode,omitempty"`
	ZeroCopy bool   `json:"zero_copy,omitempty"`
	// Sockets is how the sockets of an xdp port are bound: "copy need-wakeup tx-budget=256 anchored". NoNative is why a
	// program that was to run in the driver if it can does not; empty when it does, or was not to.
	Sockets  string `json:"sockets,omitempty"`
	NoNative string `json:"no_native,omitempty"`
	Function string `json:"function"`
	Queues   int    `json:"queues"`
	// State is up, down, rebuilding or broken; Why says why it is not up. Rebuilds counts how often the port got
	// new sockets.
	State    PortState `json:"state"`
	Why      string    `json:"why,omitempty"`
	Rebuilds uint64    `json:"rebuilds"`
	// Rings says how full the port's rings are, over all queues.
	Rings Rings `json:"rings"`
	Counters
	// Kernel has the kernel's own statistics of the port's sockets, summed. They count what was lost before
	// it was received, and are shown beside the drops, never in them.
	Kernel KernelStatistics `json:"kernel"`
	// PerQueue has each queue's share of Received, Batches, Transmitted, Completed and Rings, in the order of the queues.
	// Queues that the netdev no longer has are among them, without rings.
	PerQueue []QueueSnapshot `json:"per_queue"`
	// QueueKernel has the kernel's statistics of each queue since its socket was opened, in the same order. Empty for other
	// kinds of ports, and while there are no sockets.
	QueueKernel []KernelStatistics `json:"queue_kernel,omitempty"`
	// Steering has the frames that the steering program saw, by its verdict; verdicts that never happened are
	// left out. Empty for other kinds of ports.
	Steering map[string]uint64 `json:"steering,omitempty"`
	// Budgets has what was charged to each packet budget: strays first, then by name. Empty when none are set.
	Budgets []BudgetSnapshot `json:"budgets,omitempty"`
}

// KernelStatistics are the sums over a port's sockets (getsockopt XDP_STATISTICS); for a mem port RxDropped counts
// the frames that its wire end gave up to send.
type KernelStatistics struct {
	RxDropped       uint64 `json:"rx_dropped"`
	RxInvalid       uint64 `json:"rx_invalid_descs"`
	TxInvalid       uint64 `json:"tx_invalid_descs"`
	RxRingFull      uint64 `json:"rx_ring_full"`
	FillRingEmpty   uint64 `json:"fill_ring_empty"`
	TxRingEmpty     uint64 `json:"tx_ring_empty"`
	StatisticsError string `json:"error,omitempty"`
}

// Add adds the counts of other sockets.
func (k *KernelStatistics) Add(o KernelStatistics) {
	k.RxDropped += o.RxDropped
	k.RxInvalid += o.RxInvalid
	k.TxInvalid += o.TxInvalid
	k.RxRingFull += o.RxRingFull
	k.FillRingEmpty += o.FillRingEmpty
	k.TxRingEmpty += o.TxRingEmpty
}

func (k *KernelStatistics) add(s xdp.Statistics) {
	k.RxDropped += s.RxDropped
	k.RxInvalid += s.RxInvalidDescs
	k.TxInvalid += s.TxInvalidDescs
	k.RxRingFull += s.RxRingFull
	k.FillRingEmpty += s.RxFillRingEmpty
	k.TxRingEmpty += s.TxRingEmpty
}

// Snapshot is the NIC's counters at one time. Each lane's part is consistent in itself; sums over lanes are exact
// when no traffic runs.
type Snapshot struct {
	Taken time.Time `json:"taken"`
	Total Counters  `json:"total"`
	// Frames is the ledger over all lanes.
	Frames Frames         `json:"frames"`
	Lanes  []LaneSnapshot `json:"lanes"`
	Ports  []PortSnapshot `json:"ports"`
	// Stages are the sums over the lanes.
	Stages []StageSnapshot `json:"stages"`
}

// Dropped is the sum of Drops over all reasons.
func (c *Counters) Dropped() uint64 { return sumReasons(c.Drops) }

// ReplicasDropped is the sum of ReplicaDrops over all reasons.
func (c *Counters) ReplicasDropped() uint64 { return sumReasons(c.ReplicaDrops) }

func sumReasons(m map[string]uint64) (n uint64) {
	for _, v := range m {
		n += v
	}
	return n
}

// Accounted is the number of frames that have a verdict or are in flight.
func (c *Counters) Accounted() uint64 {
	return c.Contributed + c.Duplicates + c.Answered + c.Passed + c.InFlight + c.Dropped()
}

// Check verifies the promises of accounting: every frame is in exactly one place, every received frame (and every
// injected copy) has exactly one verdict, and every frame that was to be sent was posted or dropped under a
// reason. It holds whenever no traffic runs, and for a single lane always.
func (s *Snapshot) Check() error {
	if got := s.Frames.Sum(); got != s.Frames.Total {
		return fmt.Errorf("frames: %d in known places, %d exist: %+v", got, s.Frames.Total, s.Frames)
	}
	t := &s.Total
	if in, out := t.Received+t.Injected, t.Accounted(); in != out {
		return fmt.Errorf("verdicts: %d frames received and %d injected, %d accounted for: %+v", t.Received, t.Injected, out, *t)
	}
	if t.Replicas < t.ReplicasDropped() {
		return fmt.Errorf("replicas: %d wanted, %d dropped", t.Replicas, t.ReplicasDropped())
	}
	if lo, hi := t.Answered+t.Replicas-t.ReplicasDropped(), t.Answered+t.Passed+t.Replicas-t.ReplicasDropped(); t.Transmitted < lo || t.Transmitted > hi {
		return fmt.Errorf("transmit: %d posted, at least %d and at most %d were to be", t.Transmitted, lo, hi)
	}
	for i := range s.Ports {
		if err := s.Ports[i].checkQueues(); err != nil {
			return err
		}
	}
	return nil
}

// Snapshot reads the counters. It does not disturb the lanes.
func (n *NIC) Snapshot() Snapshot {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.state == stopped && !n.last.Taken.IsZero() {
		return n.last
	}
	return n.snapshot()
}

// snapshot is Snapshot with n.mu held.
func (n *NIC) snapshot() Snapshot {
	s := Snapshot{Taken: time.Now()}
	ports, queues := make([]portCounts, len(n.ports)), make([][]QueueSnapshot, len(n.ports))
	for i := range queues {
		queues[i] = []QueueSnapshot{} // an empty list in JSON, not null
	}
	var total portCounts
	var sum [numLaneCounters]uint64
	for _, l := range n.lanes {
		var lc [numLaneCounters]uint64
		pc := make([]portCounts, len(n.ports))
		for _, q := range l.pub.load(&lc, pc) {
			queues[q.port] = append(queues[q.port], q.snapshot(l.id))
		}
		var all portCounts
		for i := range pc {
			all.add(&pc[i])
			ports[i].add(&pc[i])
		}
		total.add(&all)
		for i := range sum {
			sum[i] += lc[i]
		}
		ls := LaneSnapshot{Lane: l.id, CPU: l.cpu, Counters: all.counters()}
		ls.Sleeps, ls.HandedOut, ls.HandedIn = lc[lSleeps], lc[lHandedOut], lc[lHandedIn]
		ls.InFlight = lc[lHeld]
		ls.Time, ls.Stages = timeOf(&lc, int64(s.Taken.Sub(n.epoch))), stagesOf(&lc)
		ls.Frames = frames(&all, &lc)
		ls.Frames.Handoff = 0
		for i := range l.peers {
			if i != l.id {
				ls.InFlight += uint64(l.peers[i].frames.len())
				ls.Frames.Handoff += uint64(l.peers[i].frames.len() + l.peers[i].home.len())
			}
		}
		ls.Frames.Total = uint64(l.chunks)
		s.Frames.Total += ls.Frames.Total
		s.Lanes = append(s.Lanes, ls)
	}
	s.Total = total.counters()
	s.Total.Sleeps = sum[lSleeps]
	s.Stages = stagesOf(&sum)
	s.Total.InFlight = sum[lHeld] + sum[lHandedOut] - sum[lHandedIn]
	f := frames(&total, &sum)
	f.Total = s.Frames.Total
	s.Frames = f
	for i, p := range n.ports {
		ps := PortSnapshot{Name: p.name, Kind: p.kind, Index: i, Function: p.function.String(), Counters: ports[i].counters()}
		ps.Rings = n.rings(p, &ports[i])
		ps.PerQueue = n.perQueue(p, queues[i])
		n.askPort(p, &ps)
		s.Ports = append(s.Ports, ps)
	}
	return s
}

// frames is the ledger that the counters tell.
func frames(c *portCounts, l *[numLaneCounters]uint64) Frames {
	return Frames{
		Free:     l[lFree],
		Fill:     c[cFillPosted] - c[cReceived] - c[cRxPieces],
		Transmit: c[cTransmitted] + c[cTxPieces] - c[cCompleted] - c[cReclaimed] - l[lShared],
		Handoff:  l[lHandedOut] - l[lHandedIn] + l[lPiecesOut] - l[lPiecesIn] + l[lHomeOut] - l[lHomeIn],
		Held:     l[lHeld] + l[lPieces],
	}
}

// askPort adds what only the open port knows.
func (n *NIC) askPort(p *port, ps *PortSnapshot) {
	o := p.open
	if o == nil {
		return
	}
	ps.State, ps.Why, ps.Rebuilds = p.state, p.why, p.rebuilds
	ps.Mode, ps.ZeroCopy, ps.Queues = o.mode, o.zeroCopy, len(o.queues)
	ps.Sockets, ps.NoNative = o.sockets, o.noNative
	ps.Kernel = p.pastKernel
	ps.Budgets = p.spent()
	steering := p.pastSteering
	if o.statistics != nil {
		k, err := o.statistics()
		if err != nil {
			ps.Kernel.StatisticsError = err.Error()
		}
		ps.Kernel.Add(k)
	}
	if o.perQueue != nil {
		if q, err := o.perQueue(); err == nil {
			ps.QueueKernel = q
		}
	}
	if o.steering != nil {
		if c, err := o.steering(); err == nil {
			for v, k := range c {
				steering[v] += k
			}
		}
	}
	for v, k := range steering {
		if k != 0 {
			if ps.Steering == nil {
				ps.Steering = map[string]uint64{}
			}
			ps.Steering[xdp.Verdict(v).String()] = k
		}
	}
}
