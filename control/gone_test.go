package control

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	apiv1 "gradnic/control/api/v1"
	"gradnic/control/store"
	"gradnic/dataplane"
	"gradnic/wire/inet"
)

// The control plane goes away and comes back, while the data plane goes on: no packet
// is lost, nothing is installed twice, and the jobs are as they were.
func TestControlPlaneGoneAndBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs.db")
	ports := []*dataplane.MemPort{dataplane.NewMemPort("mem0")}
	nic, err := dataplane.New(dataplane.Config{MAC: nicMAC, IP: nicIP}, ports[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := nic.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := nic.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	begin := func() (*Jobs, func()) {
		t.Helper()
		kept, err := store.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		s, err := New(Options{NIC: nic, Store: kept})
		if err != nil {
			t.Fatal(err)
		}
		return s.Jobs(), func() {
			s.Stop(context.Background())
			if err := kept.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	spec, err := jobSpecFromProto(jobSpec("running", 1), portNames{"mem0"})
	if err != nil {
		t.Fatal(err)
	}
	two := dataplane.JobSpec{Name: "two", Workers: 2, Elements: 64, Slots: 4}
	jobs, end := begin()
	for _, s := range []dataplane.JobSpec{spec, two} {
		if _, err := jobs.InstallFor(s, OriginAPI, time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := jobs.AddWorker("two", dataplane.WorkerSpec{Rank: 1, MAC: inet.MAC{2, 0, 0, 0, 9, 1}, IP: inet.Addr{10, 50, 0, 99}, Port: -1}); err != nil {
		t.Fatal(err)
	}
	stop, traffic := make(chan struct{}), make(chan error, 1)
	results := 0
	r := &rig{nic: nic, ports: ports}
	go func() { traffic <- r.reduce(stop, &results) }()
	wait := func() {
		t.Helper()
		was := nic.Snapshot().Total.Results
		for deadline := time.Now().Add(10 * time.Second); nic.Snapshot().Total.Results < was+20; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("the data plane stands still")
			}
		}
	}
	wait()
	before := jobs.List()
	end()
	wait() // nobody controls it

	jobs, end = begin()
	defer end()
	after := jobs.List()
	if len(after) != 2 || len(jobs.Lost()) != 0 {
		t.Fatalf("%+v, lost %v", after, jobs.Lost())
	}
	for i := range after {
		if a, b := after[i], before[i]; a.Generation != b.Generation || a.Origin != b.Origin || a.Lease != b.Lease || len(a.Members()) != len(b.Members()) {
			t.Errorf("%+v, was %+v", a, b)
		}
	}
	if after[0].Results < before[0].Results {
		t.Errorf("its counts began anew: %d results, were %d", after[0].Results, before[0].Results)
	}
	if created, err := jobs.InstallFor(spec, OriginAPI, time.Hour); err != nil || created {
		t.Errorf("installed twice: %v, %v", created, err)
	}
	wait()
	close(stop)
	if err := <-traffic; err != nil {
		t.Error(err)
	}
	if snap := nic.Snapshot(); snap.Total.Results != uint64(results) || snap.Total.Dropped() != 0 {
		t.Errorf("%d results of %d, %d dropped", snap.Total.Results, results, snap.Total.Dropped())
	}
}

// A job that goes leaves nothing: the next one of its name begins with empty slots and
// counters at zero.
func TestSlotsAreCleared(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	install := func() *apiv1.Job {
		t.Helper()
		resp, err := r.client.InstallJob(ctx, &apiv1.InstallJobRequest{Spec: jobSpec("running", 1)})
		if err != nil {
			t.Fatal(err)
		}
		return resp.GetJob()
	}
	install()
	stop, traffic := make(chan struct{}), make(chan error, 1)
	results := 0
	go func() { traffic <- r.reduce(stop, &results) }()
	for deadline := time.Now().Add(10 * time.Second); r.nic.Snapshot().Total.Results < 40; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("no results")
		}
	}
	close(stop)
	if err := <-traffic; err != nil {
		t.Fatal(err)
	}
	job, err := r.client.GetJob(ctx, &apiv1.GetJobRequest{Name: "running"})
	if err != nil || job.GetJob().GetSlots().GetInUse() == 0 || job.GetJob().GetWorkers()[0].GetReceived() == 0 {
		t.Fatalf("%v, %v", job, err)
	}
	if gone := r.server.Jobs().Expire(time.Now().Add(time.Hour)); len(gone) != 0 {
		t.Fatalf("without a lease: %v", gone)
	}
	if _, err := r.client.RemoveJob(ctx, &apiv1.RemoveJobRequest{Name: "running"}); err != nil {
		t.Fatal(err)
	}
	_, err = r.client.GetJob(ctx, &apiv1.GetJobRequest{Name: "running"})
	code(t, err, codes.NotFound)
	fresh := install()
	if w := fresh.GetWorkers()[0]; fresh.GetSlots().GetInUse() != 0 || fresh.GetResults() != 0 || w.GetReceived() != 0 || w.GetJoined() || fresh.GetSlots().GetTotal() != 32 {
		t.Errorf("it begins with %v", fresh)
	}
}
