package control

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	apiv1 "gradnic/control/api/v1"
	"gradnic/dataplane"
	"gradnic/wire/inet"
	"gradnic/wire/switchml"
)

func (r *rig) install(t *testing.T, spec *apiv1.JobSpec) *apiv1.InstallJobResponse {
	t.Helper()
	resp, err := r.client.InstallJob(t.Context(), &apiv1.InstallJobRequest{Spec: spec})
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

func TestInstallIsIdempotentByName(t *testing.T) {
	r := newRig(t)
	spec := jobSpec("alpha", 3)
	first := r.install(t, spec)
	if !first.GetCreated() || first.GetJob().GetOrigin() != apiv1.Origin_ORIGIN_API || first.GetJob().GetInstalled() == nil {
		t.Errorf("first: %v", first)
	}
	again := proto.Clone(spec).(*apiv1.JobSpec)
	slices.Reverse(again.Members) // the order of members says nothing
	second := r.install(t, again)
	if second.GetCreated() || second.GetJob().GetGeneration() != first.GetJob().GetGeneration() {
		t.Errorf("second: %v", second)
	}
	for what, change := range map[string]func(*apiv1.JobSpec){
		"tenant":   func(s *apiv1.JobSpec) { s.Tenant = "other" },
		"workers":  func(s *apiv1.JobSpec) { s.Workers = 4 },
		"elements": func(s *apiv1.JobSpec) { s.Elements = 256 },
		"slots":    func(s *apiv1.JobSpec) { s.Slots = 17 },
		"members":  func(s *apiv1.JobSpec) { s.Members = s.Members[:2] },
	} {
		other := proto.Clone(spec).(*apiv1.JobSpec)
		change(other)
		_, err := r.client.InstallJob(t.Context(), &apiv1.InstallJobRequest{Spec: other})
		if status.Code(err) != codes.AlreadyExists || !strings.Contains(err.Error(), what) {
			t.Errorf("other %s: %v", what, err)
		}
	}
	if n := len(r.nic.Jobs()); n != 1 {
		t.Errorf("%d jobs", n)
	}
	if _, err := r.client.RemoveJob(t.Context(), &apiv1.RemoveJobRequest{Name: "alpha"}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.client.RemoveJob(t.Context(), &apiv1.RemoveJobRequest{Name: "alpha"}); status.Code(err) != codes.NotFound {
		t.Errorf("second remove: %v", err)
	}
	if third := r.install(t, spec); !third.GetCreated() || third.GetJob().GetGeneration() <= first.GetJob().GetGeneration() {
		t.Errorf("third: %v", third)
	}
}

func TestDefaults(t *testing.T) {
	r := newRig(t)
	got := r.install(t, &apiv1.JobSpec{Name: "plain", Workers: 2}).GetJob().GetSpec()
	want := &apiv1.JobSpec{Name: "plain", Workers: 2, Elements: 256, Slots: dataplane.DefaultSlots, Protocol: apiv1.Protocol_PROTOCOL_SWITCHML}
	if !proto.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// What cannot be is refused, naming which, and nothing of it is installed.
func TestInstallRefuses(t *testing.T) {
	r := newRig(t)
	r.install(t, &apiv1.JobSpec{Name: "there", Workers: 1, Members: []*apiv1.WorkerSpec{{Rank: 0, Mac: "02:00:00:00:09:09", Ipv4: "10.50.0.99"}}})
	cases := []struct {
		name   string
		change func(*apiv1.JobSpec)
		code   codes.Code
		says   string
	}{
		{"no name", func(s *apiv1.JobSpec) { s.Name = "" }, codes.InvalidArgument, "job.name"},
		{"name with a slash", func(s *apiv1.JobSpec) { s.Name = "a/b" }, codes.InvalidArgument, "job.name"},
		{"name with a line", func(s *apiv1.JobSpec) { s.Name = "a\nb" }, codes.InvalidArgument, "job.name"},
		{"long name", func(s *apiv1.JobSpec) { s.Name = strings.Repeat("a", 64) }, codes.InvalidArgument, "job.name"},
		{"tenant", func(s *apiv1.JobSpec) { s.Tenant = "a b" }, codes.InvalidArgument, "job.tenant"},
		{"zero workers", func(s *apiv1.JobSpec) { s.Workers, s.Members = 0, nil }, codes.InvalidArgument, "job.workers: 0"},
		{"33 workers", func(s *apiv1.JobSpec) { s.Workers = 33 }, codes.InvalidArgument, "job.workers: 33"},
		{"huge workers", func(s *apiv1.JobSpec) { s.Workers = 1 << 31 }, codes.InvalidArgument, "job.workers"},
		{"elements", func(s *apiv1.JobSpec) { s.Elements = 128 }, codes.InvalidArgument, "job.elements: 128"},
		{"slots", func(s *apiv1.JobSpec) { s.Slots = dataplane.MaxSlots + 1 }, codes.InvalidArgument, "job.slots"},
		{"protocol", func(s *apiv1.JobSpec) { s.Protocol = 99 }, codes.Unimplemented, "job.protocol"},
		{"rank out of range", func(s *apiv1.JobSpec) { s.Members[1].Rank = 3 }, codes.InvalidArgument, "members[rank 3].rank"},
		{"rank twice", func(s *apiv1.JobSpec) { s.Members[1].Rank = 0 }, codes.InvalidArgument, "rank 0 is given twice"},
		{"address twice", func(s *apiv1.JobSpec) { s.Members[2].Ipv4 = "10.50.0.1" }, codes.InvalidArgument, "10.50.0.1 is given twice: to rank 0 and to rank 2"},
		{"the NIC's address", func(s *apiv1.JobSpec) { s.Members[2].Ipv4 = nicIP.String() }, codes.InvalidArgument, "members[rank 2].ipv4: 10.50.0.254 is the NIC's own"},
		{"the NIC's MAC", func(s *apiv1.JobSpec) { s.Members[2].Mac = nicMAC.String() }, codes.InvalidArgument, "members[rank 2].mac"},
		{"group MAC", func(s *apiv1.JobSpec) { s.Members[0].Mac = "01:00:5e:00:00:01" }, codes.InvalidArgument, "members[rank 0].mac"},
		{"bad MAC", func(s *apiv1.JobSpec) { s.Members[0].Mac = "zz" }, codes.InvalidArgument, "members[rank 0].mac"},
		{"bad address", func(s *apiv1.JobSpec) { s.Members[0].Ipv4 = "10.50.0" }, codes.InvalidArgument, "members[rank 0].ipv4"},
		{"group address", func(s *apiv1.JobSpec) { s.Members[0].Ipv4 = "239.0.0.1" }, codes.InvalidArgument, "members[rank 0].ipv4"},
		{"no such port", func(s *apiv1.JobSpec) { s.Members[0].Port = "eth9" }, codes.InvalidArgument, `"eth9" is not a port`},
		{"worker of another job", func(s *apiv1.JobSpec) { s.Members[0].Mac, s.Members[0].Ipv4 = "02:00:00:00:09:09", "10.50.0.99" }, codes.AlreadyExists, "rank 0 of job there"},
		{"too many members", func(s *apiv1.JobSpec) { s.Members = slices.Repeat(s.Members, 11) }, codes.InvalidArgument, "job.members"},
	}
	for _, c := range cases {
		spec := jobSpec("alpha", 3)
		c.change(spec)
		_, err := r.client.InstallJob(t.Context(), &apiv1.InstallJobRequest{Spec: spec})
		if status.Code(err) != c.code || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v, want %v with %q", c.name, err, c.code, c.says)
		}
		if jobs := r.nic.Jobs(); len(jobs) != 1 || jobs[0].Name != "there" {
			t.Fatalf("%s: jobs are %v", c.name, jobs)
		}
	}
	if _, err := r.client.InstallJob(t.Context(), &apiv1.InstallJobRequest{}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("empty request: %v", err)
	}
}

func TestAddWorker(t *testing.T) {
	r := newRig(t)
	spec := jobSpec("alpha", 3)
	spec.Members = spec.Members[:1]
	r.install(t, spec)
	add := func(w *apiv1.WorkerSpec) (*apiv1.AddWorkerResponse, error) {
		return r.client.AddWorker(t.Context(), &apiv1.AddWorkerRequest{Job: "alpha", Worker: w})
	}
	for i, created := range []bool{true, false} {
		got, err := add(member(2))
		if err != nil || got.GetCreated() != created || len(got.GetJob().GetWorkers()) != 2 {
			t.Errorf("call %d: %v, %v", i, got, err)
		}
	}
	changed := func(change func(*apiv1.WorkerSpec)) *apiv1.WorkerSpec {
		w := member(1)
		change(w)
		return w
	}
	for name, c := range map[string]struct {
		worker *apiv1.WorkerSpec
		code   codes.Code
	}{
		"rank is used":     {changed(func(w *apiv1.WorkerSpec) { w.Rank = 2 }), codes.AlreadyExists},
		"address is used":  {changed(func(w *apiv1.WorkerSpec) { w.Ipv4 = "10.50.0.1" }), codes.InvalidArgument},
		"rank":             {changed(func(w *apiv1.WorkerSpec) { w.Rank = 3 }), codes.InvalidArgument},
		"the NIC's":        {changed(func(w *apiv1.WorkerSpec) { w.Ipv4 = nicIP.String() }), codes.InvalidArgument},
		"no worker at all": {nil, codes.InvalidArgument},
	} {
		if _, err := add(c.worker); status.Code(err) != c.code {
			t.Errorf("%s: %v, want %v", name, err, c.code)
		}
	}
	if _, err := r.client.AddWorker(t.Context(), &apiv1.AddWorkerRequest{Job: "beta", Worker: member(1)}); status.Code(err) != codes.NotFound {
		t.Errorf("no such job: %v", err)
	}
	// The first specification again is still the same job, although a worker was added.
	if again := r.install(t, spec); again.GetCreated() {
		t.Error("the job was installed twice")
	}
	// An address that was added is free again when its job is gone.
	if _, err := r.client.RemoveJob(t.Context(), &apiv1.RemoveJobRequest{Name: "alpha"}); err != nil {
		t.Fatal(err)
	}
	r.install(t, &apiv1.JobSpec{Name: "beta", Workers: 3, Members: []*apiv1.WorkerSpec{member(2)}})
}

// A job that there is not is named once, with what mends it, and as far as it is a name.
func TestErrorsOfJobsThatThereAreNot(t *testing.T) {
	r := newRig(t)
	for name, want := range map[string]string{
		"nosuch":                     "job nosuch: no such job: gradnic show jobs lists those that there are",
		strings.Repeat("x", 100_000): "job " + strings.Repeat("x", 124) + "...: no such job: gradnic show jobs lists those that there are",
	} {
		for what, call := range map[string]func() error{
			"": func() error { _, err := r.client.GetJob(t.Context(), &apiv1.GetJobRequest{Name: name}); return err },
			"slots": func() error {
				_, err := r.client.ListSlots(t.Context(), &apiv1.ListSlotsRequest{Job: name})
				return err
			},
			"groups": func() error {
				_, err := r.client.ListGroups(t.Context(), &apiv1.ListGroupsRequest{Job: name})
				return err
			},
		} {
			if err := call(); status.Code(err) != codes.NotFound || status.Convert(err).Message() != want {
				t.Errorf("%s: %v, want %q", what, err, want)
			}
		}
		_, err := r.client.RemoveJob(t.Context(), &apiv1.RemoveJobRequest{Name: name})
		if m := status.Convert(err).Message(); status.Code(err) != codes.NotFound || strings.Count(m, "remove") > 1 || len(m) > 300 {
			t.Errorf("remove: %v", err)
		}
	}
}

// frame is one contribution of a rank, 64 elements.
func frame(t *testing.T, rank byte, slot int) []byte {
	t.Helper()
	buf := make([]byte, switchml.FrameLen(64))
	n := switchml.PutRequest(buf, switchml.Request{
		Worker:   switchml.Endpoint{MAC: inet.MAC{2, 0, 0, 0, 1, rank}, IP: inet.Addr{10, 50, 0, 1 + rank}, Port: 4000},
		Switch:   switchml.Endpoint{MAC: nicMAC, IP: nicIP, Port: switchml.PortBase},
		Elements: 64, PoolIndex: uint16(slot),
	})
	if n != len(buf) {
		t.Fatalf("frame of %d bytes", n)
	}
	return buf
}

// One of three workers never comes: show names it, and what the others wait for.
func TestWorkerThatNeverCame(t *testing.T) {
	r := newRig(t)
	r.install(t, jobSpec("alpha", 3))
	for _, rank := range []byte{0, 2} {
		if err := r.ports[rank%2].Send(frame(t, rank, 5)); err != nil {
			t.Fatal(err)
		}
	}
	get := func() *apiv1.Job {
		resp, err := r.client.GetJob(t.Context(), &apiv1.GetJobRequest{Name: "alpha"})
		if err != nil {
			t.Fatal(err)
		}
		return resp.GetJob()
	}
	var job *apiv1.Job
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		if job = get(); len(job.GetNeverCame()) == 1 || time.Now().After(deadline) {
			break
		}
	}
	if !slices.Equal(job.GetNeverCame(), []uint32{1}) || !slices.Equal(job.GetMissing(), []uint32{1}) {
		t.Errorf("never came %v, missing %v, want [1] and [1]", job.GetNeverCame(), job.GetMissing())
	}
	if !slices.Equal(job.GetNeverSent(), []uint32{1}) || len(job.GetNeverRegistered()) != 0 {
		t.Errorf("never sent %v, never registered %v, want [1] and none", job.GetNeverSent(), job.GetNeverRegistered())
	}
	if use := job.GetSlots(); use.GetTotal() != 32 || use.GetInUse() != 1 || use.GetWaiting() != 1 || use.GetComplete() != 0 {
		t.Errorf("slots %v", use)
	}
	for rank, w := range job.GetWorkers() {
		came := rank != 1
		if w.GetJoined() != came || (w.GetContributed() == 1) != came || (w.GetLastSeen() != nil) != came {
			t.Errorf("worker %v", w)
		}
		if want := map[bool]string{true: "mem0", false: ""}[came]; w.GetSpec().GetPort() != want {
			t.Errorf("rank %d: port %q, want %q", rank, w.GetSpec().GetPort(), want)
		}
	}
	// It comes: nobody is missed any more, and the result went to all three.
	if err := r.ports[1].Send(frame(t, 1, 5)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 2048)
	for port, results := range map[int]int{0: 2, 1: 1} {
		for range results {
			if _, err := r.ports[port].Recv(buf, time.Now().Add(5*time.Second)); err != nil {
				t.Fatalf("port %d: %v", port, err)
			}
		}
	}
	if job = get(); len(job.GetMissing())+len(job.GetNeverCame()) != 0 || job.GetResults() != 1 || job.GetSlots().GetComplete() != 1 {
		t.Errorf("after all came: %v", job)
	}
	slots, err := r.client.ListSlots(t.Context(), &apiv1.ListSlotsRequest{Job: "alpha"})
	if err != nil || len(slots.GetPools()) != 1 || slots.GetPools()[0].GetUse().GetComplete() != 1 {
		t.Errorf("slots: %v, %v", slots, err)
	}
	groups, err := r.client.ListGroups(t.Context(), &apiv1.ListGroupsRequest{})
	if err != nil || len(groups.GetGroups()) != 1 || groups.GetGroups()[0].GetMembers()[1].GetPort() != "mem1" {
		t.Errorf("groups: %v, %v", groups, err)
	}
}

func TestListsAreSortedAndSeeJobsOfOthers(t *testing.T) {
	r := newRig(t)
	for _, name := range []string{"c", "a", "b"} {
		r.install(t, &apiv1.JobSpec{Name: name, Workers: 2})
	}
	if err := r.nic.InstallJob(dataplane.JobSpec{Name: "aa", Workers: 2, Elements: 64}); err != nil {
		t.Fatal(err)
	}
	resp, err := r.client.ListJobs(t.Context(), &apiv1.ListJobsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, j := range resp.GetJobs() {
		names = append(names, j.GetSpec().GetName())
	}
	if !slices.Equal(names, []string{"a", "aa", "b", "c"}) {
		t.Errorf("jobs %v", names)
	}
	if o := resp.GetJobs()[1].GetOrigin(); o != apiv1.Origin_ORIGIN_UNSPECIFIED {
		t.Errorf("job aa came by %v", o)
	}
	if _, err := r.client.GetJob(t.Context(), &apiv1.GetJobRequest{Name: "d"}); status.Code(err) != codes.NotFound {
		t.Errorf("job d: %v", err)
	}
}

// Many callers at once: each job is installed once, and the registry ends as the data plane is.
func TestConcurrentCalls(t *testing.T) {
	r := newRig(t)
	const callers = 8
	created := make(chan int, callers)
	for range callers {
		go func() {
			n := 0
			for _, name := range []string{"a", "b", "c", "d"} {
				resp, err := r.client.InstallJob(context.Background(), &apiv1.InstallJobRequest{Spec: &apiv1.JobSpec{Name: name, Workers: 2, Slots: 8}})
				if err != nil {
					t.Error(err)
				}
				if resp.GetCreated() {
					n++
				}
			}
			created <- n
		}()
	}
	total := 0
	for range callers {
		total += <-created
	}
	if total != 4 || len(r.nic.Jobs()) != 4 {
		t.Errorf("%d created, %d run, want 4", total, len(r.nic.Jobs()))
	}
}
