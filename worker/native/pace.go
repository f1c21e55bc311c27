package native

import "time"

// pace is how many chunks may be in flight. It grows as results come, by as many as come at first and by a few a round
// after the first loss or queue, and shrinks once a round by half of the part that was lost (the rule of DCTCP, RFC 8257, with
// losses for marks), so that random loss does not stop it and an overflowing queue does not last; and by the part by
// which even the shortest round trip of the round is over its target (after Swift, SIGCOMM 2020), so that the queue does
// not fill up in the first place. A round is as many results as were allowed in flight when it began.
//
// A round trip is also long when a worker or the network was not given a CPU for a while, and that is no queue: fewer packets in
// flight would not make it shorter, but leave the link idle. So a long round trip does not take the window below what fills the
// link at the rate at which results lately came, with a queue that is as long as the target; and below that, the window
// grows as fast as at first unless there were losses.
type pace struct {
	window    float64
	most      float64
	slow      bool // start: no loss or queue yet
	round     int  // results of this round
	got, bad  int  // in this round
	long      int  // results in a row that took long
	clean     int  // rounds since the last one with losses
	shortest  int64
	base      int64 // the shortest round trip ever; 0 for none
	from      int64 // since when results are counted for the rate
	count     int
	rates     [rateSpans]float64 // results a nanosecond, in the last spans
	rateIndex int
}

const (
	paceStart  = 16
	paceLeast  = 8
	paceStep   = 8
	paceTarget = int64(12 * time.Millisecond) // of queueing
	// paceClean is how many rounds after a loss the window grows in steps only.
	paceClean = 8
	// paceQuick is how much of the full window it then grows to in results.
	paceQuick = 0.75
	// The rate is the highest of as many spans. A span is so long that a burst, as after a worker did not run, is little in it.
	rateSpans = 8
	rateSpan  = int64(64 * time.Millisecond)
)

func newPace(most int) pace {
	p := pace{most: float64(most)}
	p.restart()
	return p
}

func (p *pace) restart() {
	p.window, p.slow, p.clean, p.long = min(paceStart, p.most), true, paceClean, 0
	p.begin()
}

func (p *pace) begin() {
	p.window = max(min(p.window, p.most), min(paceLeast, p.most))
	p.got, p.bad, p.shortest = 0, 0, 0
	p.round = int(p.window)
}

func (p *pace) limit() int { return int(p.window) }

func (p *pace) lost() { p.bad++ }

// rate is how many results a nanosecond lately came at most; 0 when nothing is known.
func (p *pace) rate() (rate float64) {
	for _, r := range p.rates {
		rate = max(rate, r)
	}
	return rate
}

// full is the window that fills the link with the queue that is the target; 0 when nothing is known.
func (p *pace) full() float64 { return p.rate() * float64(p.base+paceTarget) }

// delivered takes a result with its round trip, -1 when it was sent more than once.
func (p *pace) delivered(now, rtt int64) {
	p.got++
	p.measure(now)
	if rtt > 0 {
		if p.shortest == 0 || rtt < p.shortest {
			p.shortest = rtt
		}
		if p.base == 0 || rtt < p.base {
			p.base = rtt
		}
		if rtt <= p.base+paceTarget/2 {
			p.long = 0
		} else if p.long++; p.long >= paceLeast {
			p.slow = false // before the queue overflows
		}
	}
	if p.bad == 0 && (p.slow || p.clean >= paceClean && p.window < paceQuick*p.full()) {
		p.window = min(p.window+1, p.most)
	}
	if p.got < p.round {
		return
	}
	over := p.shortest - p.base - paceTarget
	p.clean++
	switch {
	case p.bad > 0:
		p.slow, p.clean = false, 0
		p.window = (p.window + paceStep) * (1 - float64(p.bad)/float64(p.bad+p.got)/2)
	case p.shortest > 0 && over > 0:
		p.slow = false
		p.window = max(p.window*(1-0.5*float64(over)/float64(p.shortest)), min(p.window, p.full()))
	case !p.slow:
		p.window += paceStep
	}
	p.begin()
}

// measure takes a result for the rate.
func (p *pace) measure(now int64) {
	if p.count == 0 {
		p.from = now
	}
	p.count++
	if d := now - p.from; d >= rateSpan {
		p.rates[p.rateIndex] = float64(p.count) / float64(d)
		p.rateIndex = (p.rateIndex + 1) % rateSpans
		p.from, p.count = now, 1
	}
}
