package dataplane

import (
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"gradnic/wire/inet"
)

func TestInstallIsChecked(t *testing.T) {
	n, _ := memNIC(t, testConfig(), 2)
	good := JobSpec{Name: "j", Workers: 2, Elements: 64, Members: members(2, true)}
	for name, s := range map[string]JobSpec{
		"no name":         {Workers: 2, Elements: 64},
		"protocol":        {Name: "x", Protocol: "nope", Workers: 2, Elements: 64},
		"no workers":      {Name: "x", Elements: 64},
		"many workers":    {Name: "x", Workers: 33, Elements: 64},
		"elements":        {Name: "x", Workers: 2, Elements: 128},
		"slots":           {Name: "x", Workers: 2, Elements: 64, Slots: MaxSlots + 1},
		"rank":            {Name: "x", Workers: 2, Elements: 64, Members: []WorkerSpec{{Rank: 2, MAC: workerMAC(0), IP: workerIP(0)}}},
		"rank twice":      {Name: "x", Workers: 2, Elements: 64, Members: []WorkerSpec{{MAC: workerMAC(0), IP: workerIP(0)}, {MAC: workerMAC(1), IP: workerIP(1)}}},
		"address twice":   {Name: "x", Workers: 2, Elements: 64, Members: []WorkerSpec{{MAC: workerMAC(0), IP: workerIP(0)}, {Rank: 1, MAC: workerMAC(0), IP: workerIP(0)}}},
		"port":            {Name: "x", Workers: 2, Elements: 64, Members: []WorkerSpec{{MAC: workerMAC(0), IP: workerIP(0), Port: 2}}},
		"multicast MAC":   {Name: "x", Workers: 2, Elements: 64, Members: []WorkerSpec{{MAC: inet.Broadcast, IP: workerIP(0)}}},
		"multicast ports": {Name: "x", Workers: 2, Elements: 64, Multicast: &MulticastSpec{Ports: []int{7}}},
	} {
		if err := n.InstallJob(s); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	install(t, n, good)
	if err := n.InstallJob(good); !errors.Is(err, ErrJobExists) {
		t.Errorf("twice: %v", err)
	}
	good.Name = "k"
	if err := n.InstallJob(good); err == nil {
		t.Error("workers of another job")
	}
	if err := n.AddWorker("none", WorkerSpec{}); !errors.Is(err, ErrNoJob) {
		t.Errorf("add to no job: %v", err)
	}
	if err := n.RemoveJob("none"); !errors.Is(err, ErrNoJob) {
		t.Errorf("remove no job: %v", err)
	}
	if _, err := n.Job("none"); !errors.Is(err, ErrNoJob) {
		t.Errorf("no job: %v", err)
	}
	if len(n.Jobs()) != 1 {
		t.Errorf("jobs %+v", n.Jobs())
	}
}

// TestWorkersComeLate: a job without members, workers added one by one while others send; who is missing is named.
func TestWorkersComeLate(t *testing.T) {
	for _, lanes := range []int{1, 2} {
		cfg := testConfig()
		cfg.Lanes = lanes
		n, mem := memNIC(t, cfg, 3)
		install(t, n, JobSpec{Name: "j", Workers: 3, Elements: 64})
		missing := func() []int {
			j, err := n.Job("j")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := json.Marshal(j); err != nil {
				t.Fatal(err)
			}
			return j.Missing
		}
		if m := missing(); !slices.Equal(m, []int{0, 1, 2}) {
			t.Fatalf("missing %v", m)
		}
		sent := uint64(0)
		for r := range 3 {
			mustSend(t, mem[r], request(r, 64, 3, 0, 0, 1)) // not known yet
			sent++
			waitReceived(t, n, sent)
			if err := n.AddWorker("j", WorkerSpec{Rank: r, MAC: workerMAC(r), IP: workerIP(r), Port: -1}); err != nil {
				t.Fatal(err)
			}
			mustSend(t, mem[r], request(r, 64, 3, 0, 0, 1))
			sent++
			waitReceived(t, n, sent)
			want := []int{0, 1, 2}[r+1:]
			if m := missing(); !slices.Equal(m, want) {
				t.Fatalf("missing %v, want %v", m, want)
			}
		}
		for r := range 3 {
			if v := values(recv(t, mem[r])); v[0] != 3 {
				t.Fatalf("%v", v)
			}
		}
		// Slot 4 waits for rank 1 alone; all have joined.
		mustSend(t, mem[0], request(0, 64, 4, 0, 0, 1))
		mustSend(t, mem[2], request(2, 64, 4, 0, 0, 1))
		s := waitReceived(t, n, sent+2)
		if m := missing(); !slices.Equal(m, []int{1}) {
			t.Fatalf("missing %v", m)
		}
		j, _ := n.Job("j")
		if j.Use.Waiting != 1 || j.Use.Complete != 1 || j.Use.InUse != 2 || j.Use.Total != 2*DefaultSlots || j.Results != 1 {
			t.Fatalf("%+v", j)
		}
		if s.Total.Drops["unknown-worker"] != 3 || s.Total.Dropped() != 3 {
			t.Fatalf("%+v", s.Total)
		}
		// Rank 1 comes back with another address and another port.
		if err := n.AddWorker("j", WorkerSpec{Rank: 1, MAC: workerMAC(11), IP: workerIP(11), Port: -1}); err != nil {
			t.Fatal(err)
		}
		mustSend(t, mem[0], request(11, 64, 4, 0, 0, 1))
		recv(t, mem[0])
		g := recv(t, mem[0])
		if inet.MAC(g[:6]) != workerMAC(11) && inet.MAC(g[:6]) != workerMAC(0) {
			t.Fatalf("%x", g)
		}
		recv(t, mem[2])
		silent(t, mem...)
		check(t, n)
	}
}

// TestResetJob gives a job fresh slots.
func TestResetJob(t *testing.T) {
	n, mem := memNIC(t, testConfig(), 1)
	install(t, n, JobSpec{Name: "j", Workers: 2, Elements: 64, Members: members(2, true)})
	mustSend(t, mem[0], request(0, 64, 0, 0, 0, 100))
	waitReceived(t, n, 1)
	if err := n.ResetJob("j"); err != nil {
		t.Fatal(err)
	}
	mustSend(t, mem[0], request(0, 64, 0, 0, 0, 1))
	mustSend(t, mem[0], request(1, 64, 0, 0, 0, 1))
	if v := values(recv(t, mem[0])); v[0] != 2 {
		t.Fatalf("sum %d", v[0])
	}
	recv(t, mem[0])
}

// TestJobsUnderTraffic installs and removes a job again and again while another one works: the other's results are all
// right and none is lost, and the removed job's slots never show old sums.
func TestJobsUnderTraffic(t *testing.T) {
	for _, lanes := range []int{1, 2} {
		cfg := testConfig()
		cfg.Lanes = lanes
		n, mem := memNIC(t, cfg, 2)
		install(t, n, JobSpec{Name: "steady", Workers: 1, Elements: 64, Members: members(1, true)})
		quit := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-quit:
					return
				default:
				}
				if err := mem[0].Send(request(0, 64, i%256, i/256%2, uint32(i), int32(i))); err != nil {
					t.Error(err)
					return
				}
				buf := make([]byte, 2048)
				k, err := mem[0].Recv(buf, time.Now().Add(5*time.Second))
				if err != nil || values(buf[:k])[7] != int32(i) {
					t.Errorf("round %d: %v", i, err)
					return
				}
			}
		})
		other := members(2, true)[1:]
		other[0].Rank = 0
		for i := range 100 {
			install(t, n, JobSpec{Name: "other", Workers: 1, Elements: 256, Members: other})
			mustSend(t, mem[1], request(1, 256, 0, 0, 0, int32(i)))
			if v := values(recv(t, mem[1])); v[0] != int32(i) {
				t.Fatalf("round %d: %d", i, v[0])
			}
			if err := n.RemoveJob("other"); err != nil {
				t.Fatal(err)
			}
			mustSend(t, mem[1], request(1, 256, 0, 0, 0, 1))
			waitFor(t, n, func(s *Snapshot) bool { return s.Total.Drops["unknown-worker"] == uint64(i+1) })
		}
		close(quit)
		wg.Wait()
		s := waitFor(t, n, func(s *Snapshot) bool { return s.Total.InFlight == 0 && s.Total.Drops["unknown-worker"] == 100 })
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
		if s.Total.Dropped() != 100 || s.Total.Contributed != s.Total.Results {
			t.Fatalf("%+v", s.Total)
		}
		silent(t, mem...)
	}
}
