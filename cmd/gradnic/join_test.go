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
		"no controller": {"--controller unix:///" + os.DevNull + "/none --workers 2 --rank 0 --join-timeout 2500ms", "no connection to it"},
		"no rank 0":     {"--controller " + controller + " --workers 3 --rank 1 --deadline 2500ms", "rank 0 of 3 workers has not come"},
		"only rank 0":   {"--controller " + controller + " --workers 2 --rank 0 --deadline 1h --join-timeout 2500ms", "not all 2 workers have come"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begin := time.Now()
			// A loopback address of its own, so that the UDP ports do not meet.
			ip := map[string]string{"no controller": "127.77.9.1", "no rank 0": "127.77.9.2", "only rank 0": "127.77.9.3"}[name]
			r := gradnic(t, "", strings.Fields("worker --ip "+ip+" --mac 02:00:00:00:00:01 --random 500 "+c.line)...)
			if d := time.Since(begin); d < 2*time.Second || d > 30*time.Second {
				t.Errorf("took %v", d)
			}
			says := `^gradnic worker: waiting: SwitchML controller [^\n]*` + c.waits + `[^\n]*\ngradnic worker: join: [^\n]*` + c.waits + `[^\n]*: context deadline exceeded\n$`
			if r.code != exitFailed || r.out != "" || !regexp.MustCompile(says).MatchString(r.err) {
				t.Errorf("status %d, %q, %q, want %q", r.code, r.out, r.err, says)
			}
		})
	}
}

func TestNativeWorkerSaysWhatItWaitsFor(t *testing.T) {
	r := gradnic(t, "", strings.Fields("worker --protocol native --nic 127.77.9.9 --ip 127.77.9.4 --workers 2 --random 5 --deadline 1h --join-timeout 2500ms")...)
	says := `^gradnic worker: waiting: job 1 at NIC 127.77.9.9: [^\n]*\ngradnic worker: job 1 at NIC [^\n]*not all its workers have come[^\n]*deadline exceeded[^\n]*\n$`
	if r.code != exitFailed || r.out != "" || !regexp.MustCompile(says).MatchString(r.err) {
		t.Errorf("status %d, %q, %q, want %q", r.code, r.out, r.err, says)
	}
}
