package dataplane

import (
	"context"
	"testing"
	"time"
)

// deadline is how long a test waits for something that has to happen soon, on a machine that has time. Where others use
// the machine as well, it is that and ten times what the machine takes just then to make a netdev and to start and stop a
// NIC on it: that waits for the same locks of the kernel, and for the same CPUs.
type deadline struct {
	t     testing.TB
	begin time.Time
	limit time.Duration
	asked bool // the limit is what the machine says
}

func newDeadline(t testing.TB, limit time.Duration) *deadline {
	return &deadline{t: t, begin: time.Now(), limit: limit}
}

// ended tells whether it has lasted too long.
func (d *deadline) ended() bool {
	d.t.Helper()
	return d.exceeded(time.Since(d.begin))
}

// exceeded tells whether something that took so long took too long.
func (d *deadline) exceeded(took time.Duration) bool {
	d.t.Helper()
	if took > d.limit && !d.asked {
		d.asked = true
		usual := opening(d.t)
		d.t.Logf("%v are over; to make a netdev and start and stop a NIC takes %v", d.limit, usual)
		d.limit += 10 * usual
	}
	return took > d.limit
}

// opening is how long it takes to make a netdev and to start and stop a NIC on it.
func opening(t testing.TB) time.Duration {
	t.Helper()
	begin := time.Now()
	l := newVethLab(t, 1, 1, false)
	cfg := testConfig()
	cfg.NoHealing = true
	n, err := New(cfg, l.ports()...)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := n.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	return time.Since(begin)
}
