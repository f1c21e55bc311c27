package ring

import "time"

// stalls is what held the node up from the last turn on.
type stalls struct {
	since                           int64
	hostIn, ethernetIn, ethernetOut bool
}

// account books the time since the last turn and looks what holds the node up now.
func (e *engine) account() {
	s := &e.stalls
	if d := time.Duration(e.now - s.since); s.since != 0 && d > 0 {
		if s.hostIn {
			e.counters.HostStallIn += d
		}
		if s.ethernetIn {
			e.counters.EthernetStallIn += d
		}
		if s.ethernetOut {
			e.counters.EthernetStallOut += d
		}
	}
	t := &e.tx
	queued := t.queues[reduce].len() + t.queues[gather].len() + t.again.len()
	s.since = e.now
	s.hostIn = e.parkedForHost
	s.ethernetOut = queued > 0
	s.ethernetIn = len(e.requests) > 0 && queued == 0 && !e.parkedForHost
	e.counters.RoundTrip = time.Duration(t.rtt)
	e.counters.CongestionWindow = int(t.window)
}
