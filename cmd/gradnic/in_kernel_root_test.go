package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"gradnic/wire/inet"
	"gradnic/worker"
)

// joinAll makes SwitchML workers of the field's sockets, for a job that is installed.
func (f *field) joinAll(t *testing.T, base worker.Config) (ws []*worker.Worker) {
	t.Helper()
	for rank, conn := range f.workers {
		c := base
		c.Rank, c.Workers, c.Conn = rank, len(f.workers), conn
		c.MAC, c.IP = inet.MAC{2, 0, 0, 0, 1, byte(rank)}, inet.Addr{10, 50, 0, byte(1 + rank)}
		c.NICMAC, c.NICIP = inet.MAC{2, 0x67, 10, 50, 0, 254}, inet.Addr{10, 50, 0, 254}
		w, err := worker.Join(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := w.Close(); err != nil {
				t.Error(err)
			}
		})
		ws = append(ws, w)
	}
	return ws
}

// sumAll all-reduces arrays that are other ones with every seed, and fails unless each element is their sum.
func sumAll(t *testing.T, ws []*worker.Worker, elements, seed int) {
	t.Helper()
	value := func(rank, i int) int32 { return int32((i+1)*(seed+7*rank)) ^ int32(rank<<24) }
	out, errs := make([][]int32, len(ws)), make([]error, len(ws))
	var g sync.WaitGroup
	for rank, w := range ws {
		g.Go(func() {
			in := make([]int32, elements)
			for i := range in {
				in[i] = value(rank, i)
			}
			out[rank] = make([]int32, elements)
			_, errs[rank] = w.AllReduceInt32(t.Context(), out[rank], in)
		})
	}
	g.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	for rank := range ws {
		for i, got := range out[rank] {
			var want int32
			for r := range ws {
				want += value(r, i)
			}
			if got != want {
				t.Fatalf("rank %d, element %d: %d, want %d", rank, i, got, want)
			}
		}
	}
}

// verdicts are what the steering programs of all ports saw, and what the lanes took.
func (f *field) verdicts(t *testing.T) (steering map[string]uint64, received uint64) {
	t.Helper()
	var doc struct {
		Ports []struct {
			Received uint64
			Steering map[string]uint64
		}
	}
	r := f.gradnic(t, "show", "ports", "-j").want(t, exitOK, "{")
	if err := json.Unmarshal([]byte(r.out), &doc); err != nil {
		t.Fatal(err)
	}
	steering = map[string]uint64{}
	for _, p := range doc.Ports {
		received += p.Received
		for verdict, n := range p.Steering {
			steering[verdict] += n
		}
	}
	return steering, received
}

// TestInKernel: the built binary, two workers in namespaces, and a job that the steering programs add up. It is the same job
// after a restart.
func TestInKernel(t *testing.T) {
	f := newField(t)
	const packets, elements = 300, 300*256 - 5
	state := filepath.Join(t.TempDir(), "jobs.db")
	members := []string{"--member", "0=02:00:00:00:01:00,10.50.0.1,port0", "--member", "1=02:00:00:00:01:01,10.50.0.2,port1"}
	install := func(more ...string) result {
		t.Helper()
		return f.gradnic(t, append([]string{"install", "job", "train", "--workers", "2", "--slots", "64"}, more...)...)
	}

	cmd, _ := f.start(t, "--store", state)
	install("--in-kernel", "--member", "0=02:00:00:00:01:00,10.50.0.1").want(t, exitFailed, "job.members[rank 0].port: missing")
	install("--in-kernel", "--protocol", "native").want(t, exitFailed, "in_kernel is for protocol switchml")
	install(append(members, "--in-kernel")...).want(t, exitOK, "job train installed\n")
	f.gradnic(t, "show", "jobs").want(t, exitOK, "in kernel\n")
	f.gradnic(t, "show", "job", "train", "-j").want(t, exitOK, `"in_kernel":true`)
	f.gradnic(t, "set", "impair", "port0", "--ingress-loss", "1").want(t, exitFailed, "job train")

	ws := f.joinAll(t, worker.Config{})
	sumAll(t, ws, elements, 1)
	steering, received := f.verdicts(t)
	// Of each slot's two contributions one is added where it arrives; what a slow machine repeats is counted apart.
	if steering["summed"] != packets || received < packets {
		t.Errorf("%d frames summed up, want %d; the lane took %d: %v", steering["summed"], packets, received, steering)
	}
	f.gradnic(t, "show", "ports").want(t, exitOK, "SUMMED")
	f.gradnic(t, "show", "job", "train").want(t, exitOK, fmt.Sprintf("results    %d,", packets))
	f.gradnic(t, "show", "counters").want(t, exitOK, "the accounts add up")

	terminate(t, cmd)
	cmd, _ = f.start(t, "--store", state, "--drop", "all") // the job in the store is there before rights are given up
	f.gradnic(t, "show", "job", "train").want(t, exitOK, "added up   in kernel\n")
	install(append(members, "--in-kernel")...).want(t, exitOK, "job train unchanged\n")
	install(members...).want(t, exitFailed, "in_kernel true, not false")
	sumAll(t, ws, elements, 2)
	if steering, _ := f.verdicts(t); steering["summed"] != packets {
		t.Errorf("after the restart %d frames are summed up, want %d: %v", steering["summed"], packets, steering)
	}

	// Without the flag the lanes add up, and the programs nothing more.
	f.gradnic(t, "remove", "job", "train").want(t, exitOK, "job train removed\n")
	install(members...).want(t, exitOK, "job train installed\n")
	if r := f.gradnic(t, "show", "job", "train", "-j").want(t, exitOK, `"name":"train"`); strings.Contains(r.out, "in_kernel") {
		t.Errorf("%s", r.out)
	}
	sumAll(t, ws, elements, 3)
	if steering, _ := f.verdicts(t); steering["summed"] != packets {
		t.Errorf("a job in lanes: %d frames are summed up, %d were before", steering["summed"], packets)
	}
	terminate(t, cmd)

	// The store has no job that is added up in the kernel now, and without rights there cannot be one.
	cmd, _ = f.start(t, "--store", state, "--drop", "all")
	f.gradnic(t, "remove", "job", "train").want(t, exitOK, "job train removed\n")
	r := install(append(members, "--in-kernel")...).want(t, exitFailed, "the process has no CAP_BPF, or has given it up: ")
	if strings.Contains(r.err, "MEMLOCK") || strings.Count(r.err, "job train") != 1 {
		t.Errorf("%s", r.err)
	}
	terminate(t, cmd)
}

// workAll runs `gradnic worker` for each rank, once, on so many packets of 256 elements; every element is checked.
func (f *field) workAll(t *testing.T, packets int, args ...string) {
	t.Helper()
	out := make([]result, len(f.spaces))
	var g sync.WaitGroup
	for rank, ns := range f.spaces {
		g.Go(func() {
			w := ns.Command(t.Context(), f.binary, append([]string{"worker", "--rank", fmt.Sprint(rank), "--workers", fmt.Sprint(len(f.spaces)),
				"--ip", fmt.Sprintf("10.50.0.%d", 1+rank), "--random", fmt.Sprint(256 * packets), "--type", "int32", "--check", "--deadline", "30s",
				"--warmup", "0", "--iters", "1"}, args...)...)
			var o, e strings.Builder
			w.Stdout, w.Stderr = &o, &e
			_ = w.Run() // the status is looked at below
			out[rank] = result{w.ProcessState.ExitCode(), o.String(), e.String()}
		})
	}
	g.Wait()
	for _, r := range out {
		r.want(t, exitOK, "int32")
	}
}

// TestInKernelSessions: SwitchML workers that come by the controller are added up in the kernel, session after session.
func TestInKernelSessions(t *testing.T) {
	f := newField(t)
	for _, conn := range f.workers {
		conn.Close() // the workers open their own
	}
	door := "unix:" + filepath.Join(t.TempDir(), "switchml.sock")
	named := []string{"--switchml", door, "--switchml-in-kernel", "--switchml-worker", "02:00:00:00:01:00,10.50.0.1,port0", "--switchml-worker", "02:00:00:00:01:01,10.50.0.2"}
	f.gradnic(t, append([]string{"run", "--ip", "10.50.0.254", "--port", "port0", "--port", "port1", "--check"}, named...)...).want(t, exitFailed, "name each as MAC,IP,PORT")
	named[len(named)-1] += ",port1"
	cmd, _ := f.start(t, named...)
	const packets = 3
	for session := range 2 {
		f.workAll(t, packets, "--controller", strings.Replace(door, "unix:", "unix://", 1))
		f.gradnic(t, "show", "job", "switchml", "-j").want(t, exitOK, `"in_kernel":true`)
		steering, _ := f.verdicts(t)
		if got, least := steering["summed"], uint64((session+1)*packets); got < least {
			t.Errorf("session %d: %d frames are summed up, want %d at least", session, got, least)
		}
		if session == 0 { // which has as many slots as a job can have: another one of that size has room beside it
			f.gradnic(t, "install", "job", "beside", "--workers", "2", "--slots", "8192", "--in-kernel").want(t, exitOK, "job beside installed\n")
		}
	}
	f.gradnic(t, "install", "job", "third", "--workers", "2", "--in-kernel").want(t, exitFailed, "no room for the slots: of 16384, which the 2 jobs there share, ")
	terminate(t, cmd)
}

// TestInKernelMulticast: a job that is installed by hand, added up in the kernel, with one frame a port for each result.
func TestInKernelMulticast(t *testing.T) {
	f := newField(t)
	for _, conn := range f.workers {
		conn.Close() // the workers open their own
	}
	cmd, _ := f.start(t)
	f.gradnic(t, "install", "job", "train", "--workers", "2", "--in-kernel", "--multicast", "239.9.8.7",
		"--member", "0=02:00:00:00:01:00,10.50.0.1,port0", "--member", "1=02:00:00:00:01:01,10.50.0.2,port1").want(t, exitOK, "installed")
	f.gradnic(t, "show", "groups").want(t, exitOK, "239.9.8.7")
	f.gradnic(t, "show", "job", "train").want(t, exitOK, "multicast  239.9.8.7\n")
	const packets = 200
	f.workAll(t, packets, "--nic", "10.50.0.254", "--multicast", "239.9.8.7")
	if steering, _ := f.verdicts(t); steering["summed"] != packets {
		t.Errorf("%d frames are summed up, want %d", steering["summed"], packets)
	}
	var doc struct {
		Counters struct{ Results, Replicas, Resent uint64 }
	}
	r := f.gradnic(t, "show", "counters", "-j").want(t, exitOK, "{")
	if err := json.Unmarshal([]byte(r.out), &doc); err != nil || doc.Counters.Results != packets || doc.Counters.Replicas != 2*packets+doc.Counters.Resent {
		t.Errorf("%v: %+v, want %d results, each by both ports", err, doc.Counters, packets)
	}
	terminate(t, cmd)
}
