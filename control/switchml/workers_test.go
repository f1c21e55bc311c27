package switchml

import (
	"strings"
	"testing"

	"gradnic/control"
	"gradnic/dataplane"
	"gradnic/wire/inet"
)

// Only named workers are in a session, and who is not named ends nobody's.
func TestOnlyNamedWorkersComeIn(t *testing.T) {
	r := newRig(t)
	for _, text := range []string{"02:00:00:00:01:00,10.50.0.1", "02:00:00:00:01:01,10.50.0.2"} {
		w, err := ParseWorker(text)
		if err != nil {
			t.Fatal(err)
		}
		r.server.options.Workers = append(r.server.options.Workers, w)
	}
	c := r.dial(t)
	for rank := range 2 {
		if resp, err := c.UdpSession(t.Context(), request(rank, 3)); err != nil || resp.GetMac() == 0 {
			t.Fatalf("rank %d: %v, %v", rank, resp, err)
		}
	}
	stranger := request(0, 3)
	stranger.Ipv4 += 7
	if resp, err := c.UdpSession(t.Context(), request(2, 3)); err != nil || resp.GetMac() != 0 {
		t.Errorf("a third: %v, %v", resp, err)
	}
	if resp, err := c.UdpSession(t.Context(), stranger); err != nil || resp.GetMac() != 0 {
		t.Errorf("a stranger as rank 0: %v, %v", resp, err)
	}
	if !strings.Contains(r.log.String(), "is not one of the 2 workers that may be in a session") {
		t.Errorf("log:\n%s", r.log.String())
	}
	job, err := r.server.options.Jobs.Get(DefaultJob)
	if err != nil || len(job.Members()) != 2 {
		t.Errorf("the session of the two: %+v, %v", job, err)
	}
	for _, wrong := range []string{"", "02:00:00:00:01:00", "x,10.0.0.1", "02:00:00:00:01:00,x", "02:00:00:00:01:00,10.0.0.1,", "02:00:00:00:01:00,10.0.0.1,p,q"} {
		if _, err := ParseWorker(wrong); err == nil {
			t.Errorf("%q was read", wrong)
		}
	}
}

// A job of the API under the session's name is neither replaced nor joined by this door.
func TestSessionLeavesJobsOfTheAPIAlone(t *testing.T) {
	r := newRig(t)
	jobs := r.server.options.Jobs
	if _, err := jobs.Install(dataplane.JobSpec{Name: DefaultJob, Workers: 2, Elements: 256, Members: []dataplane.WorkerSpec{
		{Rank: 0, MAC: inet.MAC{2, 0, 0, 0, 9, 0}, IP: inet.Addr{10, 9, 0, 1}, Port: -1}}}, control.OriginAPI); err != nil {
		t.Fatal(err)
	}
	c := r.dial(t)
	for rank := range 2 {
		if resp, err := c.UdpSession(t.Context(), request(rank, 2)); err != nil || resp.GetMac() != 0 {
			t.Errorf("rank %d: %v, %v", rank, resp, err)
		}
	}
	job, err := jobs.Get(DefaultJob)
	if err != nil || job.Origin != control.OriginAPI || len(job.Members()) != 1 {
		t.Errorf("%+v, %v", job, err)
	}
	for _, says := range []string{"came by another door", "is no session"} {
		if !strings.Contains(r.log.String(), says) {
			t.Errorf("no %q in the log:\n%s", says, r.log.String())
		}
	}
}

// A worker that is named with its port is there from the start; one without is learned.
func TestNamedWorkersHaveTheirPorts(t *testing.T) {
	r := newRig(t)
	jobs := r.server.options.Jobs
	last := jobs.Ports()[len(jobs.Ports())-1]
	for _, text := range []string{"02:00:00:00:01:00,10.50.0.1," + last, "02:00:00:00:01:01,10.50.0.2"} {
		w, err := ParseWorker(text)
		if err != nil {
			t.Fatal(err)
		}
		r.server.options.Workers = append(r.server.options.Workers, w)
	}
	c := r.dial(t)
	for rank := range 2 {
		if resp, err := c.UdpSession(t.Context(), request(rank, 2)); err != nil || resp.GetMac() == 0 {
			t.Fatalf("rank %d: %v, %v", rank, resp, err)
		}
	}
	job, err := jobs.Get(DefaultJob)
	if err != nil || len(job.Members()) != 2 || job.Members()[0].Port != len(jobs.Ports())-1 || job.Members()[1].Port != -1 {
		t.Errorf("%+v, %v", job.Status, err)
	}
}

func TestCheck(t *testing.T) {
	at := func(port string) Worker { return Worker{MAC: inet.MAC{2}, IP: inet.Addr{10, 0, 0, 1}, Port: port} }
	for _, c := range []struct {
		ports    []string
		workers  []Worker
		inKernel bool
		says     string // empty: it is right
	}{
		{[]string{"a", "b"}, nil, false, ""},
		{[]string{"a", "b"}, []Worker{at("")}, false, ""},
		{[]string{"a", "b"}, []Worker{at("c")}, false, `"c" is not a port of the NIC: its ports are [a b]`},
		{[]string{"a"}, nil, true, ""},
		{[]string{"a"}, []Worker{at("")}, true, ""},
		{[]string{"a", "b"}, nil, true, "name each as MAC,IP,PORT"},
		{[]string{"a", "b"}, []Worker{at("a"), at("")}, true, "name each as MAC,IP,PORT"},
		{[]string{"a", "b"}, []Worker{at("a"), at("b")}, true, ""},
	} {
		err := Check(c.ports, c.workers, c.inKernel)
		if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%v, %v, %t: %v, want %q", c.ports, c.workers, c.inKernel, err, c.says)
		}
	}
}
