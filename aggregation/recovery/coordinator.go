package recovery

import "slices"

// Report is what one worker says.
type Report struct {
	Rank  int
	Epoch uint32 // in which it reports; 0: it knows none
	Life  uint32 // 0: it starts
	Nonce uint32 // of the worker's process
	Low   uint64 // it has the results of all chunks before
	Have  []byte // bit i: and that of chunk Low+i; least significant bit first

	// NoValues says that the worker has results without their values. Have then begins at chunk Low-Back, and has a bit for
	// each result that it has the values of; of chunks from Low+Ahead on it has no result.
	NoValues    bool
	Back, Ahead uint64
}

// has reports whether the worker has the result of a chunk, with its values.
func (r *Report) has(chunk uint64) bool {
	from := r.Low
	if r.NoValues {
		from -= min(r.Back, from)
	}
	if chunk < from {
		return true
	}
	i := chunk - from
	return i < uint64(8*len(r.Have)) && r.Have[i>>3]>>(i&7)&1 == 1
}

// end is one more than the last chunk that the worker has the result of, with or without values.
func (r *Report) end() uint64 {
	if r.NoValues {
		return r.Low + r.Ahead
	}
	for i := len(r.Have) - 1; i >= 0; i-- {
		for b := 7; b >= 0; b-- {
			if r.Have[i]>>b&1 == 1 {
				return r.Low + uint64(8*i+b) + 1
			}
		}
	}
	return r.Low
}

// State is where a job stands.
type State uint8

// The states.
const (
	Forming   State = iota // not all workers have reported
	Ready                  // all have: the job runs
	OutOfStep              // all have, and do not belong together
	Aborted                // a worker left, or was waited for too long
)

// Change is what a message did, as a set.
type Change uint8

// The changes.
const (
	Began  Change = 1 << iota // a new epoch: slots are to be forgotten, the other workers to be told
	Formed                    // Ready: Formation says what is wanted, all workers are to be told
	Broke                     // OutOfStep: all workers are to be told
	Ended                     // Aborted: all workers are to be told
)

// Reply is what to tell the worker that sent a message.
type Reply uint8

// The replies.
const (
	Wait        Reply = iota // for those that Missing lists
	Go                       // the job runs
	NotTogether              // Blamed started anew, or stayed behind
	Over                     // the job was aborted because of Blamed
)

// Coordinator brings the workers of one job together.
type Coordinator struct {
	workers  int
	slots    uint64
	newEpoch func() uint32

	epoch   uint32
	state   State
	reports []Report
	present []bool
	count   int
	formed  *Formation
	blamed  []int
	dead    uint32 // the life that was aborted last
}

// New makes a coordinator in its first epoch. newEpoch draws random numbers; 0 and the epoch that is are drawn again.
func New(workers, slots int, newEpoch func() uint32) *Coordinator {
	c := &Coordinator{workers: workers, slots: uint64(slots), newEpoch: newEpoch}
	c.begin()
	return c
}

func (c *Coordinator) begin() {
	for old := c.epoch; c.epoch == 0 || c.epoch == old; {
		c.epoch = c.newEpoch()
	}
	c.state = Forming
	c.reports, c.present, c.count = make([]Report, c.workers), make([]bool, c.workers), 0
	c.formed, c.blamed = nil, nil
}

// Epoch is the number of the job's present memory.
func (c *Coordinator) Epoch() uint32 { return c.epoch }

// State is where the job stands.
func (c *Coordinator) State() State { return c.state }

// Formation is what the reports came to; nil unless the state is Ready.
func (c *Coordinator) Formation() *Formation { return c.formed }

// Blamed are the ranks because of which the state is OutOfStep or Aborted.
func (c *Coordinator) Blamed() []int { return c.blamed }

// Missing are the ranks that have not reported in this epoch.
func (c *Coordinator) Missing() (ranks []int) {
	for r, ok := range c.present {
		if !ok {
			ranks = append(ranks, r)
		}
	}
	return ranks
}

// Reply is what to tell a worker that sent something else than a report.
func (c *Coordinator) Reply() Reply {
	return [...]Reply{Forming: Wait, Ready: Go, OutOfStep: NotTogether, Aborted: Over}[c.state]
}

// Report takes a worker's report. Have is copied. A rank that does not exist is told to wait for ever.
func (c *Coordinator) Report(r Report) (Change, Reply) {
	if r.Rank < 0 || r.Rank >= c.workers {
		return 0, Wait
	}
	old := &c.reports[r.Rank]
	known := c.present[r.Rank] && old.Nonce == r.Nonce
	var change Change
	switch c.state {
	case Aborted:
		if r.Life != 0 {
			return 0, Over
		}
		c.begin()
		change = Began
	case Ready:
		switch {
		case known: // it may not have heard of the life that began
			return 0, Go
		case r.Life != 0:
			return 0, Over // of a process that was replaced
		}
		c.begin()
		change = Began
	case OutOfStep:
		if r.Life != 0 {
			return 0, NotTogether
		}
	case Forming:
		switch {
		case r.Life != 0 && (r.Life == c.dead || c.present[r.Rank] && !known && old.Life == 0):
			return 0, Over
		case r.Life != 0 && r.Epoch != c.epoch:
			return 0, Wait
		}
	}
	if !c.present[r.Rank] {
		c.present[r.Rank] = true
		c.count++
	}
	r.Have = slices.Clone(r.Have)
	c.reports[r.Rank] = r
	if c.count == c.workers {
		change |= c.judge()
	}
	return change, c.Reply()
}

// judge decides when all have reported.
func (c *Coordinator) judge() Change {
	was := c.state
	low, end, same := c.reports[0].Low, uint64(0), true
	for i := range c.reports {
		r := &c.reports[i]
		low = min(low, r.Low)
		end = max(end, r.end())
		same = same && r.Life == c.reports[0].Life
	}
	life := c.epoch
	switch {
	case end == 0: // nobody has anything, whatever they were
	case same && c.reports[0].Life != 0 && end <= low+c.slots:
		life = c.reports[0].Life
	default:
		c.state = OutOfStep
		c.blamed = nil
		for i := range c.reports {
			if c.reports[i].Life == 0 {
				c.blamed = append(c.blamed, i)
			}
		}
		if len(c.blamed) == 0 || len(c.blamed) == c.workers {
			c.blamed = nil
			for i := range c.reports {
				if c.reports[i].Low == low {
					c.blamed = append(c.blamed, i)
				}
			}
		}
		if was == OutOfStep {
			return 0
		}
		return Broke
	}
	c.state = Ready
	c.blamed = nil
	c.formed = newFormation(c.epoch, life, c.slots, low, c.reports)
	return Formed
}

// Leave takes the word of a worker that gives up. While a job forms anew from workers that all start, only its
// report is forgotten.
func (c *Coordinator) Leave(rank int, nonce uint32) Change {
	if rank < 0 || rank >= c.workers || !c.present[rank] || c.reports[rank].Nonce != nonce {
		return 0
	}
	switch c.state {
	case Aborted:
		return 0
	case Forming, OutOfStep:
		if c.reports[rank].Life == 0 {
			c.present[rank] = false
			c.reports[rank] = Report{}
			c.count--
			c.state = Forming
			return 0
		}
	}
	return c.Abort([]int{rank})
}

// Abort ends the job because of some ranks. Reports with life 0 start it again.
func (c *Coordinator) Abort(ranks []int) Change {
	if c.state == Aborted {
		return 0
	}
	if c.formed != nil {
		c.dead = c.formed.Life
	} else {
		for i := range c.reports {
			if c.present[i] && c.reports[i].Life != 0 {
				c.dead = c.reports[i].Life
			}
		}
	}
	c.state, c.blamed, c.formed = Aborted, slices.Clone(ranks), nil
	return Ended
}
