package native

import "time"

const (
	// napBatch is how many results a worker wants to find when it looks, each batch with one look, one lock and one hand-over of what
	// may follow to the kernel.
	napBatch = 24
	// napWindow is how many packets must be in flight that the link has enough to do meanwhile.
	napWindow = 4 * napBatch
	napLeast  = 100 * time.Microsecond
	napMost   = time.Millisecond
)

// nap is how long a worker that found few results does not look for more, when they come one by one through a queue: they do not
// come sooner for being waited for, and 8 workers that wake for each take a sixth more CPU time. It is short against the
// queue, and nothing when little is in flight.
func (e *engine) nap(got int) time.Duration {
	if e.state != running || got == 0 || got >= napBatch || e.win.inFlight < napWindow {
		return 0
	}
	rate := e.win.pace.rate()
	if rate == 0 {
		return 0
	}
	d := time.Duration(float64(napBatch-got) / rate)
	if d < napLeast {
		return 0
	}
	return min(d, napMost)
}
