package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"gradnic/control"
	apiv1 "gradnic/control/api/v1"
	"gradnic/internal/logtest"
)

// killed is a NIC that is killed again and again, and what it has acknowledged.
type killed struct {
	binary, api, store string
	jobs               map[string]uint32 // acknowledged: name -> slots
	pending            string            // the job whose change was not answered
	random             *rand.Rand
}

func (k *killed) command() *exec.Cmd {
	return exec.Command(k.binary, "run", "--port", "mem:m0", "--ip", "10.50.0.254", "--frames", "128", "--api", k.api, "--store", k.store, "--log-level", "error")
}

// start runs the NIC until it is ready.
func (k *killed) start(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := k.command()
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	late := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if !late.Stop() || err != nil || !strings.HasPrefix(line, "ready ") {
		t.Fatalf("not ready: %q, %v", line, err)
	}
	return cmd
}

// One wish to end may come as two signals (timeout sends its own twice): the NIC stops as it should, and does not end at once.
func TestTwoSignalsAtOnceAreOneWish(t *testing.T) {
	k := &killed{binary: built.Path(t), api: filepath.Join(t.TempDir(), "api.sock")}
	judged := 0
	for _, gap := range []time.Duration{0, time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond} {
		cmd := k.start(t)
		sent := time.Now()
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		time.Sleep(gap)
		_ = cmd.Process.Signal(syscall.SIGTERM) // fails when it has ended already
		apart := time.Since(sent)
		err := cmd.Wait()
		if apart > sameWish/2 {
			continue // they were two wishes: this test did not run in between
		}
		judged++
		if err != nil {
			t.Errorf("two signals %v apart: %v", apart, err)
		}
	}
	if judged == 0 {
		t.Error("no two signals were sent at once")
	}
}

// check compares the jobs that are there with those that were acknowledged; the one
// whose change was not answered may be there as it was, as it was to be, or gone.
func (k *killed) check(t *testing.T, c *control.Client) {
	t.Helper()
	list, err := c.ListJobs(t.Context(), &apiv1.ListJobsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]uint32{}
	for _, j := range list.GetJobs() {
		spec := j.GetSpec()
		there[spec.GetName()] = spec.GetSlots()
		if len(j.GetWorkers()) != 2 || spec.GetWorkers() != 2 || spec.GetElements() != 64 {
			t.Fatalf("half a job: %v", j)
		}
	}
	if k.pending != "" {
		delete(k.jobs, k.pending)
		if slots, ok := there[k.pending]; ok {
			k.jobs[k.pending] = slots
		}
		k.pending = ""
	}
	if fmt.Sprint(there) != fmt.Sprint(k.jobs) { // maps are printed in order
		t.Fatalf("there are\n%v, acknowledged were\n%v", there, k.jobs)
	}
}

// change installs and removes jobs until the NIC is gone, and returns how many
// changes were acknowledged.
func (k *killed) change(ctx context.Context, t *testing.T, c *control.Client) (acknowledged int) {
	t.Helper()
	for {
		n := k.random.IntN(24)
		name := fmt.Sprintf("job%d", n)
		k.pending = name
		var err error
		slots, there := k.jobs[name]
		if there {
			_, err = c.RemoveJob(ctx, &apiv1.RemoveJobRequest{Name: name})
		} else {
			slots = 1 + uint32(k.random.IntN(500))
			spec := &apiv1.JobSpec{Name: name, Workers: 2, Elements: 64, Slots: slots}
			for rank := range uint32(2) {
				spec.Members = append(spec.Members, &apiv1.WorkerSpec{Rank: rank, Mac: fmt.Sprintf("02:00:00:00:%02x:%02x", n, rank), Ipv4: fmt.Sprintf("10.51.%d.%d", n, 1+rank)})
			}
			_, err = c.InstallJob(ctx, &apiv1.InstallJobRequest{Spec: spec})
		}
		if err != nil {
			if code := status.Code(err); code != codes.Unavailable {
				t.Errorf("job %s: %v", name, err)
			}
			return acknowledged
		}
		if there {
			delete(k.jobs, name)
		} else {
			k.jobs[name] = slots
		}
		k.pending = ""
		acknowledged++
	}
}

// The NIC is killed at random moments while jobs come and go, and while it starts.
// What it acknowledged is there after each; GRADNIC_KILLS says how many.
func TestKilledAtAnyMomentKeepsWhatItAcknowledged(t *testing.T) {
	kills := 20
	if s := os.Getenv("GRADNIC_KILLS"); s != "" {
		var err error
		if kills, err = strconv.Atoi(s); err != nil || kills < 1 {
			t.Fatalf("GRADNIC_KILLS=%q: a number from 1", s)
		}
	}
	dir := t.TempDir()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	k := &killed{
		binary: built.Path(t), api: filepath.Join(dir, "api.sock"), store: filepath.Join(dir, "state", "jobs.db"),
		jobs: map[string]uint32{}, random: rand.New(rand.NewPCG(seed, 0)),
	}
	total := 0
	for range kills {
		if k.random.IntN(4) == 0 { // while it starts
			cmd := k.command()
			cmd.Stdout, cmd.Stderr = io.Discard, io.Discard
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Duration(k.random.IntN(40_000)) * time.Microsecond)
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			continue
		}
		cmd := k.start(t)
		c, err := control.Dial(k.api)
		if err != nil {
			t.Fatal(err)
		}
		k.check(t, c)
		kill := time.AfterFunc(time.Duration(k.random.IntN(60_000))*time.Microsecond, func() { _ = cmd.Process.Kill() })
		total += k.change(t.Context(), t, c)
		kill.Stop()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		c.Close()
		if t.Failed() {
			t.FailNow()
		}
	}
	cmd := k.start(t)
	c, err := control.Dial(k.api)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	k.check(t, c)
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("stopping it at last: %v", err)
	}
	if total == 0 {
		t.Error("nothing was acknowledged between the kills: this tests nothing")
	}
	t.Logf("%d kills, %d changes acknowledged, %d jobs at the end", kills, total, len(k.jobs))
}

func TestLeaseRenewAndWatch(t *testing.T) {
	api := "--api=" + serve(t)
	ctx, cancel := context.WithCancel(t.Context())
	var out logtest.Lines
	done := make(chan int, 1)
	go func() { done <- run(ctx, []string{"watch", "jobs", api}, strings.NewReader(""), &out, io.Discard) }()
	gradnic(t, "", "install", "job", "train", api, "--workers", "2", "--lease", "1h").want(t, exitOK, "installed")
	gradnic(t, "", "install", "job", "other", api, "--workers", "2").want(t, exitOK, "installed")
	gradnic(t, "", "renew", "job", "train", api).want(t, exitOK, "job train renewed until 2")
	gradnic(t, "", "renew", "job", "other", api).want(t, exitOK, "job other has no lease\n")
	gradnic(t, "", "renew", "job", "none", api).want(t, exitFailed, "no such job")
	gradnic(t, "", "install", "job", "short", api, "--workers", "2", "--lease", "1ms").want(t, exitFailed, "a lease is 1s to 168h")
	out.Wait(t, "other  generation 2")
	gradnic(t, "", "remove", "job", "train", api).want(t, exitOK, "removed")
	out.Wait(t, "removed    train  generation 3  removed\n")
	cancel()
	if code := <-done; code != exitOK {
		t.Errorf("status %d", code)
	}
}
