package dataplane

// What a frame that is to be sent was.
const (
	sentReplica = uint8(iota) // a copy of a result
	sentPassed                // a received frame, reflected or forwarded
	sentAnswer                // a received frame, made into an answer
	sentFormed                // to queueTx: a replica that has its layout's form
)

// txRetries is how often a full transmit ring is reaped and kicked before what is left is dropped. It bounds how long
// one port that does not move can hold up the others.
const txRetries = 3

// txBatch collects the frames of one port, so that they are posted together and the kernel is kicked once.
type txBatch struct {
	n      int
	desc   [BatchSize]Desc
	kind   [BatchSize]uint8
	from   [BatchSize]uint16 // the port that a received frame came in by
	worker [BatchSize]*laneWorker
}

// send queues a received frame for a port. Its verdict is counted here and taken back if the frame cannot be posted,
// so that it has one in the end.
func (l *lane) send(port, from int, d Desc, tail []Desc, kind uint8) {
	p := &l.ports[port]
	if p.impair != nil && p.impair.dropEgress() {
		l.counts[from][cDrops+int(ImpairedEgress)]++
		l.sawDrop(from, d, tail, ImpairedEgress)
		l.freePieces(d, tail)
		return
	}
	if kind == sentAnswer {
		l.counts[from][cAnswered]++
	} else {
		l.counts[from][cPassed]++
	}
	l.queueTx(port, from, d, tail, kind, nil)
}

// sendReplica counts and queues a copy of a result, or another frame that the NIC makes. kind is sentReplica or sentFormed,
// and w the worker that it is a result for, nil for several or none.
func (l *lane) sendReplica(port int, d Desc, tail []Desc, kind uint8, w *laneWorker) {
	l.counts[port][cReplicas]++
	p := &l.ports[port]
	if p.impair != nil && !p.impair.EgressTogether && p.impair.dropEgress() {
		l.counts[port][cReplicaDrops+int(ImpairedEgress)]++
		l.sawDrop(port, d, tail, ImpairedEgress)
		l.freePieces(d, tail)
		return
	}
	if w != nil {
		w.sent++
	}
	l.queueTx(port, port, d, tail, kind, w)
}

// queueTx appends a frame to a port's batch. Of a chain, the last piece stands for the frame.
func (l *lane) queueTx(port, from int, d Desc, tail []Desc, kind uint8, w *laneWorker) {
	t := &l.ports[port].tx
	if t.n+len(tail) >= BatchSize {
		l.transmit(port)
	}
	n := t.n
	if kind == sentFormed {
		kind = sentReplica
	} else if l.cfg.nativeLayouts && kind != sentPassed && len(tail) == 0 && !l.leaveNative(&d) {
		t.desc[n], t.kind[n], t.from[n], t.worker[n] = d, kind, uint16(from), w
		l.unsent(port, t, n, false)
		return
	}
	t.desc[n] = d
	for _, p := range tail {
		n++
		t.desc[n] = p
	}
	t.kind[n], t.from[n], t.worker[n] = kind, uint16(from), w
	t.n = n + 1
}

// transmit posts a port's batch with one kick. When the ring is full it reaps and tries again, a bounded number of
// times; then the rest is dropped, and the other ports go on.
func (l *lane) transmit(port int) {
	p := &l.ports[port]
	t := &p.tx
	q := p.egress
	before := l.at(stageTransmit)
	posted := 0
	for try := 0; ; try++ {
		room := q.limit - q.sending
		batch := t.desc[posted:min(t.n, posted+room)]
		if l.chains != nil {
			// The queue takes what there is room for, so that a chain is posted whole.
			batch = batch[:wholeFrames(batch)]
		}
		n := q.Transmit(batch)
		if l.sharing != nil {
			l.placeShared(q, t.desc[posted:posted+n])
		} else {
			place, shift := l.place, l.shift&63
			for _, d := range t.desc[posted : posted+n] {
				place[d.Addr>>shift] = q.mark
			}
		}
		if l.taps != nil {
			l.taps.sent(l, port, t.desc[posted:posted+n])
		}
		if p.pace != nil {
			p.pace.take(&p.pace.out, l.now, t.desc[posted:posted+n])
		}
		q.sending += n
		posted += n
		l.kick(q)
		if posted == t.n || try == txRetries || q.failed {
			break
		}
		l.reap(q)
	}
	frames := posted
	if l.chains != nil {
		frames = framesIn(t.desc[:posted])
		l.counts[port][cTxPieces] += uint64(posted - frames)
	}
	l.counts[port][cTransmitted] += uint64(frames)
	q.counts[qTransmitted] += uint64(frames)
	l.tally(stageTransmit, frames)
	l.tally(stageKick, frames)
	if l.taps != nil && posted < t.n {
		l.taps.unsent(l, port, t, posted, unsentReason(q.failed))
	}
	for i := posted; i < t.n; i++ {
		l.unsent(port, t, i, q.failed)
	}
	clear(t.worker[:t.n])
	t.n = 0
	l.at(before)
}

// unsent frees a frame that could not be posted and counts why.
func (l *lane) unsent(port int, t *txBatch, i int, broken bool) {
	reason := unsentReason(broken)
	if t.desc[i].Options != 0 { // not the last piece
		l.release(t.desc[i].Addr)
		return
	}
	from := &l.counts[t.from[i]]
	switch t.kind[i] {
	case sentReplica:
		l.counts[port][cReplicaDrops+int(reason)]++
		if w := t.worker[i]; w != nil {
			w.sent--
		}
	case sentPassed:
		from[cPassed]--
		from[cDrops+int(reason)]++
	case sentAnswer:
		from[cAnswered]--
		from[cDrops+int(reason)]++
	}
	l.release(t.desc[i].Addr)
}

func unsentReason(broken bool) Reason {
	if broken {
		return PortBroken
	}
	return TransmitFull
}

// kick makes the kernel send what was posted. An error is logged once until the queue works again.
func (l *lane) kick(q *laneQueue) {
	l.counts[q.port][cKicks]++
	before := l.at(stageKick)
	err := q.Kick()
	l.at(before)
	if err == nil {
		q.failed = false
		return
	}
	if !q.failed {
		q.failed = true
		l.log.Error("transmit", "port", q.port, "lane", l.id, "err", err)
	}
}
