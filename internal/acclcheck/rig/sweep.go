package rig

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"gradnic/internal/acclcheck"
	"gradnic/worker/accl"
)

// Sweep makes every kind of call on many sizes by all ranks at once, and compares every rank's result with the reference.
// With full every kind takes every size from 1 to 300, otherwise every sixth, so that the types of a collective together
// take all of them. It returns how many collectives there were.
func Sweep(t testing.TB, ranks []accl.Rank, segment int, full bool) (done int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for i, c := range acclcheck.Kinds(0) {
		for _, n := range acclcheck.Sizes(c.Type, segment, false) {
			if !full && n > 3 && n <= 300 && n%6 != i%6 {
				continue
			}
			c.Count, c.Root = n, n%len(ranks)
			j := acclcheck.New(c, len(ranks), segment, uint64(n))
			if err := Do(ctx, ranks, j); err != nil {
				t.Fatal(err)
			}
			done++
		}
	}
	return done
}

// Do makes the calls of a job by all ranks at once and checks what they give.
func Do(ctx context.Context, ranks []accl.Rank, j *acclcheck.Job) error {
	errs := make([]error, len(ranks))
	var g sync.WaitGroup
	for r := range ranks {
		g.Go(func() {
			for _, c := range j.Of(r) {
				errs[r] = ranks[r].Do(ctx, c)
			}
		})
	}
	g.Wait()
	for r, err := range errs {
		if err != nil {
			return fmt.Errorf("rank %d: %w", r, err)
		}
		if _, err := j.Wrong(r); err != nil {
			return err
		}
	}
	return nil
}
