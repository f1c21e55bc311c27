package control

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	apiv1 "gradnic/control/api/v1"
	"gradnic/control/store"
	"gradnic/dataplane"
	"gradnic/wire/inet"
	"gradnic/wire/switchml"
)

// A thousand jobs of eight workers are installed in less than 5 s and removed in less
// than 5 s, through the API and with a store, while a running job loses no packet to it.
// On a machine that others use, it is held to the CPU time that it takes.
func TestThousandJobs(t *testing.T) {
	const jobs, workers, limit = 1000, 8, 5 * time.Second
	kept, err := store.Open(filepath.Join(t.TempDir(), "jobs.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kept.Close() })
	r := newRig(t)
	r.server.Jobs().store = kept
	ctx := t.Context()

	// The running job: one worker, whose every packet completes a slot.
	own := jobSpec("running", 1)
	if _, err := r.client.InstallJob(ctx, &apiv1.InstallJobRequest{Spec: own}); err != nil {
		t.Fatal(err)
	}
	stop, traffic := make(chan struct{}), make(chan error, 1)
	results := 0
	go func() { traffic <- r.reduce(stop, &results) }()

	timed := func(what string, do func(i int) error) (within bool) {
		t.Helper()
		all, own := cpuUse(t)
		begin, before := time.Now(), r.nic.Snapshot().Total.Results
		for i := range jobs {
			if err := do(i); err != nil {
				t.Fatalf("%s %d: %v", what, i, err)
			}
		}
		took := time.Since(begin)
		during := r.nic.Snapshot().Total.Results - before
		allAfter, ownAfter := cpuUse(t)
		ours := ownAfter - own
		others := float64((allAfter-all)-ours) / float64(max(allAfter-all, 1))
		t.Logf("%s %d jobs of %d workers: %v, of that %v of CPU, %d results of the running job meanwhile; other processes had %.0f %% of the CPU time",
			what, jobs, workers, took, ours, during, 100*others)
		if ours > limit && !raceEnabled {
			t.Errorf("%s: %v of CPU", what, ours)
		}
		if during == 0 {
			t.Errorf("%s: the running job did not run meanwhile", what)
		}
		return took <= limit || raceEnabled || others > 0.2
	}
	install := func() bool {
		return timed("install", func(i int) error {
			spec := &apiv1.JobSpec{Name: fmt.Sprintf("job%d", i), Workers: workers, Elements: 64, Slots: 4}
			for rank := range uint32(workers) {
				mac := inet.MAC{2, 0, 1, byte(i >> 8), byte(i), byte(rank)}
				ip := inet.Addr{10, 60 + byte(i>>8), byte(i), 1 + byte(rank)}
				spec.Members = append(spec.Members, &apiv1.WorkerSpec{Rank: rank, Mac: mac.String(), Ipv4: ip.String()})
			}
			_, err := r.client.InstallJob(ctx, &apiv1.InstallJobRequest{Spec: spec})
			return err
		})
	}
	remove := func() bool {
		return timed("remove", func(i int) error {
			_, err := r.client.RemoveJob(ctx, &apiv1.RemoveJobRequest{Name: fmt.Sprintf("job%d", i)})
			return err
		})
	}
	// A machine that does something else at the time is no reason to fail: the best of three counts.
	for attempt := 1; ; attempt++ {
		installed := install()
		if list, err := r.client.ListJobs(ctx, &apiv1.ListJobsRequest{}); err != nil || len(list.GetJobs()) != jobs+1 {
			t.Errorf("%d jobs, %v", len(list.GetJobs()), err)
		}
		if removed := remove(); installed && removed {
			break
		}
		if attempt == 3 {
			t.Errorf("three times it took more than %v", limit)
			break
		}
	}
	close(stop)
	if err := <-traffic; err != nil {
		t.Error(err)
	}
	snap := r.nic.Snapshot()
	if lost := snap.Total.Dropped(); lost != 0 || snap.Total.Resent != 0 || snap.Total.Results != uint64(results) {
		t.Errorf("the running job lost packets: %d dropped, %d of %d results", lost, snap.Total.Results, results)
	}
	if err := snap.Check(); err != nil {
		t.Error(err)
	}
}

// Budgets by port and MAC do not make jobs slow to install and to remove: 1,000 jobs of 8 workers of 20 tenants
// on two netdevs take less than 5 s of CPU each way.
func TestThousandJobsWithQuotas(t *testing.T) {
	const jobs, workers, limit = 1000, 8, 5 * time.Second
	r := newBudgetRig(t, Limits{Tenants: map[string]Quota{EachTenant: {Packets: 200_000}}})
	address := func(i, rank int) (inet.MAC, inet.Addr) {
		return inet.MAC{2, 0, 1, byte(i >> 8), byte(i), byte(rank)}, inet.Addr{10, 60 + byte(i>>8), byte(i), 1 + byte(rank)}
	}
	timed := func(what string, do func(i int) error) {
		t.Helper()
		_, own := cpuUse(t)
		for i := range jobs {
			if err := do(i); err != nil {
				t.Fatalf("%s %d: %v", what, i, err)
			}
		}
		_, after := cpuUse(t)
		t.Logf("%s %d jobs of %d workers: %v of CPU", what, jobs, workers, after-own)
		if after-own > limit && !raceEnabled {
			t.Errorf("%s: %v of CPU, more than %v", what, after-own, limit)
		}
	}
	timed("install", func(i int) error {
		spec := dataplane.JobSpec{Name: fmt.Sprint("job", i), Tenant: fmt.Sprint("tenant", i%20), Workers: workers, Elements: 64, Slots: 4}
		for rank := range workers {
			mac, ip := address(i, rank)
			spec.Members = append(spec.Members, dataplane.WorkerSpec{Rank: rank, MAC: mac, IP: ip, Port: -1})
		}
		_, err := r.jobs.Install(spec, OriginAPI)
		return err
	})
	if b := r.nic.Snapshot().Ports[1].Budgets; len(b) != 21 {
		t.Errorf("%d budgets, want those of 20 tenants and the strays'", len(b))
	}
	timed("remove", func(i int) error { return r.jobs.Remove(fmt.Sprint("job", i)) })
	if b := r.nic.Snapshot().Ports[1].Budgets; len(b) != 1 {
		t.Errorf("%d budgets, want the strays'", len(b))
	}
}

// reduce sends the running job's packets one after the other, each after the result
// of the one before, until stop. A packet or result that is lost is an error.
func (r *rig) reduce(stop chan struct{}, results *int) error {
	frame, buf := make([]byte, switchml.FrameLen(64)), make([]byte, 2048)
	for slot := 0; ; slot = (slot + 1) % 32 {
		select {
		case <-stop:
			return nil
		default:
		}
		n := switchml.PutRequest(frame, switchml.Request{Elements: 64, PoolIndex: switchml.PoolIndexOf(slot/16, slot%16),
			Worker: switchml.Endpoint{MAC: inet.MAC{2, 0, 0, 0, 1, 0}, IP: inet.Addr{10, 50, 0, 1}, Port: 4000},
			Switch: switchml.Endpoint{MAC: nicMAC, IP: nicIP, Port: switchml.PortBase}})
		if err := r.ports[0].Send(frame[:n]); err != nil {
			return err
		}
		if _, err := r.ports[0].Recv(buf, time.Now().Add(10*time.Second)); err != nil {
			return fmt.Errorf("result %d: %w", *results, err)
		}
		*results++
		time.Sleep(200 * time.Microsecond) // this is about the control plane: leave it a CPU
	}
}
