package dataplane

import (
	"strings"
	"testing"
	"time"

	"gradnic/internal/logtest"
)

// TestStartOnDownInterface: a netdev that is down when the NIC starts is said and shown at once, with what mends it; it
// works when it is up, without a word that it was ever broken.
func TestStartOnDownInterface(t *testing.T) {
	for name, noHealing := range map[string]bool{"healing": false, "no healing": true} {
		t.Run(name, func(t *testing.T) {
			l := newVethLab(t, 2, 1, false)
			link, err := l.nic.Netlink().LinkByName("p0")
			if err != nil {
				t.Fatal(err)
			}
			if err := l.nic.Netlink().LinkSetDown(link); err != nil {
				t.Fatal(err)
			}
			var log logtest.Lines
			cfg := testConfig()
			cfg.NoHealing, cfg.Logger = noHealing, log.Logger()
			n := startNIC(t, cfg, l.ports()...)
			p := n.Snapshot().Ports
			if want := map[bool]PortState{false: StateDown, true: StateUp}[noHealing]; p[0].State != want || !strings.Contains(p[0].Why, "is down") {
				t.Errorf("port %s is %s (%s), want %s", p[0].Name, p[0].State, p[0].Why, want)
			}
			if p[1].State != StateUp || p[1].Why != "" {
				t.Errorf("port %s is %s (%s)", p[1].Name, p[1].State, p[1].Why)
			}
			if lines := log.With("level=WARN", "port down", "ip link set p0 up"); len(lines) != 1 {
				t.Errorf("%d warnings: %v", len(lines), log.With("WARN"))
			}
			if noHealing {
				return // nobody looks again
			}
			time.Sleep(3 * healEvery)
			if lines := log.With("level=WARN"); len(lines) != 1 {
				t.Errorf("it is said again: %v", lines)
			}
			if err := l.nic.Netlink().LinkSetUp(link); err != nil {
				t.Fatal(err)
			}
			waitState(t, n, 0, StateUp, "")
		})
	}
}
