package dataplane

import (
	"time"

	"gradnic/aggregation"
	"gradnic/aggregation/kernel"
	"gradnic/aggregation/recovery"
	"gradnic/multicast"
	"gradnic/wire/native"
)

// patience is how long a round waits before a worker that asks again is told for whom.
const patience = int64(50 * time.Millisecond)

// nativeFrames gives every native message of the batch its due. Answers are made in the frame that is answered.
func (l *lane) nativeFrames() {
	b := &l.batch
	for k, s := range b.nat[:b.nnat] {
		if ahead := k + fetchAhead; ahead < b.nnat {
			kernel.Prefetch(b.msg[b.nat[ahead]].Payload())
		}
		l.nativeFrame(int(s))
	}
	b.nnat = 0
}

// nativeJob finds the job of a message; nil when there is none.
func (l *lane) nativeJob(id uint16) *laneJob {
	if int(id) < len(l.natives) {
		return l.natives[id]
	}
	return nil
}

func (l *lane) nativeFrame(i int) {
	b := &l.batch
	v := b.msg[i]
	j := l.nativeJob(v.Job())
	if j == nil {
		l.drop(i, UnknownJob)
		return
	}
	x := j.native
	kind, rank := v.Kind(), v.Rank()
	switch {
	case kind.FromNetwork():
		l.drop(i, WrongDirection)
		return
	case rank >= len(j.workers):
		l.drop(i, reasonOutcome+Reason(aggregation.InvalidWorker))
		return
	case v.Type() != x.typ && kind != native.Report && kind != native.Leave:
		l.drop(i, WrongType)
		return
	}
	if !l.authentic(j, i) {
		return
	}
	v = b.msg[i]
	if x.since < 0 {
		x.since = l.now
	}
	w := &j.workers[rank]
	w.received++
	w.lastSeen = l.now
	if kind == native.Report {
		l.report(j, i)
		return
	}
	p := &b.pkt[i]
	m, known := j.group.Member(rank)
	if known && (m.MAC != p.Src || m.IP != p.SrcIP) {
		l.drop(i, UnknownWorker)
		return
	}
	if v.Epoch() != x.epoch || x.reply != recovery.Go || !known {
		if kind == native.Leave {
			l.leave(j, i)
			return
		}
		l.answerState(j, i, 0)
		return
	}
	switch kind {
	case native.Contribution:
		l.contribution(j, i)
	case native.Supply:
		l.supply(j, i)
	case native.Leave:
		l.leave(j, i)
	}
}

// ownSlot is the index of a message's slot in the lane's pool; ok is false, and the frame dropped, when the message
// does not fit the job.
func (l *lane) ownSlot(j *laneJob, i int) (slot int, ok bool) {
	v := l.batch.msg[i]
	switch {
	case v.Slot() >= uint32(j.slots):
		l.drop(i, slotOutOfRange)
		return 0, false
	case len(v.Payload()) != j.native.values && !j.native.coded && !without(v) || v.Elements() > j.native.elements:
		l.drop(i, WrongSize)
		return 0, false
	case v.Codec() != j.native.codec && v.Kind() == native.Contribution || v.Codec() != j.native.result && v.Kind() == native.Supply:
		l.drop(i, WrongCodec)
		return 0, false
	}
	slot = int(v.Slot())
	if len(l.lanes) > 1 {
		slot /= len(l.lanes)
	}
	return slot, true
}

// without reports whether a message is a contribution without values.
func without(v native.View) bool { return len(v.Payload()) == 0 && v.Kind() == native.Contribution }

// made reports whether the result that frame i completes or asks for is not made in the frame: with a codec it is longer or shorter
// than a contribution, and a contribution without values has no room for it.
func (l *lane) made(x *laneNative, i int) bool { return x.coded || len(l.batch.msg[i].Payload()) == 0 }

// contribution adds values to their slot. The result is made in place: the frame that completes it carries the last copy.
func (l *lane) contribution(j *laneJob, i int) {
	slot, ok := l.ownSlot(j, i)
	if !ok {
		return
	}
	b := &l.batch
	x, v := j.native, b.msg[i]
	rank := v.Rank()
	if x.wants[slot] {
		l.ask(j, i, slot)
		return
	}
	w := &j.workers[rank]
	count := &l.counts[b.port[i]]
	c := &l.contrib
	c.Slot, c.Round, c.Worker, c.Values = slot, v.Round(), rank, v.Payload()
	c.Exponents = [2]int8{}
	c.None, c.Quiet = without(v), v.Flags()&native.FlagNoValues != 0
	out, made := v.Payload(), l.made(x, i)
	if made {
		out = x.whole[native.ValuesOffset:]
	}
	o := j.pool.Contribute(c, l.now, out)
	if n := j.pool.Wrapped(); n != j.wrapped {
		count[cWrapped] += n - j.wrapped
		j.wrapped = n
	}
	switch o {
	case aggregation.Added:
		w.contributed++
		count[cContributed]++
		if l.alarm == 0 {
			l.watch(x, l.now)
		}
		l.freeFrame(i)
	case aggregation.Completed:
		w.contributed++
		count[cContributed]++
		count[cResults]++
		j.complete(w, l.now, j.pool.Started(slot, int(c.Round&1)))
		h := l.resultHeader(j, i, slot, 0)
		if made {
			out = out[:j.pool.ResultLen(slot, int(c.Round&1))]
		}
		l.spreadResult(j, i, h, out, nil, j.pool.Quiet(slot, int(c.Round&1)))
	case aggregation.Answered:
		w.duplicates++
		count[cDuplicates]++
		count[cResent]++
		j.resent++
		w.resent++
		h := l.resultHeader(j, i, slot, native.FlagResend)
		switch {
		case c.Quiet:
			out = nil
		case made:
			out = out[:j.pool.ResultLen(slot, int(c.Round&1))]
		}
		l.resultTo(j, i, h, out)
	case aggregation.Duplicate:
		w.duplicates++
		l.duplicate(j, i, slot)
	default:
		count[cDrops+int(reasonOutcome)+int(o)]++
		l.sawFrameDrop(i, reasonOutcome+Reason(o))
		l.freeFrame(i)
	}
}

// duplicate deals with a contribution that is in its round already: its worker has waited. Long waits are told about.
func (l *lane) duplicate(j *laneJob, i, slot int) {
	x, v := j.native, l.batch.msg[i]
	set := int(v.Round() & 1)
	waited := l.now - j.pool.State(slot, set).Started
	if waited < patience {
		l.counts[l.batch.port[i]][cDuplicates]++
		l.freeFrame(i)
		return
	}
	n := len(j.workers)
	late := l.latecomers(j, slot, set)
	if x.deadline > 0 && waited >= x.deadline {
		l.abortNative(j, native.Bits(late, n))
		l.answerState(j, i, 0)
		return
	}
	h := v.Header()
	h.Kind, h.Flags, h.Codec, h.Elements = native.Notice, 0, 0, 0
	body := x.notice
	body.Code, body.Ranks = native.Collecting, late
	l.answerNotice(j, i, &h, &body)
}

// resultHeader is the header of the result in slot, which frame i asked for or completed.
func (l *lane) resultHeader(j *laneJob, i, slot int, flags native.Flags) native.Header {
	h := l.batch.msg[i].Header()
	s := j.pool.State(slot, int(h.Round&1))
	h.Kind, h.Rank, h.Flags, h.Codec = native.Result, uint16(s.Count), flags|wireFlags(s.Flags)|j.native.tagFlag(), j.native.result
	return h
}

// wireFlags are a result's flags as the wire has them.
func wireFlags(f aggregation.Flags) (w native.Flags) {
	if f == 0 {
		return 0
	}
	for _, p := range [...]struct {
		f aggregation.Flags
		w native.Flags
	}{
		{aggregation.FlagNonFinite, native.FlagNonFinite}, {aggregation.FlagSaturated, native.FlagSaturated},
		{aggregation.FlagWrapped, native.FlagWrapped}, {aggregation.FlagPartial, native.FlagPartial},
	} {
		if f&p.f != 0 {
			w |= p.w
		}
	}
	return w
}

// poolFlags is the inverse of wireFlags.
func poolFlags(w native.Flags) (f aggregation.Flags) {
	for _, g := range [...]aggregation.Flags{aggregation.FlagNonFinite, aggregation.FlagSaturated, aggregation.FlagWrapped, aggregation.FlagPartial} {
		if w&wireFlags(g) != 0 {
			f |= g
		}
	}
	return f
}

// spreadResult sends values, those in frame i or those that a codec made elsewhere, to all receivers of the job's group, or
// to those that lacks says. Those in the bitmap quiet, which may be nil, get it without the values. The last copy with values goes
// in the frame itself, if it fits there.
func (l *lane) spreadResult(j *laneJob, i int, h native.Header, values []byte, lacks func(rank int) bool, quiet []uint64) {
	b := &l.batch
	ingress := int(b.port[i])
	copies := j.copies
	lost := j.receivers - len(copies) // their port is not known
	if lacks != nil {
		lost = 0
	}
	for ; lost > 0; lost-- {
		l.lostReplica(ingress, PortUnknown)
	}
	if im := l.ports[ingress].impair; im != nil && im.EgressTogether && im.dropEgress() {
		for k := range copies {
			l.lostReplica(copies[k].Port, ImpairedEgress)
		}
		copies = nil
	}
	skip := func(k int) bool {
		r := copies[k].Rank
		return r >= 0 && (lacks != nil && !lacks(r) || quiet != nil && quiet[r>>6]>>(r&63)&1 == 1)
	}
	if quiet != nil {
		l.spreadQuiet(j, copies, h, quiet)
	}
	if j.layout != nil {
		l.spreadLayout(j, i, &h, values, copies, skip)
		return
	}
	from := native.Endpoint{MAC: l.cfg.MAC, IP: l.cfg.IP, Port: native.Port}
	tag := j.native.tagLen()
	t := native.NewTemplate(&from, &h, len(values)+tag)
	last := len(copies) - 1 // goes in the frame; the others first, since the frame may be free again once it was sent
	for last >= 0 && skip(last) {
		last--
	}
	var whole []byte // the frame as contiguous bytes, when it takes several chunks
	n, made, inPlace := native.FrameLen(len(values)+tag), l.made(j.native, i), true
	switch {
	case made:
		inPlace = l.takesInPlace(i, n)
		whole = l.wholeResult(j.native, values)
	case b.desc[i].Options != 0:
		whole = l.message(i, n)
	}
	payload, shared := b.desc[i], false // of all copies, in the frame itself
	if _, own := l.own(payload.Addr); own && whole == nil && !made && last > 0 && tag == 0 && l.shares(len(values)) {
		payload.Addr, payload.Len = payload.Addr+native.ValuesOffset, uint32(len(values))
		shared, inPlace = true, false
	}
	for k := 0; k <= last; k++ {
		if skip(k) {
			continue
		}
		c := &copies[k]
		var d Desc
		var tail []Desc
		switch {
		case k == last && inPlace:
			f := l.message(i, n)
			if made {
				copy(f[native.ValuesOffset:], values)
			}
			t.Put(f, c.MAC, c.IP, c.UDPPort)
			j.native.seal(c.Rank, f)
			d, tail = l.outgoing(i, n)
		case whole != nil:
			t.Put(whole, c.MAC, c.IP, c.UDPPort)
			j.native.seal(c.Rank, whole)
			var ok bool
			if d, tail, ok = l.scatter(whole); !ok {
				l.lostReplica(c.Port, NoFrame)
				continue
			}
		default:
			addr, ok := l.take()
			if !ok {
				l.lostReplica(c.Port, NoFrame)
				continue
			}
			d = Desc{Addr: addr, Len: uint32(n)}
			f := l.frame(d)
			if shared {
				d.Len = native.ValuesOffset
			} else {
				copy(f[native.ValuesOffset:], values)
			}
			t.Put(f, c.MAC, c.IP, c.UDPPort)
			j.native.seal(c.Rank, f)
		}
		w := j.receiver(c.Rank)
		if shared {
			l.sendShared(c.Port, d, payload, w)
			continue
		}
		l.sendReplica(c.Port, d, tail, sentReplica, w)
	}
	if last < 0 || !inPlace {
		l.freeFrame(i)
	}
}

// spreadQuiet sends a result without its values to those receivers that have no use for them.
func (l *lane) spreadQuiet(j *laneJob, copies []multicast.Copy, h native.Header, quiet []uint64) {
	from := native.Endpoint{MAC: l.cfg.MAC, IP: l.cfg.IP, Port: native.Port}
	tag := j.native.tagLen()
	t := native.NewTemplate(&from, &h, tag)
	for k := range copies {
		c := &copies[k]
		if c.Rank < 0 || quiet[c.Rank>>6]>>(c.Rank&63)&1 == 0 {
			continue
		}
		addr, ok := l.take()
		if !ok {
			l.lostReplica(c.Port, NoFrame)
			continue
		}
		d := Desc{Addr: addr, Len: uint32(native.FrameLen(tag))}
		f := l.frame(d)
		t.Put(f, c.MAC, c.IP, c.UDPPort)
		j.native.seal(c.Rank, f)
		l.sendReplica(c.Port, d, nil, sentReplica, &j.workers[c.Rank])
	}
}

// resultTo sends values, those in frame i or those that a codec made elsewhere, back to the worker that sent the frame.
func (l *lane) resultTo(j *laneJob, i int, h native.Header, values []byte) {
	b := &l.batch
	port := int(b.port[i])
	if im := l.ports[port].impair; im != nil && im.EgressTogether && im.dropEgress() {
		l.lostReplica(port, ImpairedEgress)
		l.freeFrame(i)
		return
	}
	rank := b.msg[i].Rank()
	w := &j.workers[rank]
	payload := len(values) + j.native.tagLen()
	n := native.FrameLen(payload)
	made := l.made(j.native, i)
	if made && !l.takesInPlace(i, n) {
		l.resultElsewhere(j, i, &h, values, w)
		return
	}
	f := l.putBack(i, &h, payload)
	if made {
		copy(f[native.ValuesOffset:], values)
	}
	j.native.seal(rank, f)
	d, tail := l.outgoing(i, n)
	l.sendReplica(port, d, tail, sentReplica, w)
}

// putBack writes the headers of an answer to frame i over its own, and returns the frame.
func (l *lane) putBack(i int, h *native.Header, payload int) []byte {
	mac, ip, _, udp := l.station(i)
	from := native.Endpoint{MAC: l.cfg.MAC, IP: l.cfg.IP, Port: native.Port}
	f := l.message(i, native.FrameLen(payload))
	native.PutFrame(f, &from, &native.Endpoint{MAC: mac, IP: ip, Port: udp}, h, payload)
	return f
}

// answerNotice turns frame i into a notice to its sender.
func (l *lane) answerNotice(j *laneJob, i int, h *native.Header, body *native.NoticeBody) {
	n := body.Len() + j.native.tagLen()
	h.Flags |= j.native.tagFlag()
	f := l.message(i, native.FrameLen(n))
	// The header is read before: it may lie where the body goes.
	body.Put(f[native.ValuesOffset:])
	l.putBack(i, h, n)
	j.native.seal(int(h.Rank), f)
	l.answer(i, len(f))
}
