package switchml

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	pb "gradnic/control/switchml/switchmlproto"
)

// door is that of the rig's first listener.
func (r *rig) door() string { return r.address[strings.LastIndex(r.address, ":")+1:] }

// second is another listener of the same controller.
func (r *rig) second(t *testing.T) *rig {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- r.server.Serve(l) }()
	t.Cleanup(func() {
		r.server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	other := *r
	other.address = l.Addr().String()
	return &other
}

// team is the workers of one session, all on one machine less.
type team struct {
	first, workers int
	clients        []client
}

// start joins all workers of a session at once.
func (r *rig) start(t *testing.T, first, workers int, stamp uint64) (*team, <-chan error) {
	t.Helper()
	tm := &team{first: first, workers: workers}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	t.Cleanup(cancel)
	errs, done := make(chan error, workers), make(chan error, 1)
	for rank := range workers {
		c := r.dial(t)
		tm.clients = append(tm.clients, c)
		go func() { errs <- c.joinFrom(ctx, first, rank, workers, stamp) }()
	}
	go func() {
		var all []error
		for range workers {
			all = append(all, <-errs)
		}
		done <- errors.Join(all...)
	}()
	return tm, done
}

func (r *rig) mustStart(t *testing.T, first, workers int, stamp uint64) *team {
	t.Helper()
	tm, done := r.start(t, first, workers, stamp)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	return tm
}

func (tm *team) leave() {
	for _, c := range tm.clients {
		c.conn.Close()
	}
}

// has fails unless a job has just the workers of a session.
func (r *rig) has(t *testing.T, job string, first, workers int) {
	t.Helper()
	j, err := r.server.options.Jobs.Get(job)
	if err != nil {
		t.Fatal(err)
	}
	if j.Workers != workers || len(j.Members()) != workers {
		t.Fatalf("job %s: %d of %d workers, want %d", job, len(j.Members()), j.Workers, workers)
	}
	for _, m := range j.Members() {
		if want := request(m.Rank, workers).GetMac() + uint64(first); m.MAC.Uint64() != want {
			t.Errorf("job %s: rank %d is %v, want %x", job, m.Rank, m.MAC, want)
		}
	}
}

// byFirst is the job that has the worker with the address behind the first so many.
func (r *rig) byFirst(t *testing.T, first int) string {
	t.Helper()
	for _, j := range r.server.options.Jobs.List() {
		for _, m := range j.Members() {
			if m.MAC.Uint64() == request(0, 1).GetMac()+uint64(first) {
				return j.Name
			}
		}
	}
	t.Fatalf("no job has worker %d", first)
	return ""
}

// Sessions of several sizes begin in the same moment at one port, and those of one size at ports of their own: each has
// its own workers.
func TestSessionsSideBySide(t *testing.T) {
	r := newRig(t)
	other := r.second(t)
	type begun struct {
		rig            *rig
		first, workers int
	}
	sessions := []begun{{r, 0, 2}, {r, 10, 3}, {r, 20, 4}, {r, 30, 5}, {other, 40, 2}, {other, 50, 3}}
	var done []<-chan error
	for i, s := range sessions {
		_, d := s.rig.start(t, s.first, s.workers, uint64(1000*(i+1)))
		done = append(done, d)
	}
	for i, d := range done {
		if err := <-d; err != nil {
			t.Fatalf("session %d: %v", i, err)
		}
	}
	names := map[string]bool{}
	for _, s := range sessions {
		name := r.byFirst(t, s.first)
		r.has(t, name, s.first, s.workers)
		names[name] = true
	}
	if len(names) != len(sessions) || !names[DefaultJob] || !names[DefaultJob+"-6"] {
		t.Errorf("jobs %v", names)
	}
	if !r.server.meetings.idle() {
		t.Error("somebody still waits")
	}
}

// A session of the same size begins beside one that runs, is started again alone, and gives its place up when all its
// workers have gone.
func TestSessionIsReplacedAlone(t *testing.T) {
	r := newRig(t)
	r.mustStart(t, 0, 2, 100)
	second := r.mustStart(t, 10, 2, 200)
	r.has(t, DefaultJob, 0, 2)
	r.has(t, DefaultJob+"-2", 10, 2)
	generation := func(job string) uint64 {
		t.Helper()
		j, err := r.server.options.Jobs.Get(job)
		if err != nil {
			t.Fatal(err)
		}
		return j.Generation
	}
	first := generation(DefaultJob)
	// Killed and started again: its workers are the same, also when another of them is rank 0.
	second.leave()
	second = r.mustStart(t, 10, 2, 300)
	r.has(t, DefaultJob+"-2", 10, 2)
	// Others begin when it is over.
	second.leave()
	waitFor(t, func() bool { return r.server.sessions.all[1].over() })
	r.mustStart(t, 20, 3, 400)
	r.has(t, DefaultJob+"-2", 20, 3)
	if _, err := r.server.options.Jobs.Get(DefaultJob + "-3"); err == nil {
		t.Error("a session that is over has kept its slots")
	}
	r.has(t, DefaultJob, 0, 2)
	if got := generation(DefaultJob); got != first {
		t.Errorf("the session beside was installed anew: generation %d, was %d", got, first)
	}
	// A job that was taken away by hand leaves its place too.
	if err := r.server.options.Jobs.Remove(DefaultJob); err != nil {
		t.Fatal(err)
	}
	r.mustStart(t, 30, 2, 500)
	r.has(t, DefaultJob, 30, 2)
}

// More sessions than may be, and a rank of a session that nobody has begun, are refused, and the log says why.
func TestSessionsThatCanNotBe(t *testing.T) {
	r := newRig(t)
	r.server.options.Sessions = 2
	r.mustStart(t, 0, 1, 100)
	r.mustStart(t, 10, 1, 200)
	c := r.dial(t)
	resp, err := c.UdpSession(t.Context(), request(0, 1))
	if err != nil || resp.GetMac() == 0 {
		t.Errorf("a worker that is in a session: %v, %v", resp, err)
	}
	late := request(0, 1)
	late.Mac, late.Ipv4 = late.GetMac()+99, late.GetIpv4()+99
	if resp, err := c.UdpSession(t.Context(), late); err != nil || resp.GetMac() != 0 {
		t.Errorf("a third session: %v, %v", resp, err)
	}
	stranger := &pb.UdpSessionRequest{SessionId: 12345, Rank: 1, NumWorkers: 2, Mac: 0x020000000177, Ipv4: 0x0a320077, PacketSize: pb.PacketSize_MTU_1024}
	if resp, err := c.UdpSession(t.Context(), stranger); err != nil || resp.GetMac() != 0 {
		t.Errorf("rank 1 of no session: %v, %v", resp, err)
	}
	for _, want := range []string{"2 sessions run already", "rank 0 has not begun session 12345 here"} {
		if !strings.Contains(r.log.String(), want) {
			t.Errorf("no %q in the log:\n%s", want, fmt.Sprint(r.log.String()))
		}
	}
}
