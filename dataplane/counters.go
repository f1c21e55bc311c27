package dataplane

import "sync/atomic"

// Counters of one port on one lane. Drops are indexed by reason behind the fixed ones.
const (
	cReceived = iota
	cInjected
	cContributed
	cDuplicates
	cAnswered
	cPassed
	cResults
	cResent
	cWrapped
	cReplicas
	cTransmitted
	cCompleted
	cBatches
	cKicks
	cFillPosted
	cReclaimed
	cRxPieces // descriptors received that were not the last of their frame
	cTxPieces // the same of those posted
	cDrops
	cReplicaDrops = cDrops + numReasons
	numCounters   = cReplicaDrops + numReasons
)

type portCounts [numCounters]uint64

// Counters of a lane beside those of its ports.
const (
	lHandedOut = iota // frames given to other lanes
	lHandedIn         // frames taken from other lanes
	lHomeOut          // other lanes' chunks sent home
	lHomeIn           // own chunks come home
	lHeld             // frames delayed by impairments
	lPieces           // more pieces of those, and of chains of which the last has not come
	lPiecesOut        // pieces handed over that were not the last of their frame
	lPiecesIn
	lFree   // length of the free stack
	lShared // posts of shared chunks beyond one each: gauge
	lSleeps
	lStarted        // ns since the NIC was made: gauge
	lAsleep         // when the sleep began, 0 when awake: gauge
	lBusy           // ns
	lSlept          // ns
	lStages         // stageWords for each stage
	numLaneCounters = lStages + numStages*stageWords
)

// published is where a lane's counters can be read. One writer; readers copy until the sequence is even and the
// same before and after, so that a copy is one moment of the lane.
type published struct {
	seq    atomic.Uint64
	lane   [numLaneCounters]atomic.Uint64
	ports  [][numCounters]atomic.Uint64
	queues atomic.Pointer[[]publishedQueue] // another slice when the lane gets other queues
}

func newPublished(ports int) *published {
	return &published{ports: make([][numCounters]atomic.Uint64, ports)}
}

// store publishes the counters; only what changed is written.
func (p *published) store(lane *[numLaneCounters]uint64, ports []portCounts, queues []laneQueue) {
	p.seq.Add(1)
	for i := range lane {
		if v := lane[i]; p.lane[i].Load() != v {
			p.lane[i].Store(v)
		}
	}
	for i := range ports {
		from, to := &ports[i], &p.ports[i]
		for j := range from {
			if v := from[j]; to[j].Load() != v {
				to[j].Store(v)
			}
		}
	}
	p.storeQueues(queues)
	p.seq.Add(1)
}

// load copies the counters of one moment, and returns those of the lane's queues. It yields to a lane that is publishing
// just now.
func (p *published) load(lane *[numLaneCounters]uint64, ports []portCounts) (queues []queueState) {
	for {
		s := p.seq.Load()
		if s&1 == 0 {
			for i := range lane {
				lane[i] = p.lane[i].Load()
			}
			for i := range ports {
				for j := range ports[i] {
					ports[i][j] = p.ports[i][j].Load()
				}
			}
			queues = p.loadQueues(queues[:0])
			if p.seq.Load() == s {
				return queues
			}
		}
		yield()
	}
}

// counters turns one port's counts into the public form. Transmitted and what follows belong to the same port
// as egress.
func (c *portCounts) counters() Counters {
	return Counters{
		Received:     c[cReceived],
		Injected:     c[cInjected],
		Contributed:  c[cContributed],
		Duplicates:   c[cDuplicates],
		Answered:     c[cAnswered],
		Passed:       c[cPassed],
		Drops:        byReason(c[cDrops : cDrops+numReasons]),
		Results:      c[cResults],
		Resent:       c[cResent],
		Wrapped:      c[cWrapped],
		Replicas:     c[cReplicas],
		ReplicaDrops: byReason(c[cReplicaDrops : cReplicaDrops+numReasons]),
		Transmitted:  c[cTransmitted],
		Completed:    c[cCompleted],
		Reclaimed:    c[cReclaimed],
		Batches:      c[cBatches],
		Kicks:        c[cKicks],
	}
}

func byReason(counts []uint64) map[string]uint64 {
	m := map[string]uint64{}
	for r, n := range counts {
		if n != 0 {
			m[Reason(r).String()] += n
		}
	}
	return m
}

func (c *portCounts) add(o *portCounts) {
	for i := range c {
		c[i] += o[i]
	}
}
