package dataplane

import (
	"encoding/binary"
	"time"

	"gradnic/aggregation"
	"gradnic/aggregation/recovery"
	"gradnic/multicast"
	"gradnic/wire/inet"
	"gradnic/wire/native"
)

// This file is how a native job's workers come together, and together again after a loss of memory. Lane 0 leads: reports
// and leaves come to it, and what they lead to is handed to the other lanes through their mailboxes. It happens a few
// times in a job's life, so it may allocate.

var codes = [...]native.Code{recovery.Wait: native.Waiting, recovery.Go: native.Ready, recovery.NotTogether: native.OutOfStep, recovery.Over: native.Aborted}

// stateNotice is the notice that tells where the job stands.
func (x *laneNative) stateNotice(rank int, nonce uint32) (h native.Header, body native.NoticeBody) {
	h = native.Header{Kind: native.Notice, Type: x.typ, Job: x.id, Rank: uint16(rank), Epoch: x.epoch}
	body = x.notice
	body.Code, body.Nonce = codes[x.reply], nonce
	if x.formation != nil {
		body.Life = x.formation.Life
		low, slots := x.formation.Low(), uint64(body.Slots)
		h.Slot, h.Round = uint32(low%slots), uint32(low/slots)
	} else {
		body.Ranks = x.ranks
	}
	return h, body
}

// answerState tells the sender of frame i where the job stands.
func (l *lane) answerState(j *laneJob, i int, nonce uint32) {
	h, body := j.native.stateNotice(l.batch.msg[i].Rank(), nonce)
	l.answerNotice(j, i, &h, &body)
}

// report takes a worker's report. Lane 0 runs it.
func (l *lane) report(j *laneJob, i int) {
	x, v := j.native, l.batch.msg[i]
	body, ok := native.ParseReport(v.Payload(), v.Flags())
	if !ok || max(body.Back, body.Ahead) > uint32(j.slots) || v.Slot() >= uint32(j.slots) || body.Nonce == 0 {
		l.drop(i, WrongSize)
		return
	}
	rank := v.Rank()
	if !l.admitStation(j, i, body.Life) {
		h, n := x.stateNotice(rank, body.Nonce)
		n.Code, n.Life, n.Ranks = native.Refused, 0, nil
		l.answerNotice(j, i, &h, &n)
		return
	}
	co := x.lead.co
	change, reply := co.Report(recovery.Report{
		Rank: rank, Epoch: v.Epoch(), Life: body.Life, Nonce: body.Nonce,
		Low: uint64(v.Round())*uint64(j.slots) + uint64(v.Slot()), Have: body.Have,
		NoValues: body.NoValues, Back: uint64(body.Back), Ahead: uint64(body.Ahead),
	})
	if change == 0 && co.State() == recovery.Forming && body.Life != 0 && x.deadline > 0 && l.now-x.since >= x.deadline {
		change, reply = co.Abort(co.Missing()), recovery.Over // some do not come back
	}
	l.changed(j, change, rank)
	if co.State() == recovery.Forming && body.Life != 0 && !x.returned {
		x.returned = true
		l.watch(x, x.since)
	}
	h, n := x.stateNotice(rank, body.Nonce)
	n.Code = codes[reply]
	l.answerNotice(j, i, &h, &n)
}

// admitStation notes where a worker is, when it is the one that has the rank.
func (l *lane) admitStation(j *laneJob, i int, life uint32) bool {
	mac, ip, port, udp := l.station(i)
	rank := l.batch.msg[i].Rank()
	x := j.native
	m, known := j.group.Member(rank)
	if known && (m.MAC != mac || m.IP != ip) {
		refuse := x.lead.given[rank] || life != 0 || x.reply == recovery.Go
		l.sayStations(j, &m, mac, ip, refuse)
		if refuse {
			return false
		}
		known = false // it was learned, of a worker that is gone
	}
	want := multicast.Member{Rank: rank, Port: port, MAC: mac, IP: ip, UDPPort: udp}
	if known && x.lead.given[rank] && m.Port != multicast.Unknown && !l.learned(j, rank) {
		want.Port = m.Port // it was said where results leave
	}
	if known && m == want {
		return true
	}
	g, err := j.group.With(want)
	if err != nil {
		return false
	}
	for _, other := range l.lanes {
		other.tell(l, func(o *lane) {
			lj := o.nativeJob(x.id)
			if lj == nil || lj.name != j.name {
				return
			}
			lj.workers[rank].joined = true
			if lj.workers[rank].port == multicast.Unknown {
				lj.workers[rank].port = port
			}
			lj.setGroup(g)
		})
	}
	return true
}

// sayEvery is how often a job's log may say that stations have the same rank: each of them asks several times a second.
const sayEvery = int64(time.Second)

// sayStations logs that a second station asks for a rank: a worker that has moved, or two that were given the same rank.
func (l *lane) sayStations(j *laneJob, has *multicast.Member, mac inet.MAC, ip inet.Addr, refused bool) {
	d := j.native.lead
	if d.said != 0 && l.now-d.said < sayEvery {
		return
	}
	d.said = l.now
	l.log.Warn("native job: another station asks for a rank", "job", j.name, "rank", has.Rank, "had", has.MAC.String()+" "+has.IP.String(),
		"asks", mac.String()+" "+ip.String(), "refused", refused)
}

// learned reports whether a member's port was not given but taken from its frames.
func (l *lane) learned(j *laneJob, rank int) bool { return !j.fixed[rank] }

// tell runs f on a lane: at once when it is the caller's own, else through its mailbox.
func (l *lane) tell(from *lane, f func(*lane)) {
	if l == from {
		f(l)
		return
	}
	if l.mail.post(f) {
		l.wake()
	}
}

// changed hands the coordinator's new state to all lanes and tells the workers, but not the one whose frame is being answered.
func (l *lane) changed(j *laneJob, change recovery.Change, except int) {
	x := j.native
	s := stateOf(x.lead.co, len(j.workers))
	if change == 0 {
		x.ranks = s.ranks
		return
	}
	l.log.Info("native job", "job", j.name, "epoch", s.epoch, "state", stateNames[x.lead.co.State()], "ranks", native.Bits(s.ranks, len(j.workers)))
	for _, other := range l.lanes {
		other.tell(l, func(o *lane) {
			if lj := o.nativeJob(x.id); lj != nil && lj.name == j.name {
				o.enterState(lj, s)
			}
		})
	}
	for r := range j.workers {
		if m, ok := j.group.Member(r); ok && r != except && m.Port != multicast.Unknown && m.UDPPort != 0 {
			l.tellWorker(j, m)
		}
	}
}

// enterState makes a lane's share of the job what the coordinator says.
func (l *lane) enterState(j *laneJob, s nativeState) {
	x := j.native
	if s.epoch != x.epoch || s.reply == recovery.Over {
		j.pool.Reset() // its slots are free again
		j.wrapped = 0
	}
	x.nativeState, x.since, x.returned = s, l.now, false
	clear(x.wants)
	if s.formation == nil {
		return
	}
	lanes := len(l.lanes)
	for _, w := range s.formation.Wanted() {
		if int(w.Slot)%lanes == l.id {
			x.wants[int(w.Slot)/lanes], x.wanted[int(w.Slot)/lanes] = true, w.Round
			l.watch(x, x.since)
		}
	}
}

// tellWorker sends a notice that nobody asked for.
func (l *lane) tellWorker(j *laneJob, m multicast.Member) {
	h, body := j.native.stateNotice(m.Rank, 0)
	addr, ok := l.take()
	if !ok {
		l.lostReplica(m.Port, NoFrame)
		return
	}
	n := body.Len() + j.native.tagLen()
	h.Flags |= j.native.tagFlag()
	d := Desc{Addr: addr, Len: uint32(native.FrameLen(n))}
	f := l.frame(d)
	from := native.Endpoint{MAC: l.cfg.MAC, IP: l.cfg.IP, Port: native.Port}
	body.Put(f[native.ValuesOffset:])
	native.PutFrame(f, &from, &native.Endpoint{MAC: m.MAC, IP: m.IP, Port: m.UDPPort}, &h, n)
	j.native.seal(m.Rank, f)
	l.sendReplica(m.Port, d, nil, sentReplica, nil)
}

// leave takes the word of a worker that gives up. Lane 0 runs it.
func (l *lane) leave(j *laneJob, i int) {
	x, v := j.native, l.batch.msg[i]
	b := v.Payload()
	if len(b) != native.LeaveLen {
		l.drop(i, WrongSize)
		return
	}
	rank := v.Rank()
	if v.Epoch() == x.epoch || v.Epoch() == 0 {
		l.changed(j, x.lead.co.Leave(rank, binary.BigEndian.Uint32(b)), rank)
	}
	l.answerState(j, i, 0)
}

// abortNative ends a job because of ranks that do not come.
func (l *lane) abortNative(j *laneJob, ranks []int) {
	id, name := j.native.id, j.name
	epoch := j.native.epoch
	l.lanes[0].tell(l, func(o *lane) {
		lj := o.nativeJob(id)
		if lj == nil || lj.name != name || lj.native.epoch != epoch {
			return
		}
		o.changed(lj, lj.native.lead.co.Abort(ranks), -1)
	})
}

// ask turns a contribution to a slot whose result is wanted into a request to a worker that has it.
func (l *lane) ask(j *laneJob, i, slot int) {
	x, v := j.native, l.batch.msg[i]
	want := recovery.Want{Slot: v.Slot(), Round: x.wanted[slot]}
	x.asked++
	holder, ok := x.formation.Holder(want, x.asked)
	m, known := j.group.Member(holder)
	if ok && x.deadline > 0 && l.now-x.since >= x.deadline {
		l.abortNative(j, []int{holder})
		l.answerState(j, i, 0)
		return
	}
	if !ok || !known || m.Port == multicast.Unknown || m.UDPPort == 0 {
		l.answerState(j, i, 0)
		return
	}
	h := native.Header{Kind: native.Ask, Flags: x.tagFlag(), Type: x.typ, Job: x.id, Rank: uint16(holder), Epoch: x.epoch, Round: want.Round, Slot: want.Slot}
	from := native.Endpoint{MAC: l.cfg.MAC, IP: l.cfg.IP, Port: native.Port}
	f := l.message(i, native.FrameLen(x.tagLen()))
	native.PutFrame(f, &from, &native.Endpoint{MAC: m.MAC, IP: m.IP, Port: m.UDPPort}, &h, x.tagLen())
	x.seal(holder, f)
	d, tail := l.outgoing(i, len(f))
	l.send(m.Port, int(l.batch.port[i]), d, tail, sentAnswer)
}

// supply takes a result that a worker had, and relays it to those that lacked it.
func (l *lane) supply(j *laneJob, i int) {
	slot, ok := l.ownSlot(j, i)
	if !ok {
		return
	}
	b := &l.batch
	x, v := j.native, b.msg[i]
	count := &l.counts[b.port[i]]
	w := &j.workers[v.Rank()]
	want := recovery.Want{Slot: v.Slot(), Round: v.Round()}
	if !x.wants[slot] || x.wanted[slot] != v.Round() || x.formation.Lacks(v.Rank(), want) {
		w.duplicates++
		count[cDuplicates]++
		l.freeFrame(i)
		return
	}
	if o := j.pool.Restore(slot, v.Round(), v.Payload(), poolFlags(v.Flags())); o != aggregation.Completed {
		l.drop(i, reasonOutcome+Reason(o))
		return
	}
	x.wants[slot] = false
	w.contributed++
	count[cContributed]++
	f := x.formation
	l.spreadResult(j, i, l.resultHeader(j, i, slot, native.FlagRelayed), v.Payload(), func(rank int) bool { return f.Lacks(rank, want) }, nil)
}
