package dataplane

import "fmt"

// wireOverhead is what a frame takes of an Ethernet link beside its bytes: preamble, frame check sequence and gap.
const wireOverhead = 8 + 4 + 12

// pacer lets a port of a lane send and receive no faster than a link of a certain rate: each direction is a line that is
// busy until some time. What comes meanwhile stays in the receive ring, as with a card that is not ready for it; when that
// is full, the kernel drops and counts it.
type pacer struct {
	cost    int64 // ns of one byte, in 1/1024
	in, out int64 // until when the line is busy, in ns of the lane's clock
}

const (
	paceShift = 10
	// paceSlack is how far ahead the line out may be before the lane makes no more results: a batch of the longest frames
	// is sent at once, and the clock is read once a round.
	paceSlack = 20_000
)

// take books frames on a line that is busy until then.
func (p *pacer) take(busy *int64, now int64, frames []Desc) {
	bytes := 0
	for i := range frames {
		bytes += int(frames[i].Len)
		if frames[i].Options == 0 { // the last piece
			bytes += wireOverhead
		}
	}
	*busy = max(*busy, now-paceSlack) + int64(bytes)*p.cost>>paceShift
}

// mayReceive says whether a port's line is free, and no port's line out is too far ahead for more results.
func (l *lane) mayReceive(port int) bool {
	if p := l.ports[port].pace; p != nil && p.in > l.now {
		return false
	}
	for i := range l.ports {
		if p := l.ports[i].pace; p != nil && p.out > l.now+paceSlack {
			return false
		}
	}
	return true
}

// SetPace makes every port send and receive no faster than a link of this rate, in bit/s; 0 ends that. With several
// lanes each has its share of a port's rate. What comes faster waits in the receive ring, and is dropped by the kernel
// when that is full.
func (n *NIC) SetPace(rate uint64) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.state == stopped {
		return fmt.Errorf("pace: %w", ErrStopped)
	}
	if rate != 0 && (rate < 1_000_000 || rate > 1_000_000_000_000) {
		return fmt.Errorf("pace: %d bit/s: legal are 1 Mbit/s to 1 Tbit/s", rate)
	}
	if job := n.anySummed(); job != "" && rate != 0 {
		return conflictf("pace: the kernel adds up what the workers of job %s send, and it comes to no lane that could keep one", job)
	}
	n.paced = rate != 0
	n.onLanes(func(l *lane) {
		l.paced = rate != 0
		for i := range l.ports {
			l.ports[i].pace = nil
			if rate != 0 {
				l.ports[i].pace = &pacer{cost: int64(8e9 * float64(len(l.lanes)) / float64(rate) * (1 << paceShift))}
			}
		}
	})
	return nil
}
