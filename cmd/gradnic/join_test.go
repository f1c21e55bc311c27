package main

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"gradnic/control/daemon"
	"gradnic/dataplane"
	"gradnic/wire/inet"
)

// A worker whose controller or peers do not come says what it waits for, and ends in its time.
func TestWorkerSaysWhatItWaitsFor(t *testing.T) {
	dir := t.TempDir()
	controller := "unix://" + filepath.Join(dir, "switchml.sock")
	ready, done := make(chan struct{}), make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		done <- daemon.Run(ctx, daemon.Options{
			NIC:   dataplane.Config{MAC: inet.MAC{2, 0x67, 10, 50, 0, 254}, IP: inet.Addr{10, 50, 0, 254}},
			Ports: []dataplane.PortSpec{dataplane.NewMemPort("mem0")}, SwitchML: "unix:" + filepath.Join(dir, "switchml.sock"),
			API: filepath.Join(dir, "api.sock"), Ready: func(daemon.Status) error { close(ready); return nil },
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	select {
	case <-ready:
	case <-time.After(30 * time.Second):
		t.Fatal("the NIC is not ready")
	}
	for name, c := range map[string]struct{ line, waits string }{
		"no controller": {"--controller unix:///" + os.DevNull + "/none --workers 2 --rank 0 --join-timeout LIMIT", "no connection to it"},
		"no rank 0":     {"--controller " + controller + " --workers 3 --rank 1 --deadline LIMIT", "rank 0 of 3 workers has not come"},
		"only rank 0":   {"--controller " + controller + " --workers 2 --rank 0 --deadline 1h --join-timeout LIMIT", "not all 2 workers have come"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// A loopback address of its own, so that the UDP ports do not meet.
			ip := map[string]string{"no controller": "127.77.9.1", "no rank 0": "127.77.9.2", "only rank 0": "127.77.9.3"}[name]
			says := regexp.MustCompile(`^gradnic worker: waiting: SwitchML controller [^\n]*` + c.waits + `[^\n]*\ngradnic worker: join: [^\n]*` + c.waits + `[^\n]*: context deadline exceeded\n$`)
			waited(t, "worker --ip "+ip+" --mac 02:00:00:00:00:01 --random 500 "+c.line, says)
		})
	}
}

// waited runs a worker that has nobody to meet and gives up after LIMIT. It says what it waits for after two seconds, if the
// machine lets it run then: else it may wait longer.
func waited(t *testing.T, line string, says *regexp.Regexp) {
	t.Helper()
	for _, limit := range []time.Duration{2500 * time.Millisecond, 10 * time.Second, 30 * time.Second} {
		begin := time.Now()
		r := gradnic(t, "", strings.Fields(strings.ReplaceAll(line, "LIMIT", limit.String()))...)
		took := time.Since(begin)
		if r.code == exitFailed && r.out == "" && says.MatchString(r.err) && took > 2*time.Second && took < limit+30*time.Second {
			return
		}
		t.Logf("gave up after %v: took %v, status %d, %q, %q, want %q", limit, took, r.code, r.out, r.err, says)
	}
	t.Error("it did not say what it waits for")
}

func TestNativeWorkerSaysWhatItWaitsFor(t *testing.T) {
	says := regexp.MustCompile(`^gradnic worker: waiting: job 1 at NIC 127.77.9.9: no answer from the NIC[^\n]*\ngradnic worker: join job 1 at 127.77.9.9 as rank 0: context deadline exceeded: no answer from the NIC[^\n]*\n$`)
	waited(t, "worker --protocol native --nic 127.77.9.9 --ip 127.77.9.4 --workers 2 --random 5 --deadline 1h --join-timeout LIMIT", says)
}
