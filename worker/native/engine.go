package native

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
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
	bytes  int // of a contribution's values; with a codec the most
	win    *window
	frames [][]byte // by slot: the newest chunk's contribution, with room for the longest
	kept   []kept   // by slot: the newest result
	coder  *coder   // nil: values are not compressed
	tags   *tags    // nil: messages have none
	calls  []*call  // with chunks that lack their result, in order
	seq    uint32

	queue   [][]byte // to be sent together
	scratch []byte   // for messages that are not contributions
	counts  Counts
	quit    bool
	// read is a time by which all that had come by then was taken in: only that has not come which was due before.
	read int64

	feedback int64 // bytes of all Feedback
	wg       sync.WaitGroup
}

type engineState uint8

const (
	reporting engineState = iota
	running
	over
)

// kept is a result that other workers may lack. Where it came without values, which may have been lost on their way to the worker
// that has use for them, it is this worker's contribution instead, of which the result can be computed once more.
type kept struct {
	there        bool
	contribution bool
	round        uint32
	collective   uint32
	elements     uint16
	flags        wire.Flags
	values       []byte
}

// call is one collective.
type call struct {
	id       uint32
	first    uint64 // its chunks are first to first+chunks-1
	chunks   int
	elements int                        // of the whole call
	gives    part                       // elements that this worker has values for
	takes    part                       // and whose results it has use for
	fill     func(lo, hi int, b []byte) // writes elements lo to hi
	drain    func(lo, hi int, b []byte) // takes them
	floats   *floats                    // with a codec, the arrays themselves, where there are
	left     int
	flags    wire.Flags
	err      error
	done     chan struct{}
	start    time.Time
	elapsed  time.Duration
}

// part is a range of a call's elements.
type part struct {
	some   bool // false: all
	lo, hi int
}

// in reports whether a chunk with elements lo to hi has something of the part.
func (p part) in(lo, hi int) bool { return !p.some || lo < p.hi && p.lo < hi }

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
	Again      uint64 `json:"again"`    // contributions to results that were there, but whose values were lost
	Epochs     uint64 `json:"epochs"`   // memories of the network that this worker has seen
	Socket     uint64 `json:"socket_errors"`
	// Untrusted are messages without the tag that they should have, or that came before.
	Untrusted uint64 `json:"untrusted"`
}

const (
	reportFirst = int64(20 * time.Millisecond)
	reportMost  = int64(320 * time.Millisecond)
	reportIdle  = int64(250 * time.Millisecond)
	unheard     = int64(100 * time.Millisecond) // that a tagged worker with packets in flight waits for any answer
)

func newEngine(cfg Config, tr datagram.Transport, from, nic wire.Endpoint) *engine {
	e := &engine{
		cfg: cfg, tr: tr, from: from, nic: nic, zero: time.Now(), joined: make(chan struct{}), failed: make(chan struct{}),
		scratch: make([]byte, wire.FrameLen(wire.ReportLen+wire.ReportSpanLen+wire.MaxSlots/8+wire.SaltLen+wire.TrailerLen)), reportGap: reportFirst,
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
		began := e.now()
		got, err := tr.Recv(e.zero.Add(time.Duration(until)))
		e.mu.Lock()
		if len(got) < datagram.Burst && timers {
			e.read = began // Recv looks before it waits
		}
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
		nap := e.nap(len(got))
		e.mu.Unlock()
		if nap > 0 {
			time.Sleep(nap)
		}
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
		// A worker that did not run for a while finds its packets overdue and their results in the socket.
		if e.group == nil {
			e.win.check(e.read)
		} else {
			e.win.check(now)
		}
		e.pump(now)
		if t := e.tags; t != nil && e.win.inFlight > 0 && now-t.heard >= unheard {
			// A network that lost its memory knows this process no more, and cannot answer what it cannot check.
			t.heard = now
			e.report(now)
		}
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
		if e.valuesOnly(&body) {
			h.Flags = wire.FlagNoValues
		}
	}
	e.message(h, body.Put(e.scratch[wire.ValuesOffset:]))
	e.counts.Reports++
	e.reportAt = now + e.reportGap
	e.reportGap = min(2*e.reportGap, reportMost)
}

// valuesOnly makes a report one of the values that this worker has, if there are results that it has without and that other
// workers may need. The highest chunk with a result proves that all have those of a window before.
func (e *engine) valuesOnly(body *wire.ReportBody) bool {
	w := e.win
	from := w.heard - min(w.heard, w.slots)
	end := max(w.heard, w.low)
	valued := make([]byte, (end-from+7)/8)
	some := false
	for g := from; g < end; g++ {
		switch {
		case !w.has(g):
		case e.kept[g%w.slots].contribution:
			some = true
		default:
			valued[(g-from)>>3] |= 1 << ((g - from) & 7)
		}
	}
	if some {
		body.NoValues, body.Back, body.Ahead, body.Have = true, uint32(w.low-from), uint32(end-w.low), bytes.TrimRight(valued, "\x00")
	}
	return some
}

// again has this worker contribute once more to the chunks whose values it never had, from the lowest on that some worker lacks the
// result of.
func (e *engine) again(low uint64) {
	w := e.win
	for g := max(low, w.heard-min(w.heard, w.slots)); g < w.heard; g++ {
		if w.has(g) && e.kept[g%w.slots].contribution {
			w.again(g)
		}
	}
}

// message sends what lies in scratch.
func (e *engine) message(h wire.Header, payload int) {
	e.flush() // it may use scratch
	n := e.putFrame(e.scratch, &h, payload)
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
		e.tags.left(e.epoch)
	}
	e.epoch, e.state = epoch, reporting
	e.reportGap = reportFirst
	e.report(now)
}

// pump sends what may go.
func (e *engine) pump(now int64) {
	if e.state != running {
		return
	}
	for e.state == running { // what cannot be sent ends the worker, and its calls
		chunk, again, ok := e.win.take(now)
		if !ok {
			break
		}
		slot, round := e.win.place(chunk)
		if again && e.win.redoing(chunk) {
			e.contributeAgain(slot, round)
			continue
		}
		frame := e.frames[slot]
		h := wire.Header{Kind: wire.Contribution, Type: e.job.Type, Job: e.cfg.Job, Rank: uint16(e.cfg.Rank), Epoch: e.epoch, Round: round, Slot: slot}
		payload := e.bytes
		c := e.callOf(chunk)
		lo, hi := c.span(chunk, e.job.Elements)
		gives := c.gives.in(lo, hi)
		if !c.takes.in(lo, hi) {
			h.Flags = wire.FlagNoValues
		}
		if again {
			h.Flags |= wire.FlagResend
			e.counts.Resent++
		} else if !gives {
			e.counts.Packets++
		} else if e.coder != nil {
			n, err := e.coder.encode(c, chunk, lo, hi, frame[wire.ValuesOffset:])
			if err != nil {
				e.giveUp(now, err)
				return
			}
			e.coder.lengths[slot] = n
			e.counts.Packets++
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
		if x := e.coder; x != nil {
			h.Codec, payload = x.inID, x.lengths[slot]
		}
		if !gives {
			payload = 0
		}
		n := e.putFrame(frame, &h, payload)
		e.put(frame[:n])
	}
	e.flush()
	e.counts.Timeouts = e.win.timeouts
}

// contributeAgain sends a contribution to a chunk whose result is there, without values.
func (e *engine) contributeAgain(slot, round uint32) {
	k := &e.kept[slot]
	h := wire.Header{
		Kind: wire.Contribution, Flags: wire.FlagNoValues | wire.FlagResend, Type: e.job.Type, Job: e.cfg.Job, Rank: uint16(e.cfg.Rank), Epoch: e.epoch,
		Round: round, Slot: slot, Collective: k.collective, Elements: k.elements,
	}
	if e.coder != nil {
		h.Codec = e.coder.inID
	}
	copy(e.scratch[wire.ValuesOffset:], k.values)
	e.message(h, len(k.values))
	e.counts.Again++
}

// submit starts a call of n elements. It has fill and drain, and may have gives, takes and floats.
func (e *engine) submit(n int, c *call) (*call, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err != nil {
		return nil, e.err
	}
	chunks := max((n+e.job.Elements-1)/e.job.Elements, 1)
	c.id, c.first, c.chunks, c.elements, c.left, c.done, c.start = e.seq, e.win.end, chunks, n, chunks, make(chan struct{}), time.Now()
	e.seq++
	e.calls = append(e.calls, c)
	e.win.submit(chunks)
	if e.cfg.Full {
		c.gives, c.takes = part{}, part{}
	}
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
