package collective

import (
	"testing"
	"time"

	"gradnic/internal/netlab/netlabtest"
)

// TestTryLink: a link that lets through 4 % more than it is said to have is found out, one of its own rate is not.
func TestTryLink(t *testing.T) {
	netlabtest.NeedRoot(t)
	s, err := newStar(1, Link{Rate: 100e6, MTU: 1500})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	ratio, err := s.tryLink(200 * time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if ratio < 0.5 || ratio > Most {
		t.Errorf("%.3f of the link's own rate came across", ratio)
	}
	s.link.Rate = 96e6
	for range 3 { // a busy machine may keep the sender from filling the link
		if ratio, err = s.tryLink(200 * time.Millisecond); err != nil {
			t.Fatal(err)
		}
		if ratio > Most {
			return
		}
	}
	t.Errorf("a link of 100 Mbit/s lets %.3f of 96 Mbit/s through: not found out", ratio)
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
