package native

import (
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

	feedback int64 // bytes of all Feedback
	wg       sync.WaitGroup
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
	floats   *floats                    // with a codec, the arrays themselves, where there are
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
		scratch: make([]byte, wire.FrameLen(wire.ReportLen+wire.MaxSlots/8+wire.SaltLen+wire.TrailerLen)), reportGap: reportFirst,
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
	}
	e.message(h, body.Put(e.scratch[wire.ValuesOffset:]))
	e.counts.Reports++
	e.reportAt = now + e.reportGap
	e.reportGap = min(2*e.reportGap, reportMost)
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
	for {
		chunk, again, ok := e.win.take(now)
		if !ok {
			break
		}
		slot, round := e.win.place(chunk)
		frame := e.frames[slot]
		h := wire.Header{Kind: wire.Contribution, Type: e.job.Type, Job: e.cfg.Job, Rank: uint16(e.cfg.Rank), Epoch: e.epoch, Round: round, Slot: slot}
		payload := e.bytes
		c := e.callOf(chunk)
		lo, hi := c.span(chunk, e.job.Elements)
		if again {
			h.Flags = wire.FlagResend
			e.counts.Resent++
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
		n := e.putFrame(frame, &h, payload)
		e.put(frame[:n])
	}
	e.flush()
	e.counts.Timeouts = e.win.timeouts
}

// submit starts a call of n elements.
func (e *engine) submit(n int, fill, drain func(lo, hi int, b []byte), f *floats) (*call, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err != nil {
		return nil, e.err
	}
	chunks := max((n+e.job.Elements-1)/e.job.Elements, 1)
	c := &call{id: e.seq, first: e.win.end, chunks: chunks, elements: n, fill: fill, drain: drain, floats: f, left: chunks, done: make(chan struct{}), start: time.Now()}
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
