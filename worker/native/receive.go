package native

import (
	"fmt"
	"time"

	wire "gradnic/wire/native"
	"gradnic/worker/rtt"
)

// take judges one message.
func (e *engine) take(now int64, b []byte) {
	v, fault := wire.Validate(b)
	if fault != wire.OK || !v.Kind().FromNetwork() || v.Job() != e.cfg.Job || e.state == over && e.leaves == 0 {
		e.counts.Foreign++
		return
	}
	v, ok := e.authentic(now, v)
	if !ok {
		e.counts.Untrusted++
		return
	}
	switch v.Kind() {
	case wire.Result:
		if e.state != running || v.Epoch() != e.epoch {
			e.counts.Stale++
			return
		}
		e.result(now, v)
	case wire.Notice:
		n, ok := wire.ParseNotice(v.Payload())
		if !ok || v.Rank() != e.cfg.Rank || n.Nonce != 0 && n.Nonce != e.nonce {
			e.counts.Foreign++
			return
		}
		e.notice(now, v, &n)
	case wire.Ask:
		switch {
		case v.Rank() != e.cfg.Rank:
			e.counts.Foreign++
		case v.Epoch() != e.epoch && e.state != over:
			e.enter(now, v.Epoch())
		case e.state == running:
			e.supply(v)
		}
	}
}

func (e *engine) result(now int64, v wire.View) {
	bare := len(v.Payload()) == 0
	if x := e.coder; v.Type() != e.job.Type || !bare && (x == nil && (len(v.Payload()) != e.bytes || v.Codec() != 0) || x != nil && !x.takes(v)) {
		e.counts.Foreign++
		return
	}
	if bare && !e.needless(v) {
		e.counts.Foreign++
		return
	}
	chunk, verdict, _ := e.win.result(now, v.Slot(), v.Round())
	switch verdict {
	case redone:
		e.counts.Results++
		if !bare {
			e.keep(v)
		}
		return
	case duplicate:
		e.counts.Duplicates++
		return
	case stale:
		e.counts.Stale++
		return
	}
	e.counts.Results++
	if v.Flags()&wire.FlagRelayed != 0 {
		e.counts.Relayed++
	}
	k := e.keep(v)
	c := e.callOf(chunk)
	lo, hi := c.span(chunk, e.job.Elements)
	if v.Collective() != c.id || v.Elements() != hi-lo {
		e.giveUp(now, fmt.Errorf("call %d, elements %d to %d: another worker's call %d has %d elements there: all workers must make the same calls with the same lengths",
			c.id, lo, hi, v.Collective(), v.Elements()))
		return
	}
	c.flags |= k.flags
	switch {
	case c.drain == nil:
	case bare:
		e.keepContribution(k, c.gives.in(lo, hi), v.Slot())
	case e.coder != nil:
		e.coder.deliver(c, lo, hi)
	default:
		c.drain(lo, hi, k.values)
	}
	if c.left--; c.left == 0 {
		e.finish(c)
	}
}

// needless reports whether the result that v is has values that this worker has no use for.
func (e *engine) needless(v wire.View) bool {
	chunk, ok := e.win.chunkOf(v.Slot(), v.Round())
	if !ok || e.win.has(chunk) || chunk >= e.win.next {
		return true // it is late, or of a chunk that was contributed to once more
	}
	c := e.callOf(chunk)
	return !c.takes.in(c.span(chunk, e.job.Elements))
}

// keep keeps a result for those who lack it.
func (e *engine) keep(v wire.View) *kept {
	k := &e.kept[v.Slot()]
	k.there, k.contribution, k.round, k.collective, k.elements = true, false, v.Round(), v.Collective(), uint16(v.Elements())
	k.flags = v.Flags() & wire.FlagsOfResult
	k.values = k.values[:copy(k.values[:cap(k.values)], v.Payload())]
	return k
}

// keepContribution keeps what this worker contributed to a result that came without values.
func (e *engine) keepContribution(k *kept, gives bool, slot uint32) {
	n := 0
	if gives {
		n = e.bytes
		if e.coder != nil {
			n = e.coder.lengths[slot]
		}
	}
	k.contribution = true
	k.values = k.values[:copy(k.values[:cap(k.values)], e.frames[slot][wire.ValuesOffset:wire.ValuesOffset+n])]
}

// span is the elements that a chunk of the call carries.
func (c *call) span(chunk uint64, elements int) (lo, hi int) {
	lo = int(chunk-c.first) * elements
	return lo, min(lo+elements, c.elements)
}

func (e *engine) callOf(chunk uint64) *call {
	for _, c := range e.calls {
		if chunk < c.first+uint64(c.chunks) {
			return c
		}
	}
	panic("native: a chunk of no call")
}

// finish takes finished calls from the front; one that finished early waits for those before it only in this list.
func (e *engine) finish(c *call) {
	c.elapsed = time.Since(c.start)
	close(c.done)
	for len(e.calls) > 0 && e.calls[0].left == 0 {
		e.calls[0].drain, e.calls[0].fill, e.calls[0].floats = nil, nil, nil
		e.calls = e.calls[1:]
	}
}

// supply gives the network a result that it asks for.
func (e *engine) supply(v wire.View) {
	if e.win == nil || v.Slot() >= uint32(e.win.slots) {
		return
	}
	k := &e.kept[v.Slot()]
	if !k.there || k.contribution || k.round != v.Round() {
		return
	}
	copy(e.scratch[wire.ValuesOffset:], k.values)
	var id uint8
	if e.coder != nil {
		id = e.coder.outID
	}
	e.message(wire.Header{
		Kind: wire.Supply, Flags: k.flags, Type: e.job.Type, Codec: id, Job: e.cfg.Job, Rank: uint16(e.cfg.Rank), Epoch: e.epoch,
		Round: k.round, Slot: v.Slot(), Collective: k.collective, Elements: k.elements,
	}, len(k.values))
	e.counts.Supplied++
}

// notice takes the state of the job.
func (e *engine) notice(now int64, v wire.View, n *wire.NoticeBody) {
	if e.state == over {
		if n.Code == wire.Aborted {
			e.leaves = 0
		}
		return
	}
	if n.Code == wire.Refused {
		e.fail(ErrRefused)
		return
	}
	if v.Epoch() != e.epoch {
		e.missing = nil
		if n.Code != wire.Ready || n.Nonce != e.nonce || e.epoch != 0 {
			e.enter(now, v.Epoch())
			return
		}
		// The answer to this worker's first report, which knew no epoch, is that all are there.
		e.epoch = v.Epoch()
		e.counts.Epochs++
	}
	ranks := wire.Bits(n.Ranks, int(n.Workers))
	switch n.Code {
	case wire.Waiting:
		e.missing = ranks
		if e.state == running {
			e.enter(now, e.epoch)
		}
	case wire.Ready:
		e.ready(now, v, n)
	case wire.Collecting:
		e.missing = ranks
		if e.state == running {
			e.win.patient(now, v.Slot(), v.Round())
		}
	case wire.Aborted:
		if e.life != 0 {
			e.fail(&Ended{ErrAborted, ranks})
		}
	case wire.OutOfStep:
		e.missing = ranks
		if e.life != 0 {
			e.fail(&Ended{ErrOutOfStep, ranks})
		}
	}
}

// ready goes on.
func (e *engine) ready(now int64, v wire.View, n *wire.NoticeBody) {
	e.missing = nil
	if e.state == running {
		return
	}
	if e.win == nil {
		if err := e.learn(v.Type(), n); err != nil {
			e.fail(err)
			return
		}
	}
	e.life, e.state = n.Life, running
	e.win.restart()
	e.again(uint64(v.Round())*e.win.slots + uint64(v.Slot()))
	select {
	case <-e.joined:
	default:
		close(e.joined)
	}
}

// learn takes the job's parameters and makes the memory for it.
func (e *engine) learn(typ wire.Type, n *wire.NoticeBody) error {
	e.job = Job{
		Workers: int(n.Workers), Slots: int(n.Slots), Elements: int(n.Elements), Type: typ, Op: Op(n.Op), Ranked: n.Order == 1,
		Saturate: n.Policy == 1, Deadline: time.Duration(n.Deadline) * time.Millisecond, group: n.Group, groupPort: n.GroupPort,
	}
	j := &e.job
	switch {
	case j.Slots < 1 || j.Slots > wire.MaxSlots || j.Elements < 1 || e.cfg.Rank >= j.Workers || typ != wire.Float32 && n.Codec|n.Result != 0:
		return fmt.Errorf("the NIC's notice makes no sense: %+v", *j)
	case e.cfg.Workers != 0 && e.cfg.Workers != j.Workers:
		return fmt.Errorf("the job has %d workers, not %d", j.Workers, e.cfg.Workers)
	}
	e.bytes = typ.Bytes(j.Elements)
	result := e.bytes
	if err := e.learnCodecs(n); err != nil {
		return err
	}
	if x := e.coder; x != nil {
		e.bytes, result = x.in.MaxEncoded(j.Elements), x.out.MaxEncoded(j.Elements)
	}
	if most := wire.HeaderLen + max(e.bytes, result) + e.tags.room(wire.Contribution); most > room {
		return fmt.Errorf("the NIC's notice makes no sense: messages of %d bytes", most)
	}
	most := j.Slots
	if e.cfg.Window > 0 {
		most = min(most, e.cfg.Window)
	}
	e.win = newWindow(j.Slots, most, rtt.NewTimer(e.cfg.timeouts()))
	n1 := wire.FrameLen(e.bytes + e.tags.room(wire.Contribution))
	n2 := max(e.bytes, result)
	all, values := make([]byte, j.Slots*n1), make([]byte, j.Slots*n2)
	e.frames, e.kept = make([][]byte, j.Slots), make([]kept, j.Slots)
	for i := range e.frames {
		e.frames[i] = all[i*n1 : (i+1)*n1 : (i+1)*n1]
		e.kept[i].values = values[i*n2 : (i+1)*n2 : (i+1)*n2]
	}
	if n := wire.FrameLen(n2 + e.tags.room(wire.Contribution)); len(e.scratch) < n {
		e.scratch = make([]byte, n)
	}
	return nil
}
