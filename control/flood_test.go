package control

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "gradnic/control/api/v1"
)

// Ten connections make bad calls as fast as they can: the data plane goes on, every
// packet of a running job has its result, and good calls are answered.
func TestBadCallsDoNotTouchTheDataPlane(t *testing.T) {
	const connections, duration = 10, 2 * time.Second
	r := newRig(t)
	ctx := t.Context()
	if _, err := r.client.InstallJob(ctx, &apiv1.InstallJobRequest{Spec: jobSpec("running", 1)}); err != nil {
		t.Fatal(err)
	}
	stop, traffic := make(chan struct{}), make(chan error, 1)
	results := 0
	go func() { traffic <- r.reduce(stop, &results) }()

	var calls atomic.Uint64
	var flood sync.WaitGroup
	end := time.Now().Add(duration)
	for range connections {
		c, err := Dial(r.socket)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		flood.Go(func() {
			for i := 0; time.Now().Before(end); i++ {
				var err error
				switch i % 3 {
				case 0:
					_, err = c.GetJob(ctx, &apiv1.GetJobRequest{Name: "nobody's"})
				case 1:
					_, err = c.InstallJob(ctx, &apiv1.InstallJobRequest{Spec: &apiv1.JobSpec{Name: "bad", Workers: 1 << 30}})
				case 2:
					_, err = c.RemoveJob(ctx, &apiv1.RemoveJobRequest{Name: strings.Repeat("x", 1000)})
				}
				if code := status.Code(err); code != codes.NotFound && code != codes.InvalidArgument {
					t.Errorf("call %d: %v", i, err)
					return
				}
				calls.Add(1)
			}
		})
	}
	for time.Now().Before(end) {
		if _, err := r.client.ListJobs(ctx, &apiv1.ListJobsRequest{}); err != nil {
			t.Errorf("a good call: %v", err)
		}
		time.Sleep(50 * time.Millisecond)
	}
	flood.Wait()
	close(stop)
	if err := <-traffic; err != nil {
		t.Error(err)
	}
	snap := r.nic.Snapshot()
	if snap.Total.Dropped() != 0 || snap.Total.Resent != 0 || snap.Total.Results != uint64(results) || results == 0 {
		t.Errorf("%d results, %d of the NIC, %d dropped", results, snap.Total.Results, snap.Total.Dropped())
	}
	if err := snap.Check(); err != nil {
		t.Error(err)
	}
	t.Logf("%.0f bad calls a second, %d results meanwhile", float64(calls.Load())/duration.Seconds(), results)
}

func TestRefusedCallsDoNotFillTheLog(t *testing.T) {
	var log bytes.Buffer
	q := &quiet{logger: slog.New(slog.NewTextHandler(&log, nil))}
	for i := range 1000 {
		q.refusedAt(1, "/a", fmt.Errorf("bad %d", i))
	}
	q.refusedAt(2, "/b", errors.New("last"))
	if n := strings.Count(log.String(), "\n"); n != quietBurst+1 {
		t.Errorf("%d lines", n)
	}
	if s := log.String(); !strings.HasSuffix(s, "method=/b err=last not_logged_before=980\n") {
		t.Errorf("%s", s)
	}
}
