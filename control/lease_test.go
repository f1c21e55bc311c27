package control

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	apiv1 "gradnic/control/api/v1"
	"gradnic/control/store"
	"gradnic/dataplane"
)

// clock is time that a test moves.
type clock struct {
	mu sync.Mutex
	t  time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clock) pass(d time.Duration) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
	return c.t
}

func code(t *testing.T, err error, want codes.Code) {
	t.Helper()
	if got := status.Code(err); got != want {
		t.Fatalf("%v: %v, want %v", err, got, want)
	}
}

// A job whose owner stops renewing is removed, one that is renewed stays, and the
// slots of the one that went are free: the next job of the name begins at nothing.
func TestLeaseEnds(t *testing.T) {
	c := &clock{t: time.Unix(1_800_000_000, 0)}
	r := newRig(t)
	jobs := r.server.Jobs()
	jobs.now = c.now
	ctx := t.Context()
	leased := func(name string, lease time.Duration) {
		t.Helper()
		spec := jobSpec(name, 2)
		spec.Members = nil
		resp, err := r.client.InstallJob(ctx, &apiv1.InstallJobRequest{Spec: spec, Lease: durationpb.New(lease)})
		if err != nil {
			t.Fatal(err)
		}
		if got := resp.GetJob().GetExpires().AsTime(); !got.Equal(c.now().Add(lease)) || resp.GetJob().GetLease().AsDuration() != lease {
			t.Fatalf("lease %v, expires %v", resp.GetJob().GetLease(), got)
		}
	}
	leased("left", 10*time.Second)
	leased("kept", 10*time.Second)
	if _, err := jobs.Install(dataplane.JobSpec{Name: "ever", Workers: 1}, OriginAPI); err != nil {
		t.Fatal(err)
	}
	if gone := jobs.Expire(c.pass(9 * time.Second)); len(gone) != 0 {
		t.Fatalf("gone early: %v", gone)
	}
	if _, err := r.client.RenewLease(ctx, &apiv1.RenewLeaseRequest{Name: "kept"}); err != nil {
		t.Fatal(err)
	}
	if gone := jobs.Expire(c.pass(time.Second)); !slices.Equal(gone, []string{"left"}) {
		t.Fatalf("gone: %v", gone)
	}
	_, err := r.client.GetJob(ctx, &apiv1.GetJobRequest{Name: "left"})
	code(t, err, codes.NotFound)
	_, err = r.client.RenewLease(ctx, &apiv1.RenewLeaseRequest{Name: "left"})
	if s := status.Convert(err).Message(); s != "job left: no such job: its lease may have ended, install it again" {
		t.Errorf("%q", s)
	}
	code(t, err, codes.NotFound)
	leased("kept", 20*time.Second) // installing again renews, with the new lease
	if gone := jobs.Expire(c.pass(19 * time.Second)); len(gone) != 0 {
		t.Fatalf("gone although renewed: %v", gone)
	}
	if gone := jobs.Expire(c.pass(365 * 24 * time.Hour)); !slices.Equal(gone, []string{"kept"}) {
		t.Fatalf("gone: %v", gone)
	}
	for _, wrong := range []time.Duration{-1, 1, 8 * 24 * time.Hour} {
		_, err := r.client.InstallJob(ctx, &apiv1.InstallJobRequest{Spec: jobSpec("wrong", 1), Lease: durationpb.New(wrong)})
		code(t, err, codes.InvalidArgument)
	}
}

func TestStaleWriterIsRefused(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	spec := jobSpec("train", 3)
	spec.Members = spec.Members[:1]
	first, err := r.client.InstallJob(ctx, &apiv1.InstallJobRequest{Spec: spec})
	if err != nil {
		t.Fatal(err)
	}
	old := first.GetJob().GetGeneration()
	second, err := r.client.AddWorker(ctx, &apiv1.AddWorkerRequest{Job: "train", Worker: member(1), Generation: old})
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.client.AddWorker(ctx, &apiv1.AddWorkerRequest{Job: "train", Worker: member(2), Generation: old})
	code(t, err, codes.Aborted)
	_, err = r.client.RemoveJob(ctx, &apiv1.RemoveJobRequest{Name: "train", Generation: old})
	code(t, err, codes.Aborted)
	_, err = r.client.RenewLease(ctx, &apiv1.RenewLeaseRequest{Name: "train", Generation: old})
	code(t, err, codes.Aborted)
	if _, err := r.client.RemoveJob(ctx, &apiv1.RemoveJobRequest{Name: "train", Generation: second.GetJob().GetGeneration()}); err != nil {
		t.Fatal(err)
	}
}

func TestWatchTellsEveryChangeInOrder(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	spec := jobSpec("train", 3)
	spec.Members = spec.Members[:2]
	if _, err := r.client.InstallJob(ctx, &apiv1.InstallJobRequest{Spec: spec}); err != nil {
		t.Fatal(err)
	}
	stream, err := r.client.WatchJobs(ctx, &apiv1.WatchJobsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	next := func(want string) {
		t.Helper()
		m, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(m.GetChange(), " ", m.GetName(), " ", m.GetGeneration(), " ", len(m.GetJob().GetWorkers())); got != want {
			t.Fatalf("%s, want %s", got, want)
		}
	}
	next("CHANGE_LISTED train 1 2")
	if _, err := r.client.AddWorker(ctx, &apiv1.AddWorkerRequest{Job: "train", Worker: member(2)}); err != nil {
		t.Fatal(err)
	}
	next("CHANGE_CHANGED train 2 3")
	other := jobSpec("other", 1)
	other.Members = nil
	if _, err := r.client.InstallJob(ctx, &apiv1.InstallJobRequest{Spec: other}); err != nil {
		t.Fatal(err)
	}
	next("CHANGE_INSTALLED other 3 0")
	if _, err := r.client.RemoveJob(ctx, &apiv1.RemoveJobRequest{Name: "train"}); err != nil {
		t.Fatal(err)
	}
	next("CHANGE_REMOVED train 4 0")
}

// A reader that is too slow is cut off, and hinders nobody.
func TestWatchFallsBehind(t *testing.T) {
	r := newRig(t)
	jobs := r.server.Jobs()
	w := jobs.Watch()
	defer w.Close()
	jobs.mu.Lock()
	for range watchDepth + 1 {
		jobs.tell(Changed, "x", "")
	}
	jobs.mu.Unlock()
	n := 0
	for range w.Events() {
		n++
	}
	if n != watchDepth || !w.Behind() {
		t.Errorf("%d events, behind %v", n, w.Behind())
	}
}

// keptRig is a control plane on a store, without doors.
func keptRig(t *testing.T, path string, ports ...string) (*Jobs, func()) {
	t.Helper()
	var specs []dataplane.PortSpec
	for _, p := range ports {
		specs = append(specs, dataplane.NewMemPort(p))
	}
	nic, err := dataplane.New(dataplane.Config{MAC: nicMAC, IP: nicIP}, specs...)
	if err != nil {
		t.Fatal(err)
	}
	kept, err := store.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Options{NIC: nic, Store: kept})
	if err != nil {
		t.Fatal(err)
	}
	if err := nic.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s.Jobs(), func() {
		if err := nic.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		if err := kept.Close(); err != nil {
			t.Error(err)
		}
	}
}

// What was acknowledged is there after a restart: jobs, added workers, ports by name
// although their order is another, leases; and generations do not come again.
func TestRestartKeepsJobs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs.db")
	jobs, stop := keptRig(t, path, "mem0", "mem1")
	names := portNames{"mem0", "mem1"}
	for i, name := range []string{"a", "b", "c"} {
		spec := jobSpec(name, 3)
		for k, m := range spec.Members {
			m.Ipv4, m.Port = fmt.Sprintf("10.51.%d.%d", i, k+1), "mem1"
		}
		s, err := jobSpecFromProto(spec, names)
		if err != nil {
			t.Fatal(err)
		}
		added := s.Members[2]
		s.Members = s.Members[:2]
		if _, err := jobs.InstallFor(s, OriginAPI, time.Duration(i)*time.Hour); err != nil {
			t.Fatal(err)
		}
		if _, err := jobs.AddWorker(name, added); err != nil {
			t.Fatal(err)
		}
	}
	if err := jobs.Remove("a"); err != nil {
		t.Fatal(err)
	}
	if _, err := jobs.Install(dataplane.JobSpec{Name: "session", Workers: 1}, OriginSwitchML); err != nil {
		t.Fatal(err)
	}
	before := jobs.List()
	stop()

	jobs, stop = keptRig(t, path, "mem1", "mem0")
	after := jobs.List()
	if len(after) != 2 || after[0].Name != "b" || after[1].Name != "c" || len(jobs.Lost()) != 0 {
		t.Fatalf("%+v, lost %v", after, jobs.Lost())
	}
	for i, j := range after {
		was := before[i]
		if j.Generation != was.Generation || !j.Installed.Equal(was.Installed) || j.Lease != was.Lease || len(j.Members()) != 3 {
			t.Errorf("%+v, was %+v", j, was)
		}
		for k, m := range j.Members() {
			if w := was.Members()[k]; m.MAC != w.MAC || m.IP != w.IP || m.Port != 0 || w.Port != 1 {
				t.Errorf("%s: %+v, was %+v", j.Name, m, w)
			}
		}
	}
	// A worker of a restored job still belongs to it, and the same job again changes nothing.
	if _, err := jobs.Install(dataplane.JobSpec{Name: "d", Workers: 1, Members: []dataplane.WorkerSpec{{MAC: after[0].Members()[0].MAC, IP: after[0].Members()[0].IP, Port: -1}}}, OriginAPI); status.Code(err) != codes.AlreadyExists {
		t.Errorf("a worker in two jobs: %v", err)
	}
	if _, err := jobs.Install(dataplane.JobSpec{Name: "d", Workers: 1}, OriginAPI); err != nil {
		t.Fatal(err)
	}
	if d, err := jobs.Get("d"); err != nil || d.Generation <= before[len(before)-1].Generation {
		t.Errorf("generation %d came before, %v", d.Generation, err)
	}
	stop()

	// Without mem1, the jobs that need it stay in the store and out of the way, and can be removed.
	jobs, stop = keptRig(t, path, "mem0")
	if list, lost := jobs.List(), jobs.Lost(); len(list) != 1 || list[0].Name != "d" || len(lost) != 2 {
		t.Fatalf("%+v, lost %v", list, lost)
	}
	if err := jobs.Remove("b"); err != nil {
		t.Fatal(err)
	}
	stop()
	jobs, stop = keptRig(t, path, "mem0", "mem1")
	defer stop()
	if list := jobs.List(); len(list) != 2 || list[0].Name != "c" || list[1].Name != "d" {
		t.Fatalf("%+v", list)
	}
}

// The number that a native job got is its own: workers use it on the wire, and it is the same after a restart
// although a lower one is free by then.
func TestRestartKeepsNumbers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs.db")
	jobs, stop := keptRig(t, path, "mem0")
	spec := dataplane.JobSpec{Protocol: dataplane.ProtocolNative, Workers: 2}
	for _, spec.Name = range []string{"first", "second"} {
		if _, err := jobs.Install(spec, OriginAPI); err != nil {
			t.Fatal(err)
		}
	}
	if err := jobs.Remove("first"); err != nil {
		t.Fatal(err)
	}
	stop()
	jobs, stop = keptRig(t, path, "mem0")
	defer stop()
	if j, err := jobs.Get("second"); err != nil || j.Native.ID != 2 {
		t.Fatalf("%+v, %v: its number was 2", j.Native, err)
	}
	spec.Name = "third"
	if _, err := jobs.Install(spec, OriginAPI); err != nil {
		t.Fatal(err)
	}
	if j, err := jobs.Get("third"); err != nil || j.Native.ID != 1 {
		t.Errorf("%+v, %v: 1 is free", j.Native, err)
	}
}
