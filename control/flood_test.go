package control

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "gradnic/control/api/v1"
)

// cpuUse is the CPU time of all processes, and of this one, so far.
func cpuUse(t *testing.T) (all, own time.Duration) {
	t.Helper()
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		t.Fatal(err)
	}
	for i, field := range strings.Fields(strings.SplitN(string(b), "\n", 2)[0])[1:] {
		ticks, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if i != 3 && i != 4 && i < 8 { // idle, waiting for disks; guests are in user already
			all += time.Duration(ticks) * 10 * time.Millisecond
		}
	}
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return all, time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Ten connections make 10,000 bad calls a second and more: the data plane goes on,
// every packet of a running job has its result, and good calls are answered.
func TestBadCallsDoNotTouchTheDataPlane(t *testing.T) {
	const least, tries = 10_000, 3
	for try := range tries {
		all, own := cpuUse(t)
		rate := badCalls(t)
		allAfter, ownAfter := cpuUse(t)
		others := float64((allAfter-all)-(ownAfter-own)) / float64(allAfter-all)
		t.Logf("%.0f bad calls a second; other processes had %.0f %% of the CPU time", rate, 100*others)
		if rate >= least || t.Failed() {
			return
		}
		switch {
		case raceEnabled || others > 0.2:
			// Not what the server can do: the data plane was watched all the same.
		case try == tries-1:
			t.Errorf("%.0f bad calls a second, at least %d are to be answered", rate, least)
		}
	}
}

// badCalls floods for two seconds and returns the calls a second.
func badCalls(t *testing.T) float64 {
	t.Helper()
	const connections, inFlight, duration = 10, 4, 2 * time.Second
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
		for first := range inFlight {
			flood.Go(func() {
				for i := first; time.Now().Before(end); i++ {
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
	return float64(calls.Load()) / duration.Seconds()
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
