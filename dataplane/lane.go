package dataplane

import (
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"gradnic/aggregation"
)

// publishEvery is how many busy rounds may pass before the counters are published.
const publishEvery = 16

// kickStall is how many kicks in a row may move nothing before a lane stops to insist.
const kickStall = 16

// lane owns a queue of every port, a range of chunks and a shard of slots. All fields but the mailbox, the rings, the
// sleeping flag and what is published belong to the lane's goroutine (or, before Start and after the lane's end, to
// whoever holds the NIC's lock).
type lane struct {
	id     int
	cpu    int // -1: not pinned
	cfg    *Config
	log    *slog.Logger
	area   []byte
	chunk  uint64 // bytes of a chunk
	share  uint64 // bytes of a lane's chunks: the home of address a is lane a/share
	chunks int    // a lane's chunks

	free   []uint64 // stack of own free chunks
	place  []uint16 // of all lanes, by chunk: the mark of the port whose kernel side had it last
	shift  uint     // of an address, to its chunk's number
	queues []laneQueue
	ports  []lanePort
	counts []portCounts
	lane   [numLaneCounters]uint64

	table    *matchTable
	natives  []*laneJob // by their number on the wire
	conflict int64      // when it was last said that the NIC's address has another owner
	alarm    int64      // when native jobs are to be looked at for what waits too long; 0: nothing waits

	batch   batch
	values  [valuesSize]byte // of a result, in wire order
	contrib aggregation.Contribution
	reaped  [BatchSize]uint64
	epoch   time.Time
	now     int64 // ns since the epoch, read once a round

	services   []*laneService // that live here
	serviceUDP *[1 << 16]*laneService
	anyWhole   bool // a service has a whole port

	lanes []*lane
	peers []peer // by lane, own entry unused
	held  int    // frames delayed by impairments
	paced bool   // ports have a pacer

	sharing *sharing // nil: every copy of a result is a frame of its own

	chains *chains // nil when no frame is larger than a chunk
	pieces int     // chunks in the lane's hands beside one for each held frame

	pastQueues []queueState // queues that a port no longer has

	taps  *taps // nil: nobody looks
	clock stageClock

	mail     mailbox
	sleeping atomic.Bool
	eventfd  int
	poll     []unix.PollFd
	timeout  unix.Timespec // of the poll that sleeps
	spin     time.Duration // how long to spin before sleeping
	lastWork int64         // now of the last round that found something
	rounds   int           // busy rounds since the counters were published
	dirty    bool          // something was counted since then
	quit     bool
	pub      *published
}

// laneQueue is one queue that the lane owns.
type laneQueue struct {
	queue
	port    int
	number  int // of the port's
	counts  queueCounts
	mark    uint16 // of the port, for place
	target  int    // chunks to keep in the fill ring
	filled  int    // chunks in the fill ring or on their way through the kernel
	limit   int    // most frames posted and not completed
	sending int    // frames posted and not completed
	failed  bool
	chain   joining
	stalled int      // kicks in a row that moved nothing
	shared  []uint16 // posts of shared own chunks, by chunk; nil when none are shared
}

// lanePort is what a lane knows of a port.
type lanePort struct {
	function FunctionKind
	forward  int          // index of the port to forward to
	service  *laneService // that Serve gives the frames to
	egress   *laneQueue
	tx       txBatch
	copied   bool           // the kernel copies what the port sends
	impair   *laneImpair    // nil: perfect
	pace     *pacer         // nil: as fast as it goes
	pktgen   *pktgenAccount // nil: nobody asked
	name     string
}

// peer is the rings between this lane and another.
type peer struct {
	frames  *spsc[handoff] // frames from this lane to the other
	home    *spsc[uint64]  // the other's chunks from this lane back to the other
	out     [BatchSize]handoff
	outHome [BatchSize]uint64
	nout    int
	nhome   int
	wake    bool
	in      joining // of a frame that the other lane hands over to this one
}

// handoff is a frame given to the lane that owns its slot.
type handoff struct {
	Desc
	port uint32
}

// run is the lane's life: rounds until it is told to quit.
func (l *lane) run(wg *sync.WaitGroup) {
	defer wg.Done()
	runtime.LockOSThread()
	// The thread is not unlocked: it may be pinned, so the runtime ends it with the goroutine.
	if l.cpu >= 0 {
		if err := pin(l.cpu); err != nil { // it could be, when the NIC started
			l.log.Warn("lane not pinned", "lane", l.id, "cpu", l.cpu, "err", err)
		}
	}
	l.updateNow()
	l.lastWork = l.now
	l.lane[lStarted] = uint64(max(1, l.now))
	for {
		if l.mail.pending.Load() {
			l.mail.run(l)
			if l.quit {
				break
			}
		}
		if l.round() {
			if !l.clock.busy {
				l.beginBusy()
			}
			l.dirty = true
			if l.rounds++; l.rounds >= publishEvery {
				l.publish()
			}
			if l.cfg.Wait == Adaptive {
				l.lastWork = l.now
			}
			continue
		}
		l.idle()
	}
	l.publish()
	l.mail.close(l)
}

// round takes one batch from each queue through all stages, and returns false when there was nothing to do.
func (l *lane) round() bool {
	work := 0
	if l.clock.due <= 0 {
		l.beginSample()
	}
	for i := range l.queues {
		work += l.receive(&l.queues[i], work == 0)
	}
	if len(l.peers) > 1 {
		work += l.fromPeers()
	}
	if l.held > 0 {
		work += l.releaseHeld()
	}
	if len(l.services) > 0 {
		work += l.tick()
	}
	if l.alarm != 0 {
		if work == 0 {
			l.updateNow()
		}
		work += l.ring()
	}
	work += l.flush()
	if l.clock.on {
		l.endSample()
	}
	return work > 0
}

// receive takes one batch from a queue through all stages. first is true when the round has not read the clock yet.
func (l *lane) receive(q *laneQueue, first bool) int {
	if l.paced {
		if l.updateNow(); !l.mayReceive(q.port) {
			return 0
		}
	}
	b := &l.batch
	l.begin()
	n := q.Receive(b.desc[:BatchSize])
	if n == 0 {
		return 0
	}
	if first {
		l.updateNow()
	}
	if l.paced {
		p := l.ports[q.port].pace
		p.take(&p.in, l.now, b.desc[:n])
	}
	q.filled -= n
	c := &l.counts[q.port]
	c[cBatches]++
	b.n = n
	l.clock.due--
	frames := n
	if l.chains != nil {
		raw := l.chains.raw[:copy(l.chains.raw[:], b.desc[:n])]
		b.n = 0
		frames = l.joinChains(&q.chain, q.port, raw)
		c[cRxPieces] += uint64(n - frames)
	}
	c[cReceived] += uint64(frames)
	q.counts[qReceived] += uint64(frames)
	q.counts[qBatches]++
	l.tally(stageReceive, frames)
	if l.taps != nil {
		l.taps.received(l, q.port)
	}
	l.process(q.port)
	l.refill(q)
	return n
}

// flush sends what the round has made, takes back what was sent and fills up the receive rings.
func (l *lane) flush() int {
	work := 0
	for i := range l.ports {
		if l.ports[i].tx.n > 0 {
			l.transmit(i)
			work++
		}
	}
	for i := range l.queues {
		q := &l.queues[i]
		if q.sending > 0 {
			work += l.reap(q)
			if left := q.TxPending(); left > 0 {
				l.kick(q)
				work += l.progress(q, left)
			}
		}
		if q.filled < q.target {
			l.refill(q)
		}
	}
	if len(l.peers) > 1 {
		l.toPeers()
	}
	return work
}

// progress returns 1 as long as it is worth to kick a queue again at once: until kickStall kicks in a row moved nothing.
// Then the lane may sleep, and tries again after heldPoll.
func (l *lane) progress(q *laneQueue, before int) int {
	if q.failed {
		q.stalled = kickStall
		return 0
	}
	if q.TxPending() < before {
		q.stalled = 0
		return 1
	}
	if q.stalled < kickStall {
		q.stalled++
		return 1
	}
	return 0
}

// refill tops up a queue's fill ring from the free stack, in batches.
func (l *lane) refill(q *laneQueue) {
	want := min(q.target-q.filled, len(l.free))
	if want <= 0 {
		return
	}
	before := l.at(stageFill)
	top := l.free[len(l.free)-want:]
	n := q.Fill(top)
	if n == 0 {
		l.at(before)
		return
	}
	place, shift := l.place, l.shift&63
	for _, a := range top[:n] {
		place[a>>shift] = q.mark
	}
	// Fill takes from the front of what it is given; what is left must be the stack's top again.
	if n < want {
		copy(top, top[n:])
	}
	l.free = l.free[:len(l.free)-n]
	q.filled += n
	l.counts[q.port][cFillPosted] += uint64(n)
	l.tally(stageFill, n)
	l.at(before)
}

// reap takes back the frames that were sent.
func (l *lane) reap(q *laneQueue) int {
	total := 0
	before := l.at(stageReap)
	for q.sending > 0 {
		n := q.Complete(l.reaped[:])
		if n == 0 {
			break
		}
		q.sending -= n
		total += n
		if l.sharing != nil {
			l.completeShared(q, l.reaped[:n])
		}
		for _, a := range l.reaped[:n] {
			l.release(a)
		}
	}
	l.counts[q.port][cCompleted] += uint64(total)
	q.counts[qCompleted] += uint64(total)
	l.tally(stageReap, total)
	l.at(before)
	return total
}

// release frees the chunk of an address, or sends it home when it belongs to another lane.
func (l *lane) release(addr uint64) {
	addr &^= l.chunk - 1
	if home := addr / l.share; home != uint64(l.id) {
		l.sendHome(int(home), addr)
		return
	}
	if l.sharing != nil && l.stillShared(addr) {
		return
	}
	l.free = append(l.free, addr) // never grows: the capacity is the number of own chunks
}

// take returns a free chunk.
func (l *lane) take() (addr uint64, ok bool) {
	n := len(l.free) - 1
	if n < 0 {
		return 0, false
	}
	addr = l.free[n]
	l.free = l.free[:n]
	return addr, true
}

// frame is the bytes of a descriptor.
func (l *lane) frame(d Desc) []byte {
	return l.area[d.Addr : d.Addr+uint64(d.Len)]
}

// publish makes the lane's counters readable.
func (l *lane) publish() {
	l.rounds = 0
	l.dirty = false
	l.bookBusy()
	l.lane[lHeld] = uint64(l.held)
	l.lane[lPieces] = uint64(l.pieces)
	l.lane[lFree] = uint64(len(l.free))
	l.pub.store(&l.lane, l.counts, l.queues)
}
