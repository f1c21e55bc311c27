package dataplane

import (
	"gradnic/aggregation"
	"gradnic/aggregation/kernel"
	"gradnic/wire/inet"
	"gradnic/wire/switchml"
)

const (
	slotOutOfRange = reasonOutcome + Reason(aggregation.InvalidSlot)
	// valuesSize holds the values of the largest result.
	valuesSize = 4 * switchml.MaxElements
	// fetchAhead is how many messages before its turn a message's values are asked for: 2 was the best of 1 to 8.
	fetchAhead = 2
)

// aggregate adds the messages of the batch to their slots and makes the results.
func (l *lane) aggregate() {
	b := &l.batch
	if b.ntold > 0 {
		l.summedFrames()
	}
	c := &l.contrib
	for k, s := range b.sel[:b.nsel] {
		if ahead := k + fetchAhead; ahead < b.nsel {
			kernel.Prefetch(b.view[b.sel[ahead]].Values())
		}
		i := int(s)
		j := b.job[i]
		v := b.view[i]
		w := &j.workers[b.rank[i]]
		port := int(b.port[i])
		count := &l.counts[port]

		w.received++
		w.lastSeen = l.now
		if !w.joined {
			l.join(j, w, int(b.rank[i]), port)
		}
		c.Slot = v.Slot()
		if len(l.lanes) > 1 {
			c.Slot /= len(l.lanes)
		}
		c.Set = v.Set()
		c.Worker = int(b.rank[i])
		c.Exponents[0], c.Exponents[1] = v.Exponents()
		c.Values = v.Values()

		switch o := j.pool.Contribute(c, l.now, l.values[:j.frameLen-switchml.ValuesOffset]); o {
		case aggregation.Added:
			w.contributed++
			count[cContributed]++
		case aggregation.Completed:
			w.contributed++
			count[cContributed]++
			count[cResults]++
			j.complete(w, l.now, j.pool.Started(c.Slot, c.Set))
			l.broadcast(j, i, port)
		case aggregation.Answered:
			w.duplicates++
			count[cDuplicates]++
			count[cResent]++
			j.resent++
			w.resent++
			l.resend(j, i, port)
		case aggregation.Duplicate:
			w.duplicates++
			count[cDuplicates]++
		default:
			count[cDrops+int(reasonOutcome)+int(o)]++
			l.sawFrameDrop(i, reasonOutcome+Reason(o))
		}
		if n := j.pool.Wrapped(); n != j.wrapped {
			count[cWrapped] += n - j.wrapped
			j.wrapped = n
		}
		l.freeFrame(i)
	}
}

// broadcast sends a copy of the result to each receiver of the job's group. ingress is the port of the message that
// completed the slot, and i its number in the batch.
func (l *lane) broadcast(j *laneJob, i, ingress int) {
	copies := j.copies
	lost := j.receivers - len(copies) // their port is not known
	if im := l.ports[ingress].impair; im != nil && im.EgressTogether && im.dropEgress() {
		for k := range copies {
			l.lostReplica(copies[k].Port, ImpairedEgress)
		}
		copies = nil
	}
	for ; lost > 0; lost-- {
		l.lostReplica(ingress, PortUnknown)
	}
	if len(copies) == 0 {
		return
	}
	if j.layout != nil {
		l.broadcastLayout(j, i, copies)
		return
	}
	t, udp := l.replyTemplate(j, i)
	payload, shared := l.sharedValues(j, len(copies))
	for k := range copies {
		c := &copies[k]
		port := c.UDPPort
		if port == 0 {
			port = udp
		}
		l.replicate(j, &t, payload, c.Port, c.MAC, c.IP, port, int(c.Rank))
	}
	if shared {
		l.release(payload.Addr)
	}
}

// sharedValues puts a result's values into a chunk that its copies share, where they do; ok is false where they do not, or
// there is no chunk.
func (l *lane) sharedValues(j *laneJob, copies int) (d Desc, ok bool) {
	n := j.frameLen - switchml.ValuesOffset
	if copies < 2 || !l.shares(n) {
		return Desc{}, false
	}
	addr, ok := l.take()
	if !ok {
		return Desc{}, false
	}
	copy(l.area[addr:addr+uint64(n)], l.values[:n])
	return Desc{Addr: addr, Len: uint32(n)}, true
}

// resend sends the result once more to one worker, out of the port that its message came in by.
func (l *lane) resend(j *laneJob, i, ingress int) {
	if im := l.ports[ingress].impair; im != nil && im.EgressTogether && im.dropEgress() {
		l.lostReplica(ingress, ImpairedEgress)
		return
	}
	if j.layout != nil {
		l.resendLayout(j, i, ingress)
		return
	}
	t, udp := l.replyTemplate(j, i)
	p := &l.batch.pkt[i]
	l.replicate(j, &t, Desc{}, ingress, p.Src, p.SrcIP, udp, int(l.batch.rank[i]))
}

// lostReplica counts a copy that will not be sent.
func (l *lane) lostReplica(port int, r Reason) {
	l.counts[port][cReplicas]++
	l.counts[port][cReplicaDrops+int(r)]++
	l.sawDrop(port, Desc{}, nil, r)
}

// reply is what all copies of a result say. As the P4 program does, the UDP ports of the message that completed the slot are
// swapped, and its job number and packet number are echoed.
func (l *lane) reply(j *laneJob, i int) switchml.Reply {
	p, v := &l.batch.pkt[i], l.batch.view[i]
	e0, e1 := v.Exponents()
	if !j.summed {
		e0, e1 = j.pool.Exponents(l.contrib.Slot, l.contrib.Set)
	}
	return switchml.Reply{
		Switch:   switchml.Endpoint{MAC: l.cfg.MAC, IP: l.cfg.IP, Port: p.DstPort},
		Elements: j.elements, Job: v.Job(), TSI: v.TSI(), PoolIndex: v.PoolIndex(), E0: e0, E1: e1,
	}
}

// replyTemplate makes the headers that all copies share. udp is the source port of the message that completed the slot.
func (l *lane) replyTemplate(j *laneJob, i int) (t switchml.ReplyTemplate, udp uint16) {
	t, _ = switchml.NewReplyTemplate(l.reply(j, i))
	return t, l.batch.pkt[i].SrcPort
}

// replicate makes a copy of the result in a chunk of its own, or only its headers when there is a shared payload, and
// queues it. rank is -1 when the copy is for several workers.
func (l *lane) replicate(j *laneJob, t *switchml.ReplyTemplate, payload Desc, port int, mac inet.MAC, ip inet.Addr, udp uint16, rank int) {
	addr, ok := l.take()
	if !ok {
		l.lostReplica(port, NoFrame)
		return
	}
	f := l.area[addr : addr+uint64(j.frameLen)]
	t.Put(f, mac, ip, udp)
	w := j.receiver(rank)
	if payload.Len > 0 {
		l.sendShared(port, Desc{Addr: addr, Len: switchml.ValuesOffset}, payload, w)
		return
	}
	copy(f[switchml.ValuesOffset:], l.values[:j.frameLen-switchml.ValuesOffset])
	l.sendReplica(port, Desc{Addr: addr, Len: uint32(j.frameLen)}, nil, sentReplica, w)
}
