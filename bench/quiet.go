package bench

import (
	"context"
	"fmt"
	"time"

	"gradnic/bench/calm"
)

const (
	// quietWait is how long one try of a turn waits for calm CPUs, and quietTries how many tries it has.
	quietWait  = 2 * time.Second
	quietTries = 4
)

// quiet has turns wait for calm CPUs, and repeats those in which a neighbour may have had half of one, as long as there is
// patience left.
type quiet struct {
	wait     func(context.Context, time.Duration) (bool, error)
	look     func() (bool, error)
	best     func() time.Duration
	patience time.Duration // what may still be spent on waiting and repeating

	turns, repeated, disturbed int
}

// beQuiet makes turns count when both CPUs were calm right before and right after. patience is the time that this may take in all.
func (r *Rig) beQuiet(patience time.Duration) error {
	w, err := calm.New(r.genCPU, r.devCPU)
	if err != nil {
		return err
	}
	r.quiet = &quiet{wait: w.Wait, look: w.Calm, best: w.Best, patience: patience}
	return nil
}

// inQuiet takes a turn. It may take it again, and the last one is the one that counts.
func (r *Rig) inQuiet(ctx context.Context, turn func() error) error {
	q := r.quiet
	if q == nil {
		return turn()
	}
	q.turns++
	for try := 1; ; try++ {
		start := time.Now()
		before, err := q.wait(ctx, min(quietWait, max(0, q.patience)))
		if err != nil {
			return err
		}
		waited := time.Since(start)
		if err := turn(); err != nil {
			return err
		}
		after, err := q.look()
		if err != nil {
			return err
		}
		q.patience -= waited
		switch {
		case before && after:
			return nil
		case try == quietTries || q.patience <= 0:
			q.disturbed++
			return nil
		}
		q.repeated++
		q.patience -= time.Since(start) - waited
	}
}

// note says how quiet it was.
func (q *quiet) note() string {
	return fmt.Sprintf("a turn counts when both CPUs were calm right before and right after it (a loop of additions took at most %.2f of its best time, %v): "+
		"%d of %d turns count although one was not, %d were repeated", calm.Tolerance, q.best().Round(time.Microsecond), q.disturbed, q.turns, q.repeated)
}
