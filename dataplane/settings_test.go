package dataplane

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/safchain/ethtool"

	"gradnic/internal/netlab"
	"gradnic/wire/switchml"
	"gradnic/xdp/settings"
)

func channelsOf(t testing.TB, ns *netlab.NS, iface string) (n uint32) {
	t.Helper()
	err := ns.Do(func() error {
		e, err := ethtool.NewEthtool()
		if err != nil {
			return err
		}
		defer e.Close()
		c, err := e.GetChannels(iface)
		n = c.RxCount
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestSettings: a netdev of one queue gets two for two lanes while the NIC runs, also after it was made again, and has one
// again afterwards; a start that fails leaves it as it was.
func TestSettings(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(settings.EnvDir, dir)
	l := newVethLab(t, 1, 2, false)
	one := func() {
		t.Helper()
		if err := takeQueues(l.nic, "p0", 1); err != nil {
			t.Fatal(err)
		}
	}
	one()
	cfg := testConfig()
	cfg.Lanes = 2
	port := XDPPort{Interface: "p0", Namespace: l.nic.Do, Settings: settings.Want{Queues: 2}}
	n, err := New(cfg, port)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	if got := channelsOf(t, l.nic, "p0"); got != 2 || n.Snapshot().Ports[0].Queues != 2 {
		t.Fatalf("%d queues", got)
	}
	l.delete(t, 0)
	waitState(t, n, 0, StateDown, "does not exist")
	l.create(t, 0, 2)
	// It may come up with both before it can be cut to one: then there is nothing to be changed, and nothing to set back.
	waitState(t, n, 0, StateUp, "")
	if err := n.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	one()

	n, err = New(cfg, port)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	if files, _ := filepath.Glob(filepath.Join(dir, "*")); len(files) != 1 {
		t.Fatalf("state files %q", files)
	}
	if err := n.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	if got := channelsOf(t, l.nic, "p0"); got != 1 {
		t.Fatalf("%d queues after the stop", got)
	}

	n, err = New(cfg, port, XDPPort{Interface: "p9", Namespace: l.nic.Do})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Start(context.Background()); err == nil {
		t.Fatal("started on an interface that is not there")
	}
	if got := channelsOf(t, l.nic, "p0"); got != 1 {
		t.Fatalf("%d queues after the start that failed", got)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Fatalf("%v, %v", entries, err)
	}
}

// TestSteeringRules: each of the 16 ports has one queue, and all queues have some.
func TestSteeringRules(t *testing.T) {
	cfg := testConfig()
	for queues, want := range map[int]int{1: 0, 2: 16, 5: 16, 64: 16} {
		rules := XDPPort{}.rules(&cfg, queues)
		if len(rules) != want {
			t.Fatalf("%d queues: %d rules", queues, len(rules))
		}
		used := map[int]int{}
		for i, r := range rules {
			if r.IP != nicIP || r.Port != uint16(switchml.PortBase+i) || r.Queue >= queues {
				t.Fatalf("%v", r)
			}
			used[r.Queue]++
		}
		if want > 0 && len(used) != min(queues, 16) {
			t.Fatalf("%d queues: used %v", queues, used)
		}
	}
	if rules := (XDPPort{WholePort: true}).rules(&cfg, 4); len(rules) != 0 {
		t.Fatalf("%v", rules)
	}
}
