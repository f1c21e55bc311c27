package control

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "gradnic/control/api/v1"
	"gradnic/wire/inet"
)

func multicastSpec(name string) *apiv1.JobSpec {
	spec := jobSpec(name, 3)
	spec.Multicast = "239.1.2.3"
	for i, port := range []string{"mem1", "mem0", "mem1"} {
		spec.Members[i].Port = port
	}
	return spec
}

// A SwitchML job's results go to a group by the ports that have members, and the same job again changes nothing.
func TestMulticastOfSwitchML(t *testing.T) {
	r := newRig(t)
	first := r.install(t, multicastSpec("a"))
	if g := first.GetJob().GetSpec().GetMulticast(); !first.GetCreated() || g != "239.1.2.3" {
		t.Errorf("%v", first)
	}
	if r.install(t, multicastSpec("a")).GetCreated() {
		t.Error("the same job was installed again")
	}
	status1, err := r.nic.Job("a")
	if err != nil {
		t.Fatal(err)
	}
	if m := status1.Multicast; m == nil || m.MAC != (inet.MAC{1, 0, 0x5e, 1, 2, 3}) || m.IP != (inet.Addr{239, 1, 2, 3}) || m.Port != 0 || !slices.Equal(m.Ports, []int{0, 1}) {
		t.Errorf("%+v", m)
	}
	groups, err := r.client.ListGroups(t.Context(), &apiv1.ListGroupsRequest{Job: "a"})
	if err != nil || len(groups.GetGroups()) != 1 || groups.GetGroups()[0].GetMulticast() != "239.1.2.3" {
		t.Errorf("%v, %v", groups, err)
	}
	for says, change := range map[string]func(*apiv1.JobSpec){
		"multicast 239.1.2.3, not 239.1.2.4":               func(s *apiv1.JobSpec) { s.Multicast = "239.1.2.4" },
		"multicast 239.1.2.3, not 0.0.0.0":                 func(s *apiv1.JobSpec) { s.Multicast = "" },
		`job.multicast: "10.0.0.1": an IPv4 group`:         func(s *apiv1.JobSpec) { s.Multicast = "10.0.0.1" },
		"job.members: 2 of 3: with several ports":          func(s *apiv1.JobSpec) { s.Members = s.Members[:2] },
		"job.members[rank 1].port: missing":                func(s *apiv1.JobSpec) { s.Members[1].Port = "" },
		"job.multicast: results in layout inhouse":         func(s *apiv1.JobSpec) { s.Layout = "inhouse" },
		"job.multicast: a native job's is job.native.mult": func(s *apiv1.JobSpec) { s.Protocol = apiv1.Protocol_PROTOCOL_NATIVE },
	} {
		spec := multicastSpec("a")
		change(spec)
		_, err := r.client.InstallJob(t.Context(), &apiv1.InstallJobRequest{Spec: spec})
		want := codes.InvalidArgument
		if strings.HasPrefix(says, "multicast") {
			want = codes.AlreadyExists
		}
		if status.Code(err) != want || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %v with %q", err, want, says)
		}
	}
}

// The ports that results go to are those of the same names after a restart, in whatever order they are then; on a NIC with
// one port, members may come later.
func TestRestartKeepsMulticast(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs.db")
	jobs, stop := keptRig(t, path, "mem0", "mem1", "mem2")
	spec, err := jobSpecFromProto(multicastSpec("a"), portNames{"mem0", "mem1", "mem2"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := jobs.Install(spec, OriginAPI); err != nil {
		t.Fatal(err)
	}
	stop()
	jobs, stop = keptRig(t, path, "mem2", "mem1", "mem0")
	if j, err := jobs.Get("a"); err != nil || !slices.Equal(j.Multicast.Ports, []int{2, 1}) || j.Members()[0].Port != 1 {
		t.Fatalf("%+v, %v, lost %v", j.Multicast, err, jobs.Lost())
	}
	again, err := jobSpecFromProto(multicastSpec("a"), portNames{"mem2", "mem1", "mem0"})
	if err != nil {
		t.Fatal(err)
	}
	if created, err := jobs.Install(again, OriginAPI); err != nil || created {
		t.Errorf("again: %t, %v", created, err)
	}
	stop()

	jobs, stop = keptRig(t, filepath.Join(t.TempDir(), "one.db"), "mem0")
	defer stop()
	alone := multicastSpec("a")
	members := alone.Members
	alone.Members = nil
	if spec, err = jobSpecFromProto(alone, portNames{"mem0"}); err != nil {
		t.Fatal(err)
	}
	if _, err := jobs.Install(spec, OriginAPI); err != nil {
		t.Fatal(err)
	}
	members[0].Port = ""
	w, err := workerFromProto("worker", members[0], portNames{"mem0"})
	if err != nil {
		t.Fatal(err)
	}
	if created, err := jobs.AddWorker("a", w); err != nil || !created {
		t.Errorf("%t, %v", created, err)
	}
	if created, err := jobs.AddWorker("a", w); err != nil || created {
		t.Errorf("again: %t, %v", created, err)
	}
	if j, err := jobs.Get("a"); err != nil || !slices.Equal(j.Multicast.Ports, []int{0}) || j.Members()[0].Port != 0 {
		t.Errorf("%+v, %v", j, err)
	}
}
