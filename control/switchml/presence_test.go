package switchml

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	pb "gradnic/control/switchml/switchmlproto"
)

// Of three workers rank 2 never comes: it alone is named, by the registry and in the log, although rank 1 has not
// registered either, which it may only when all have come. A second worker of a rank is said too.
func TestWhoIsMissing(t *testing.T) {
	r := newRig(t)
	r.server.meetings.patient = 50 * time.Millisecond // nobody has called yet

	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	var clients []client
	for _, rank := range []int{0, 1} {
		c := r.dial(t)
		clients = append(clients, c)
		go func() { ended <- c.join(ctx, rank, 3, 77) }()
	}
	says := func(registered, sent []int) func() bool {
		return func() bool {
			job, err := r.server.options.Jobs.Get(DefaultJob)
			return err == nil && slices.Equal(job.NeverRegistered(), registered) && slices.Equal(job.NeverSent(), sent)
		}
	}
	waitFor(t, says([]int{2}, []int{0, 1}))
	waitFor(t, func() bool {
		return strings.Contains(r.log.String(), "workers have not come") && strings.Contains(r.log.String(), "missing=[2] waiting=\"[0 1]\"")
	})
	twin := r.dial(t)
	if _, err := twin.Broadcast(t.Context(), &pb.BroadcastRequest{Value: 1, Rank: 0, NumWorkers: 3}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(r.log.String(), "the same rank: stop one of them\" rank=0") {
		t.Errorf("two of rank 0: log %s", r.log.String())
	}
	twin.conn.Close()
	// They give up: nobody waits any more, and rank 0 stays registered.
	cancel()
	for range 2 {
		if err := <-ended; err == nil {
			t.Error("two of three have joined")
		}
	}
	for _, c := range clients {
		c.conn.Close()
	}
	waitFor(t, says([]int{1, 2}, []int{0}))
	r.joinAll(t, 3, 78)
	waitFor(t, says(nil, []int{0, 1, 2}))
}
