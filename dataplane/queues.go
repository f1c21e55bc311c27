package dataplane

import (
	"cmp"
	"fmt"
	"slices"
	"sync/atomic"
)

// Counters of one queue on its lane, since the NIC started.
const (
	qReceived    = iota // frames
	qBatches            // receive batches that were not empty
	qTransmitted        // frames
	qCompleted          // chunks
	qFill               // chunks posted to receive into, and not back: gauge
	qSending            // chunks posted to be sent, and not back: gauge
	numQueueCounters
)

type queueCounts [numQueueCounters]uint64

// QueueSnapshot is one queue's share of its port's counters. Counts go on when the port gets new sockets.
type QueueSnapshot struct {
	Queue int `json:"queue"`
	Lane  int `json:"lane"`
	// Received and Transmitted are frames, Completed chunks, Batches the receive batches that were not empty.
	Received    uint64 `json:"received"`
	Batches     uint64 `json:"batches"`
	Transmitted uint64 `json:"transmitted"`
	Completed   uint64 `json:"completed"`
	Rings
}

// publishedQueue is where a queue's counters can be read, in the place that published describes.
type publishedQueue struct {
	port, number int
	counts       [numQueueCounters]atomic.Uint64
}

// queueState is a copy of it.
type queueState struct {
	port, number int
	counts       queueCounts
}

// retireCounts keeps what the queues of a port have counted until there are queues of these numbers again.
func (l *lane) retireCounts(port int) {
	for i := range l.queues {
		if q := &l.queues[i]; q.port == port {
			c := q.counts
			c[qFill], c[qSending] = 0, 0
			l.pastQueues = append(l.pastQueues, queueState{port, q.number, c})
		}
	}
}

// resumeCounts are the counters that a new queue goes on from.
func (l *lane) resumeCounts(port, number int) (c queueCounts) {
	for i, q := range l.pastQueues {
		if q.port == port && q.number == number {
			l.pastQueues = slices.Delete(l.pastQueues, i, i+1)
			return q.counts
		}
	}
	return c
}

// renew makes room for the counters of other queues. Those of past ones stay as they are.
func (p *published) renew(queues []laneQueue, past []queueState) {
	room := make([]publishedQueue, len(queues), len(queues)+len(past))
	for i := range queues {
		room[i].port, room[i].number = queues[i].port, queues[i].number
	}
	for _, q := range past {
		room = append(room, publishedQueue{port: q.port, number: q.number})
		for j, v := range q.counts {
			room[len(room)-1].counts[j].Store(v)
		}
	}
	p.seq.Add(1)
	p.queues.Store(&room)
	p.storeQueues(queues)
	p.seq.Add(1)
}

// storeQueues is a part of store.
func (p *published) storeQueues(queues []laneQueue) {
	room := *p.queues.Load()
	for i := range queues {
		q := &queues[i]
		q.counts[qFill], q.counts[qSending] = uint64(q.filled), uint64(q.sending)
		for j, v := range q.counts {
			if to := &room[i].counts[j]; to.Load() != v {
				to.Store(v)
			}
		}
	}
}

// loadQueues is a part of load.
func (p *published) loadQueues(out []queueState) []queueState {
	room := p.queues.Load()
	if room == nil {
		return out
	}
	for i := range *room {
		from := &(*room)[i]
		s := queueState{port: from.port, number: from.number}
		for j := range s.counts {
			s.counts[j] = from.counts[j].Load()
		}
		out = append(out, s)
	}
	return out
}

func (q *queueState) snapshot(lane int) QueueSnapshot {
	c := &q.counts
	return QueueSnapshot{
		Queue: q.number, Lane: lane, Received: c[qReceived], Batches: c[qBatches], Transmitted: c[qTransmitted], Completed: c[qCompleted],
		Rings: Rings{Fill: c[qFill], Transmit: c[qSending]},
	}
}

// perQueue sorts the queues of a port that the lanes told of, and says how full their rings may be.
func (n *NIC) perQueue(p *port, queues []QueueSnapshot) []QueueSnapshot {
	slices.SortFunc(queues, func(a, b QueueSnapshot) int { return cmp.Compare(a.Queue, b.Queue) })
	if p.open != nil && len(p.open.queues) > 0 {
		for i := range queues {
			queues[i].FillMost, queues[i].TransmitMost = n.ringMost(p.open), n.ringMost(p.open)
		}
	}
	return queues
}

// checkQueues verifies that the counts of the queues add up to the port's.
func (p *PortSnapshot) checkQueues() error {
	var sum QueueSnapshot
	for i := range p.PerQueue {
		q := &p.PerQueue[i]
		sum.Received += q.Received
		sum.Batches += q.Batches
		sum.Transmitted += q.Transmitted
		sum.Completed += q.Completed
		sum.Fill += q.Fill
		sum.Transmit += q.Transmit
	}
	want := QueueSnapshot{Received: p.Received, Batches: p.Batches, Transmitted: p.Transmitted, Completed: p.Completed}
	want.Fill, want.Transmit = p.Rings.Fill, p.Rings.Transmit
	if sum != want {
		return fmt.Errorf("queues of port %s: together %+v, the port has %+v", p.Name, sum, want)
	}
	return nil
}
