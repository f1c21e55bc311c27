package native

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	wire "gradnic/wire/native"
	"gradnic/worker/datagram"
)

// engine runs a worker's side of a job. Its state is guarded by mu; three things drive it, each by taking mu for as long
// as it works on it: the goroutine that receives (and whose deadline is the timers'), that of the multicast group if there
// is one, and calls.
type engine struct {
	cfg  Config
	from wire.Endpoint
	nic  wire.Endpoint
	zero time.Time

	mu      sync.Mutex
	tr      datagram.Transport
	group   datagram.Transport
	life    uint32
	nonce   uint32
	epoch   uint32
	state   engineState
	err     error // why it failed
	joined  chan struct{}
	failed  chan struct{}
	missing []int // ranks that the network waits for, as it said last

	reportAt  int64
	reportGap int64
	leaves    int // leave messages still to be sent

	job    Job
	bytes  int // of values
	win    *window
	frames [][]byte // by slot: the newest chunk's contribution
	kept   []kept   // by slot: the newest result
	calls  []*call  // with chunks that lack their result, in order
	seq    uint32

	queue   [][]byte // to be sent together
	scratch []byte   // for messages that are not contributions
	counts  Counts
	quit    bool
	wg      sync.WaitGroup
}

type engineState uint8

const (
	reporting engineState = iota
	running
	over
)

// kept is a result that other workers may lack.
type kept struct {
	there      bool
	round      uint32
	collective uint32
	elements   uint16
	flags      wire.Flags
	values     []byte
}

// call is one collective.
type call struct {
	id       uint32
	first    uint64 // its chunks are first to first+chunks-1
	chunks   int
	elements int                        // of the whole call
	fill     func(lo, hi int, b []byte) // writes elements lo to hi
	drain    func(lo, hi int, b []byte) // takes them
	left     int
	flags    wire.Flags
	err      error
	done     chan struct{}
	start    time.Time
	elapsed  time.Duration
}

// Counts are what a worker has sent and received.
type Counts struct {
	Packets  uint64 `json:"packets"`  // contributions sent for the first time
	Resent   uint64 `json:"resent"`   // and again
	Timeouts uint64 `json:"timeouts"` // expirations of the timer, each for one or more packets
	Results  uint64 `json:"results"`
	// Duplicates are results that were there already, Stale those of another round or epoch, Foreign what is not
	// for this worker.
	Duplicates uint64 `json:"duplicates"`
	Stale      uint64 `json:"stale"`
	Foreign    uint64 `json:"foreign"`
	Reports    uint64 `json:"reports"`
	Supplied   uint64 `json:"supplied"` // results given to the network after it lost its memory
	Relayed    uint64 `json:"relayed"`  // results that another worker gave
	Epochs     uint64 `json:"epochs"`   // memories of the network that this worker has seen
	Socket     uint64 `json:"socket_errors"`
}

const (
	reportFirst = int64(20 * time.Millisecond)
	reportMost  = int64(320 * time.Millisecond)
	reportIdle  = int64(250 * time.Millisecond)
)

func newEngine(cfg Config, tr datagram.Transport, from, nic wire.Endpoint) *engine {
	e := &engine{
		cfg: cfg, tr: tr, from: from, nic: nic, zero: time.Now(), joined: make(chan struct{}), failed: make(chan struct{}),
		scratch: make([]byte, wire.FrameLen(wire.ReportLen+wire.MaxSlots/8)), reportGap: reportFirst,
		queue: make([][]byte, 0, datagram.Burst),
	}
	var b [4]byte
	for e.nonce == 0 {
		_, _ = rand.Read(b[:]) // it never fails
		e.nonce = binary.BigEndian.Uint32(b[:])
	}
	return e
}

func (e *engine) now() int64 { return int64(time.Since(e.zero)) }

// run receives until the worker is closed.
func (e *engine) run(tr datagram.Transport, timers bool) {
	defer e.wg.Done()
	for {
		e.mu.Lock()
		now := e.now()
		if timers {
			e.tick(now)
		}
		until := now + int64(time.Second)
		if timers {
			until = e.wakeup(now)
		}
		quit := e.quit
		e.mu.Unlock()
		if quit {
			return
		}
		got, err := tr.Recv(e.zero.Add(time.Duration(until)))
		e.mu.Lock()
		if err != nil && !e.quit {
			e.fail(err)
			e.mu.Unlock()
			return
		}
		now = e.now()
		for _, b := range got {
			e.take(now, b)
		}
		e.pump(now)
		e.mu.Unlock()
	}
}

// wakeup is when the timers are to be looked at next.
func (e *engine) wakeup(now int64) int64 {
	at := now + int64(time.Second)
	switch {
	case e.leaves > 0, e.state == reporting:
		at = min(at, e.reportAt)
	case e.state == running:
		if d, ok := e.win.deadline(); ok {
			at = min(at, d)
		} else {
			at = min(at, e.reportAt)
		}
	}
	return at
}

// tick does what is due.
func (e *engine) tick(now int64) {
	switch {
	case e.leaves > 0:
		if now >= e.reportAt {
			e.leave(now)
		}
	case e.state == reporting:
		if now >= e.reportAt {
			e.report(now)
		}
	case e.state == running:
		e.win.check(now)
		e.pump(now)
		if e.win.inFlight > 0 {
			e.reportAt = now + reportIdle
		} else if now >= e.reportAt {
			// Nothing else would tell this worker that the network lost its memory, and others may need what it keeps.
			e.report(now)
			e.reportAt = now + reportIdle
		}
	}
}

// report tells the network what this worker has.
func (e *engine) report(now int64) {
	h := wire.Header{Kind: wire.Report, Job: e.cfg.Job, Rank: uint16(e.cfg.Rank), Epoch: e.epoch}
	body := wire.ReportBody{Life: e.life, Nonce: e.nonce}
	if e.win != nil {
		h.Slot, h.Round = e.win.place(e.win.low)
		h.Type = e.job.Type
		body.Have = e.win.have()
	}
	e.message(h, body.Put(e.scratch[wire.ValuesOffset:]))
	e.counts.Reports++
	e.reportAt = now + e.reportGap
	e.reportGap = min(2*e.reportGap, reportMost)
}

// message sends what lies in scratch.
func (e *engine) message(h wire.Header, payload int) {
	e.flush() // it may use scratch
	n := wire.PutFrame(e.scratch, &e.from, &e.nic, &h, payload)
	e.queue = append(e.queue, e.scratch[:n])
	e.flush()
}

func (e *engine) put(frame []byte) {
	e.queue = append(e.queue, frame)
	if len(e.queue) == datagram.Burst {
		e.flush()
	}
}

func (e *engine) flush() {
	if len(e.queue) == 0 {
		return
	}
	err := e.tr.Send(e.queue)
	e.queue = e.queue[:0]
	if err != nil && !e.quit {
		e.fail(err)
	}
}

// enter begins to report in an epoch.
func (e *engine) enter(now int64, epoch uint32) {
	if epoch != e.epoch {
		e.counts.Epochs++
	}
	e.epoch, e.state = epoch, reporting
	e.reportGap = reportFirst
	e.report(now)
}

// take judges one message.
func (e *engine) take(now int64, b []byte) {
	v, fault := wire.Validate(b)
	if fault != wire.OK || !v.Kind().FromNetwork() || v.Job() != e.cfg.Job || e.state == over && e.leaves == 0 {
		e.counts.Foreign++
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
	if len(v.Payload()) != e.bytes || v.Type() != e.job.Type {
		e.counts.Foreign++
		return
	}
	chunk, verdict, _ := e.win.result(now, v.Slot(), v.Round())
	switch verdict {
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
	k := &e.kept[v.Slot()]
	k.there, k.round, k.collective, k.elements = true, v.Round(), v.Collective(), uint16(v.Elements())
	k.flags = v.Flags() & wire.FlagsOfResult
	copy(k.values, v.Payload())
	c := e.callOf(chunk)
	lo, hi := c.span(chunk, e.job.Elements)
	if v.Collective() != c.id || v.Elements() != hi-lo {
		e.giveUp(now, fmt.Errorf("call %d, elements %d to %d: another worker's call %d has %d elements there: all workers must make the same calls with the same lengths",
			c.id, lo, hi, v.Collective(), v.Elements()))
		return
	}
	c.flags |= k.flags
	if c.drain != nil {
		c.drain(lo, hi, k.values)
	}
	if c.left--; c.left == 0 {
		e.finish(c)
	}
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
		e.calls[0].drain, e.calls[0].fill = nil, nil
		e.calls = e.calls[1:]
	}
}

// supply gives the network a result that it asks for.
func (e *engine) supply(v wire.View) {
	if e.win == nil || v.Slot() >= uint32(e.win.slots) {
		return
	}
	k := &e.kept[v.Slot()]
	if !k.there || k.round != v.Round() {
		return
	}
	copy(e.scratch[wire.ValuesOffset:], k.values)
	e.message(wire.Header{
		Kind: wire.Supply, Flags: k.flags, Type: e.job.Type, Job: e.cfg.Job, Rank: uint16(e.cfg.Rank), Epoch: e.epoch,
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
	case j.Slots < 1 || j.Slots > wire.MaxSlots || j.Elements < 1 || typ.Size() == 0 || e.cfg.Rank >= j.Workers:
		return fmt.Errorf("the NIC's notice makes no sense: %+v", *j)
	case e.cfg.Workers != 0 && e.cfg.Workers != j.Workers:
		return fmt.Errorf("the job has %d workers, not %d", j.Workers, e.cfg.Workers)
	}
	e.bytes = j.Elements * typ.Size()
	most := j.Slots
	if e.cfg.Window > 0 {
		most = min(most, e.cfg.Window)
	}
	e.win = newWindow(j.Slots, most, timer{least: int64(e.cfg.MinTimeout), most: int64(e.cfg.MaxTimeout), first: int64(e.cfg.Timeout)})
	n1 := wire.FrameLen(e.bytes)
	all, values := make([]byte, j.Slots*n1), make([]byte, j.Slots*e.bytes)
	e.frames, e.kept = make([][]byte, j.Slots), make([]kept, j.Slots)
	for i := range e.frames {
		e.frames[i] = all[i*n1 : (i+1)*n1 : (i+1)*n1]
		e.kept[i].values = values[i*e.bytes : (i+1)*e.bytes : (i+1)*e.bytes]
	}
	if len(e.scratch) < n1 {
		e.scratch = make([]byte, n1)
	}
	return nil
}

// pump sends what may go.
func (e *engine) pump(now int64) {
	if e.state != running {
		return
	}
	for {
		chunk, again, ok := e.win.take(now)
		if !ok {
			break
		}
		slot, round := e.win.place(chunk)
		frame := e.frames[slot]
		h := wire.Header{Kind: wire.Contribution, Type: e.job.Type, Job: e.cfg.Job, Rank: uint16(e.cfg.Rank), Epoch: e.epoch, Round: round, Slot: slot}
		c := e.callOf(chunk)
		lo, hi := c.span(chunk, e.job.Elements)
		if again {
			h.Flags = wire.FlagResend
			e.counts.Resent++
		} else {
			b := frame[wire.ValuesOffset:]
			used := (hi - lo) * e.job.Type.Size()
			if hi > lo {
				c.fill(lo, hi, b[:used])
			}
			clear(b[used:])
			e.counts.Packets++
		}
		h.Collective, h.Elements = c.id, uint16(hi-lo)
		wire.PutFrame(frame, &e.from, &e.nic, &h, e.bytes)
		e.put(frame)
	}
	e.flush()
	e.counts.Timeouts = e.win.timeouts
}

// submit starts a call of n elements.
func (e *engine) submit(n int, fill, drain func(lo, hi int, b []byte)) (*call, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err != nil {
		return nil, e.err
	}
	chunks := max((n+e.job.Elements-1)/e.job.Elements, 1)
	c := &call{id: e.seq, first: e.win.end, chunks: chunks, elements: n, fill: fill, drain: drain, left: chunks, done: make(chan struct{}), start: time.Now()}
	e.seq++
	e.calls = append(e.calls, c)
	e.win.submit(chunks)
	if e.state == running {
		e.pump(e.now())
		e.tr.Wake() // its deadline is too late
	}
	return c, nil
}

// fail ends the worker: all calls get the error. mu is held.
func (e *engine) fail(err error) {
	if e.err != nil {
		return
	}
	e.err, e.state = err, over
	close(e.failed)
	for _, c := range e.calls {
		if c.left > 0 {
			c.err = err
			close(c.done)
		}
	}
	e.calls = nil
}

// giveUp fails and tells the network, so that the others need not wait. mu is held.
func (e *engine) giveUp(now int64, err error) {
	if e.err != nil {
		return
	}
	e.fail(err)
	e.leaves, e.reportAt = 5, now
	e.leave(now)
	e.tr.Wake()
}

func (e *engine) leave(now int64) {
	h := wire.Header{Kind: wire.Leave, Type: e.job.Type, Job: e.cfg.Job, Rank: uint16(e.cfg.Rank), Epoch: e.epoch}
	binary.BigEndian.PutUint32(e.scratch[wire.ValuesOffset:], e.nonce)
	e.message(h, wire.LeaveLen)
	e.leaves--
	e.reportAt = now + reportFirst
}

// close ends the worker and waits for its goroutines.
func (e *engine) close() error {
	e.mu.Lock()
	if e.quit {
		e.mu.Unlock()
		e.wg.Wait()
		return nil
	}
	if len(e.calls) > 0 || e.state == reporting && e.err == nil {
		e.giveUp(e.now(), ErrClosed)
	}
	e.fail(ErrClosed)
	e.quit = true
	group := e.group
	e.mu.Unlock()
	e.tr.Wake()
	if group != nil {
		group.Wake()
	}
	e.wg.Wait()
	errs := []error{e.tr.Close()}
	if group != nil {
		errs = append(errs, group.Close())
	}
	return errors.Join(errs...)
}
