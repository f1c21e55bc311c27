package main

import (
	"strings"
	"testing"
	"time"
)

// The NIC is killed and the next is started without waiting for the first one's end, as a script does. Every start
// works: over the netdevs, the socket of the API and the TCP ports that the dying process still has for a moment.
func (f *field) testStartsAtOnceAfterKill(t *testing.T) {
	args := []string{"--switchml", "0.0.0.0:50099", "--metrics", "0.0.0.0:9105", "--wait", "interrupt", "--log-level", "warn"}
	cmd, _ := f.start(t, args...)
	for i := range 20 {
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		next, ready := f.start(t, args...)
		if !strings.Contains(ready, "port=port0:xdp-native port=port1:xdp-native") {
			t.Errorf("start %d: %q", i, ready)
		}
		if d := time.Since(begin); d > 15*time.Second {
			t.Errorf("start %d took %v", i, d)
		}
		_ = cmd.Wait()
		cmd = next
	}
	f.gradnic(t, "show", "nic").want(t, exitOK, "10.50.0.254")
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
}
