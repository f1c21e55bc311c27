package collective

import (
	"testing"
	"time"

	"gradnic/internal/netlab/netlabtest"
)

// TestTryLink: a link that lets through 5 % more than it is said to have is found out, one of its own rate is not. The link is
// slow, so that its queue lasts while a busy machine keeps the sender waiting.
func TestTryLink(t *testing.T) {
	netlabtest.NeedRoot(t)
	s, err := newStar(1, Link{Rate: 10e6, MTU: 1500})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	own, err := s.tryLink(400 * time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if own < 0.5 || own > Most {
		t.Errorf("%.3f of the link's own rate came across", own)
	}
	s.link.Rate = 9.5e6
	for range 5 {
		less, err := s.tryLink(400 * time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		if less > Most {
			return
		}
		t.Logf("%.3f of 9.5 Mbit/s", less)
	}
	t.Error("a link of 10 Mbit/s passed for one of 9.5 Mbit/s")
}

// TestTryDeadLink: no judgement of a link that carries nothing.
func TestTryDeadLink(t *testing.T) {
	netlabtest.NeedRoot(t)
	s, err := newStar(2, Link{Rate: 100e6, MTU: 1500})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	// What is sent to worker 0 does not arrive at worker 1.
	if ratio, err := TryLink(s.centre, nicIface+"0", s.workers[1], workerIface, 100e6, 10*time.Millisecond); err == nil {
		t.Errorf("%.3f of a link that nothing was sent on", ratio)
	}
}
