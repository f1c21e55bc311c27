package dataplane

import (
	"encoding/binary"
	"encoding/hex"
	"math/bits"
	"sync/atomic"
	"time"

	"gradnic/aggregation"
	"gradnic/wire/inet"
)

// traceLane is a trace's share of one lane.
type traceLane struct {
	slot uint32
	job  string // empty: any, and none
	left int    // frames to follow; the lane's
	ring *spsc[traceRecord]
	lost atomic.Uint64
}

// traceRecord is what a lane notes of one frame. It has no pointers to what the lane owns: it outlives the job.
type traceRecord struct {
	now     int64
	length  uint32
	port    uint16
	from    int16
	rank    int32
	job     string
	native  bool
	mac     inet.MAC
	ip      inet.Addr
	udp, to uint16
	kind    string
	id      uint16
	slot    uint32
	set     uint8
	round   uint32
	tsi     [4]byte
	number  uint32 // elements

	verdict  traceVerdict
	outcome  string
	reason   Reason
	workers  int
	seen     [MaxNativeWorkers / 64]uint64
	replies  [maxTraceReplies]traceReply
	nreplies int
	losses   [maxTraceLosses]traceLoss
}

type traceVerdict uint8

const (
	traceDropped traceVerdict = iota
	traceContributed
	traceDuplicate
	traceAnswered
)

var traceVerdicts = [...]string{"drop", "contributed", "duplicate", "answered"}

type traceReply struct {
	rank   int32
	mac    inet.MAC
	ip     inet.Addr
	udp    uint16
	port   uint16
	length uint32
	reason Reason // 0: posted
}

type traceLoss struct {
	reason Reason
	n      int
}

// traced is true while somebody follows a slot's frames.
func (l *lane) traced() bool { return l.taps != nil && len(l.taps.traces) > 0 }

// oneByOne takes the parsed messages of the batch alone through the remaining stages and follows those that are asked
// for. from is the lane that handed the batch over, -1 for none.
func (l *lane) oneByOne(from int) {
	b := &l.batch
	sel, nsel, nat, nnat := b.sel, b.nsel, b.nat, b.nnat
	for _, s := range sel[:nsel] {
		b.sel[0], b.nsel, b.nnat = s, 1, 0
		l.follow(int(s), from, false)
	}
	for _, s := range nat[:nnat] {
		b.nat[0], b.nsel, b.nnat = s, 0, 1
		l.follow(int(s), from, true)
	}
	b.nsel, b.nnat = 0, 0
}

// laterStages is what follows parse.
func (l *lane) laterStages(own bool) {
	l.match()
	if own && l.cfg.Layouts != nil {
		l.checkLayouts()
	}
	if own && len(l.peers) > 1 {
		l.handOff()
	}
	l.aggregate()
	l.nativeFrames()
}

// follow takes frame i through the stages and notes what becomes of it, if a trace asks for its slot.
func (l *lane) follow(i, from int, native bool) {
	b := &l.batch
	slot := uint32(0)
	if native {
		slot = b.msg[i].Slot()
	} else {
		slot = uint32(b.view[i].Slot())
	}
	wanted := false
	for _, t := range l.taps.traces {
		wanted = wanted || t.left > 0 && t.slot == slot
	}
	if !wanted {
		l.laterStages(from < 0)
		return
	}
	l.sendAll() // what is sent from here on is this frame's doing
	r := l.beginTrace(i, from, native, slot)
	port := int(b.port[i])
	before := l.counts[port]
	b.job[i] = nil
	l.taps.tracing = r
	l.laterStages(from < 0)
	job := b.job[i]
	if native {
		job = l.nativeJob(r.id)
	}
	l.sendAll()
	l.taps.tracing = nil
	if l.endTrace(r, job, i, &before) {
		r.emit(l.taps.traces)
	}
}

// sendAll posts what the ports have collected.
func (l *lane) sendAll() {
	for i := range l.ports {
		if l.ports[i].tx.n > 0 {
			l.transmit(i)
		}
	}
}

func (l *lane) beginTrace(i, from int, native bool, slot uint32) *traceRecord {
	b := &l.batch
	p := &b.pkt[i]
	r := &traceRecord{
		now: int64(time.Since(l.epoch)), length: frameLen(b.desc[i], b.tail(i)), port: b.port[i], from: int16(from), rank: -1,
		native: native, mac: p.Src, ip: p.SrcIP, udp: p.SrcPort, to: p.DstPort, slot: slot,
	}
	if native {
		v := b.msg[i]
		r.kind, r.id, r.round, r.set, r.number = v.Kind().String(), v.Job(), v.Round(), uint8(v.Round()&1), uint32(v.Elements())
		r.rank = int32(v.Rank())
		return r
	}
	v := b.view[i]
	r.kind, r.id, r.set, r.tsi, r.number = "request", uint16(v.Job()), uint8(v.Set()), v.TSI(), uint32(v.Elements())
	return r
}

// endTrace reads the verdict from the counters, so that the trace cannot say anything else than they do. It returns
// false when there is none yet: the frame went to the lane that owns its slot.
func (l *lane) endTrace(r *traceRecord, j *laneJob, i int, before *portCounts) bool {
	after := &l.counts[r.port]
	grew := func(k int) bool { return after[k] > before[k] }
	switch {
	case grew(cContributed):
		r.verdict, r.outcome = traceContributed, aggregation.Added.String()
		if grew(cResults) {
			r.outcome = aggregation.Completed.String()
		}
	case grew(cDuplicates):
		r.verdict, r.outcome = traceDuplicate, aggregation.Duplicate.String()
		if grew(cResent) {
			r.outcome = aggregation.Answered.String()
		}
	case grew(cAnswered):
		r.verdict, r.outcome = traceAnswered, "told"
	default:
		for k := range Reason(numReasons) {
			if grew(cDrops + int(k)) {
				r.reason = k
			}
		}
		if r.reason == 0 {
			return false
		}
		r.forget(r.reason)
	}
	if j == nil {
		return true
	}
	r.job, r.workers = j.name, len(j.workers)
	if !r.native {
		r.rank = int32(l.batch.rank[i])
	}
	switch slot := int(r.slot); {
	case j.summed: // the kernel has the slot, and tells of it when all values are in
		if r.verdict != traceDropped {
			r.seen[0] = 1<<r.workers - 1
		}
	case slot < j.slots && slot%len(l.lanes) == l.id:
		slot /= len(l.lanes)
		if !r.native || j.pool.State(slot, int(r.set)).Round == r.round {
			copy(r.seen[:], j.pool.Seen(slot, int(r.set)))
		}
	}
	for k := range r.replies[:r.nreplies] {
		p := &r.replies[k]
		for c := range j.copies {
			if m := &j.copies[c]; m.MAC == p.mac && m.IP == p.ip && m.Rank >= 0 {
				p.rank = int32(m.Rank)
			}
		}
	}
	return true
}

// emit gives the record to the traces that want it.
func (r *traceRecord) emit(traces []*traceLane) {
	for _, t := range traces {
		if t.left == 0 || t.slot != r.slot || t.job != "" && t.job != r.job {
			continue
		}
		if t.ring.full() {
			t.lost.Add(1)
			continue
		}
		t.left--
		t.ring.push([]traceRecord{*r})
	}
}

// sent notes frames that the traced one caused.
func (r *traceRecord) sent(l *lane, port int, descs []Desc) {
	for len(descs) > 0 {
		n := chainAt(descs)
		r.reply(l, port, descs[0], descs[1:n], 0)
		descs = descs[n:]
	}
}

// dropped notes the traced frame itself, or one that it caused.
func (r *traceRecord) dropped(l *lane, port int, head Desc, tail []Desc, why Reason) {
	if head.Len != 0 {
		r.reply(l, port, head, tail, why)
		return
	}
	for k := range r.losses {
		if p := &r.losses[k]; p.n == 0 || p.reason == why {
			p.reason = why
			p.n++
			return
		}
	}
}

func (r *traceRecord) reply(l *lane, port int, head Desc, tail []Desc, why Reason) {
	f := l.frame(head)
	if r.nreplies == len(r.replies) || len(f) < inet.PayloadOffset {
		return
	}
	r.replies[r.nreplies] = traceReply{
		rank: -1, mac: inet.MAC(f[:6]), ip: inet.Addr(f[30:34]), udp: binary.BigEndian.Uint16(f[36:]),
		port: uint16(port), length: frameLen(head, tail), reason: why,
	}
	r.nreplies++
}

// frameLen is the bytes of a frame.
func frameLen(head Desc, tail []Desc) uint32 {
	n := head.Len
	for _, d := range tail {
		n += d.Len
	}
	return n
}

// forget takes the traced frame's own drop out of the replies.
func (r *traceRecord) forget(why Reason) {
	for k := range r.replies[:r.nreplies] {
		if r.replies[k].reason == why {
			copy(r.replies[k:], r.replies[k+1:r.nreplies])
			r.nreplies--
			return
		}
	}
}

// frame makes the public form.
func (r *traceRecord) frame(n *NIC, lane int) TraceFrame {
	f := TraceFrame{
		Time: n.epoch.Add(time.Duration(r.now)), Lane: lane, From: int(r.from), Port: n.ports[r.port].name, Length: int(r.length),
		Message: TraceMessage{
			Protocol: ProtocolSwitchML, MAC: r.mac, IP: r.ip, UDPPort: r.udp, To: r.to, Kind: r.kind, JobID: r.id,
			Slot: int(r.slot), Set: int(r.set), Round: r.round, Elements: int(r.number),
		},
		Job: r.job, Rank: int(r.rank), Outcome: r.outcome, Verdict: traceVerdicts[r.verdict],
		Seen: []int{}, Waiting: []int{}, Replies: []TraceReply{}, Lost: map[string]int{},
	}
	if r.native {
		f.Message.Protocol = ProtocolNative
	} else {
		f.Message.TSI = hex.EncodeToString(r.tsi[:])
	}
	if r.verdict == traceDropped {
		f.Reason = r.reason.String()
	}
	for w, word := range r.seen {
		for rest := word; rest != 0; rest &= rest - 1 {
			f.Seen = append(f.Seen, 64*w+bits.TrailingZeros64(rest))
		}
	}
	if len(f.Seen) > 0 {
		for rank := range r.workers {
			if r.seen[rank/64]>>(rank%64)&1 == 0 {
				f.Waiting = append(f.Waiting, rank)
			}
		}
	}
	for k := range r.replies[:r.nreplies] {
		p := &r.replies[k]
		t := TraceReply{Rank: int(p.rank), MAC: p.mac, IP: p.ip, UDPPort: p.udp, Port: n.ports[p.port].name, Length: int(p.length), Posted: p.reason == 0}
		if !t.Posted {
			t.Reason = p.reason.String()
		}
		f.Replies = append(f.Replies, t)
	}
	for _, p := range r.losses {
		if p.n > 0 {
			f.Lost[p.reason.String()] += p.n
		}
	}
	return f
}
