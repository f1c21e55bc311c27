package control

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	apiv1 "gradnic/control/api/v1"
	"gradnic/dataplane"
)

func TestInKernelJobFile(t *testing.T) {
	for text, c := range map[string]struct {
		is   bool
		says string
	}{
		"name: a\nworkers: 2\nin_kernel: true\n":                       {true, ""},
		"name: a\nworkers: 2\nprotocol: switchml\nin_kernel: true\n":   {true, ""},
		"name: a\nworkers: 2\nin_kernel: true\nmulticast: 239.1.1.1\n": {true, ""},
		"name: a\nworkers: 2\nin_kernel: false\n":                      {false, ""},
		"name: a\nworkers: 2\nprotocol: native\nin_kernel: false\n":    {false, ""},
		"name: a\nworkers: 2\nprotocol: native\nin_kernel: true\n":     {false, "in_kernel is for protocol switchml"},
		"name: a\nworkers: 2\nin_kernel: true\nin_kernel: true\n":      {false, "in_kernel"},
		"name: a\nworkers: 2\nin-kernel: true\n":                       {false, "in-kernel"},
		"name: a\nworkers: 2\nin_kernel: 1\n":                          {false, "[3:"},
	} {
		file, err := ReadJobFile("job.yaml", strings.NewReader(text))
		var spec *apiv1.JobSpec
		if err == nil {
			spec, err = file.Proto()
		}
		switch {
		case c.says != "":
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%q: %v, want %q", text, err, c.says)
			}
		case err != nil || spec.GetInKernel() != c.is || (spec.GetMulticast() != "") != strings.Contains(text, "multicast"):
			t.Errorf("%q: %v, %v", text, spec, err)
		}
	}
}

// What the kernel cannot add up is refused by the field that is wrong, and nothing is installed.
func TestInKernelRefuses(t *testing.T) {
	r := newRig(t)
	for says, change := range map[string]func(*apiv1.JobSpec){
		"job.in_kernel: it is for protocol switchml, not native": func(s *apiv1.JobSpec) { s.Protocol = apiv1.Protocol_PROTOCOL_NATIVE },
		"job.in_kernel: the kernel knows the protocol's own":     func(s *apiv1.JobSpec) { s.Layout = "inhouse" },
		"job.in_kernel: port mem0 is of kind mem":                func(*apiv1.JobSpec) {},
	} {
		spec := jobSpec("a", 2)
		spec.InKernel = true
		change(spec)
		want := codes.InvalidArgument
		if strings.Contains(says, "mem0") {
			want = codes.Unimplemented
		}
		_, err := r.client.InstallJob(t.Context(), &apiv1.InstallJobRequest{Spec: spec})
		if status.Code(err) != want || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %v with %q", err, want, says)
		}
	}
	if jobs := r.nic.Jobs(); len(jobs) != 0 {
		t.Errorf("jobs %v", jobs)
	}
}

// On netdevs: members must say where they are, the same job again changes nothing and one that the lanes add up is another.
func TestInKernelJobs(t *testing.T) {
	r := newBudgetRig(t, Limits{})
	ports := portNames{"p0", "p1"}
	install := func(change func(*apiv1.JobSpec)) (bool, error) {
		t.Helper()
		spec := jobSpec("a", 3)
		spec.Members = spec.Members[:2]
		spec.InKernel, spec.Members[0].Port, spec.Members[1].Port = true, "p0", "p1"
		if change != nil {
			change(spec)
		}
		s, err := jobSpecFromProto(spec, ports)
		if err != nil {
			t.Fatal(err)
		}
		return r.jobs.Install(s, OriginAPI)
	}
	refused := func(err error, want codes.Code, says string) {
		t.Helper()
		if status.Code(err) != want || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %v with %q", err, want, says)
		}
	}
	_, err := install(func(s *apiv1.JobSpec) { s.Members[1].Port = "" })
	refused(err, codes.InvalidArgument, "job.members[rank 1].port: missing")
	if created, err := install(nil); err != nil || !created {
		t.Fatalf("%t, %v", created, err)
	}
	if created, err := install(nil); err != nil || created {
		t.Errorf("again: %t, %v", created, err)
	}
	_, err = install(func(s *apiv1.JobSpec) { s.InKernel = false })
	refused(err, codes.AlreadyExists, "in_kernel true, not false")
	if err := r.jobs.Remove("a"); err != nil {
		t.Fatal(err)
	}
	if _, err := install(func(s *apiv1.JobSpec) { s.InKernel = false }); err != nil {
		t.Fatal(err)
	}
	_, err = install(nil)
	refused(err, codes.AlreadyExists, "in_kernel false, not true")
	if err := r.jobs.Remove("a"); err != nil {
		t.Fatal(err)
	}
	if _, err := install(nil); err != nil {
		t.Fatal(err)
	}

	for _, name := range []string{"b", "c"} {
		_, err = install(func(s *apiv1.JobSpec) { s.Name, s.Slots, s.Members = name, dataplane.MaxSlots, nil })
		if name == "b" && err == nil {
			continue
		}
		refused(err, codes.ResourceExhausted, "install job c: sums: 8192 slots: no room for the slots: of 16384, which the 2 jobs there share, ")
	}
	if err := r.jobs.Remove("b"); err != nil {
		t.Fatal(err)
	}

	w := r.worker(9)
	w.Rank = 2
	_, err = r.jobs.AddWorker("a", w)
	refused(err, codes.InvalidArgument, "worker.port: missing")
	w.Port = 1
	if created, err := r.jobs.AddWorker("a", w); err != nil || !created {
		t.Errorf("%t, %v", created, err)
	}
	info, err := r.jobs.Get("a")
	if err != nil {
		t.Fatal(err)
	}
	if m := jobToProto(info, ports).GetSpec(); !m.GetInKernel() || len(m.GetMembers()) != 3 || m.GetMembers()[2].GetPort() != "p1" {
		t.Errorf("%v", m)
	}
	r.jobs.SetLimits(Limits{Memory: 64 << 10})
	_, err = install(func(s *apiv1.JobSpec) { s.Name, s.Slots, s.Members = "b", 1000, nil })
	refused(err, codes.ResourceExhausted, "job.slots: 1000 slots of 64 elements take")
	if err := r.nic.Impair("p0", dataplane.Impairment{IngressLoss: 0.1}); err == nil || !strings.Contains(err.Error(), "job a") {
		t.Errorf("an impairment beside it: %v", err)
	}
}

// A NIC with one port knows where everybody is: no port and its name are the same.
func TestInKernelOnePort(t *testing.T) {
	j := &Jobs{ports: []string{"p0"}}
	spec := dataplane.JobSpec{Name: "a", Workers: 2, InKernel: true, Members: []dataplane.WorkerSpec{{Rank: 1, Port: -1}, {Rank: 0, Port: 0}}}
	got := j.normal(spec)
	if got.Members[0].Rank != 0 || got.Members[0].Port != 0 || got.Members[1].Port != 0 || spec.Members[0].Port != -1 {
		t.Errorf("%+v from %+v", got, spec)
	}
	spec.InKernel = false
	if got := j.normal(spec); got.Members[1].Port != -1 {
		t.Errorf("a port that is to be learned: %+v", got)
	}
	a, b := proto.Clone(jobSpec("a", 1)).(*apiv1.JobSpec), jobSpec("a", 1)
	a.InKernel, a.Members[0].Port, b.InKernel = true, "p0", true
	first, err := jobSpecFromProto(a, portNames(j.ports))
	if err != nil {
		t.Fatal(err)
	}
	second, err := jobSpecFromProto(b, portNames(j.ports))
	if err != nil || !same(j.normal(first), j.normal(second)) {
		t.Errorf("%v, %s", err, difference(j.normal(first), j.normal(second)))
	}
}
