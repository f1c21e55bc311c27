package ring

import "time"

// request is a Request on the lane.
type request struct {
	Request
	id       uint64
	number   uint32 // in its generation
	cut      *cut
	first    uint32 // block
	blocks   uint32
	left     int // frames that the host has not been given
	taken    int64
	started  int64
	deadline int64
	stats    Stats
}

// has says whether a block is one of the request's.
func (r *request) has(block uint32) bool { return block-r.first < r.blocks }

// frames is how many its host is given: of each block its own slice, when it is finished here, and N-1 others.
func (r *request) frames(nodes int) int { return int(r.blocks) * nodes * r.cut.frames }

// claim is what its frames say.
func (r *request) claim() claim { return claim{r.cut, r.number, uint32(len(r.Data))} }

// done gives the host its completion.
func (e *engine) done(r *request, err error) {
	r.stats.Elapsed = time.Duration(e.now - r.taken)
	if r.started == 0 {
		r.started = e.now
	}
	r.stats.Waited = time.Duration(r.started - r.taken)
	if err == nil {
		if r.Weights != nil {
			copy(r.Weights, r.Data)
		}
		e.counters.Completed++
		e.counters.Latency += r.stats.Elapsed
	} else {
		e.counters.Failed++
	}
	e.ended(r, Completion{ID: r.id, Err: err, Stats: r.stats})
}
