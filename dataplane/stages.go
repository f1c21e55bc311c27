package dataplane

import "time"

// stage is a part of a lane's work. Frames and batches are counted for each; the time that a frame takes in it is
// measured on one batch in sampleEvery, so that clocks are read seldom.
type stage uint8

const (
	stageReceive   stage = iota // the receive rings, impairments
	stageParse                  // headers; ARP, echo and what is not for us end here
	stageMatch                  // the worker
	stageHandOff                // to and from other lanes
	stageAggregate              // slots, results, copies
	stageFunction               // reflect, sink, forward
	stageTransmit               // posting
	stageKick                   // in the kernel: in copy mode it sends in this call
	stageReap                   // completions
	stageFill                   // chunks into the fill rings

	numStages = int(iota)
)

var stageNames = [...]string{"receive", "parse", "match", "hand-off", "aggregate", "function", "transmit", "kick", "reap", "fill"}

// sampleEvery is how many batches pass from one that is timed to the next.
const sampleEvery = 1024

// Words of a stage among the lane's counters.
const (
	sFrames = iota
	sBatches
	sTimedFrames
	sTimedNS
	stageWords
)

// stageClock is the lane's watch.
type stageClock struct {
	due     int // batches until one is timed
	on      bool
	current stage
	since   int64
	frames  [numStages]uint64 // of the round that is timed
	ns      [numStages]uint64

	busy      bool
	busySince int64
	idleSince int64
}

// tally counts n frames in a stage.
func (l *lane) tally(s stage, n int) {
	if n == 0 {
		return
	}
	c := l.lane[lStages+int(s)*stageWords:][:stageWords:stageWords]
	c[sFrames] += uint64(n)
	c[sBatches]++
	if l.clock.on {
		l.clock.frames[s] += uint64(n)
	}
}

// at says that the lane is in stage s from here on, and returns the stage before.
func (l *lane) at(s stage) stage {
	if l.clock.on {
		return l.clockTo(s)
	}
	return s
}

// enter is at for a stage with n frames.
func (l *lane) enter(s stage, n int) {
	l.at(s)
	l.tally(s, n)
}

// clockTo books the time since the last change of stage.
func (l *lane) clockTo(s stage) stage {
	c := &l.clock
	now := int64(time.Since(l.epoch))
	before := c.current
	c.ns[before] += uint64(now - c.since)
	c.current, c.since = s, now
	return before
}

// beginSample starts the watch. The round that follows may have no batch; then it does not count, and the next is timed.
func (l *lane) beginSample() {
	c := &l.clock
	c.on, c.due = true, 0
	c.frames, c.ns = [numStages]uint64{}, [numStages]uint64{}
	c.current, c.since = stageReceive, int64(time.Since(l.epoch))
}

// endSample stops the watch at the end of a round.
func (l *lane) endSample() {
	c := &l.clock
	if c.due < 0 { // a batch came
		l.clockTo(stageReceive)
		for s := range c.ns {
			w := l.lane[lStages+s*stageWords:]
			w[sTimedFrames] += c.frames[s]
			w[sTimedNS] += c.ns[s]
		}
		c.due += sampleEvery
	}
	c.on = false
}

// beginBusy is called when a round had work after an idle one.
func (l *lane) beginBusy() {
	c := &l.clock
	if l.now <= c.idleSince { // the round did not read the clock
		l.updateNow()
	}
	c.busy, c.busySince = true, l.now
}

// endBusy is called when a round had no work after one that had.
func (l *lane) endBusy() {
	l.updateNow()
	l.bookBusy()
	l.clock.busy, l.clock.idleSince = false, l.now
}

// bookBusy adds the time since it was called last, while the lane is busy.
func (l *lane) bookBusy() {
	c := &l.clock
	if c.busy {
		l.lane[lBusy] += uint64(l.now - c.busySince)
		c.busySince = l.now
	}
}

// endSleep is called when the lane has woken.
func (l *lane) endSleep() {
	l.updateNow()
	l.lane[lSlept] += uint64(l.now) - l.lane[lAsleep]
	l.lane[lAsleep] = 0
}

// LaneTime says what a lane did with its time since it started, in nanoseconds. Spin is looking at empty queues.
type LaneTime struct {
	Life  time.Duration `json:"life_ns"`
	Busy  time.Duration `json:"busy_ns"`
	Spin  time.Duration `json:"spin_ns"`
	Sleep time.Duration `json:"sleep_ns"`
}

// Share is a part of Life, 0 to 1.
func (t LaneTime) Share(part time.Duration) float64 {
	if t.Life <= 0 {
		return 0
	}
	return float64(part) / float64(t.Life)
}

// StageSnapshot is a stage of one lane, or of all. Stages are disjoint: a transmit in the midst of aggregate counts
// as transmit.
type StageSnapshot struct {
	Stage string `json:"stage"`
	// Frames and Batches went through the stage; for fill and reap they are chunks.
	Frames  uint64 `json:"frames"`
	Batches uint64 `json:"batches"`
	// TimedFrames were timed, and took TimedNS nanoseconds of the stage together; the clock itself is in it, some
	// tens of nanoseconds a batch. Receive also has the rounds' looking around.
	TimedFrames uint64 `json:"timed_frames"`
	TimedNS     uint64 `json:"timed_ns"`
}

// NSPerFrame is the time of a frame in the stage, 0 when none was timed.
func (s *StageSnapshot) NSPerFrame() float64 {
	if s.TimedFrames == 0 {
		return 0
	}
	return float64(s.TimedNS) / float64(s.TimedFrames)
}

// stagesOf turns a lane's counters into the public form.
func stagesOf(c *[numLaneCounters]uint64) []StageSnapshot {
	out := make([]StageSnapshot, numStages)
	for s := range out {
		w := c[lStages+s*stageWords:]
		out[s] = StageSnapshot{stageNames[s], w[sFrames], w[sBatches], w[sTimedFrames], w[sTimedNS]}
	}
	return out
}

// timeOf tells a lane's time at now.
func timeOf(c *[numLaneCounters]uint64, now int64) LaneTime {
	if c[lStarted] == 0 || now < int64(c[lStarted]) {
		return LaneTime{}
	}
	t := LaneTime{Life: time.Duration(now - int64(c[lStarted])), Busy: time.Duration(c[lBusy]), Sleep: time.Duration(c[lSlept])}
	if since := int64(c[lAsleep]); since != 0 && now > since {
		t.Sleep += time.Duration(now - since)
	}
	t.Spin = max(0, t.Life-t.Busy-t.Sleep)
	return t
}

// Rings are a queue's, or the sums over a port's queues: chunks posted to receive into and frames posted to be sent, both not
// back yet, and how many may be.
type Rings struct {
	Fill         uint64 `json:"fill"`
	FillMost     uint64 `json:"fill_most"`
	Transmit     uint64 `json:"transmit"`
	TransmitMost uint64 `json:"transmit_most"`
}

// ringMost is how many chunks a queue may post to be received into, and as many frames to be sent.
func (n *NIC) ringMost(open *openPort) uint64 {
	depth := open.depth
	if depth == 0 {
		depth = n.cfg.FramesPerQueue
	}
	return uint64(depth / 2)
}

// rings is how full the rings of a port with these counts are.
func (n *NIC) rings(p *port, c *portCounts) Rings {
	if p.open == nil {
		return Rings{}
	}
	most := uint64(len(p.open.queues)) * n.ringMost(p.open)
	f := frames(c, &[numLaneCounters]uint64{})
	return Rings{Fill: f.Fill, FillMost: most, Transmit: f.Transmit, TransmitMost: most}
}
