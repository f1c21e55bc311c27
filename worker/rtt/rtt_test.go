package rtt

import (
	"testing"
	"time"
)

func TestTimer(t *testing.T) {
	const ms = int64(time.Millisecond)
	r := NewTimer(Bounds{First: 10 * time.Millisecond, Least: 5 * time.Millisecond, Most: 80 * time.Millisecond})
	if got := r.Timeout(); got != 10*ms {
		t.Errorf("first timeout %d", got)
	}
	now := int64(0)
	for i, want := range []int64{20, 40, 80, 80, 80} {
		now += r.Timeout()
		r.Expire(now)
		if got := r.Timeout(); got != want*ms {
			t.Errorf("after %d expiries: %d ms, want %d", i+1, got/ms, want)
		}
	}
	r.Expire(now + ms) // expired together with the last
	r.Calm()
	if got := r.Timeout(); got != 10*ms {
		t.Errorf("after progress: %d", got)
	}
	r.Sample(20 * ms) // srtt 20, var 10
	if got := r.Timeout(); got != 60*ms {
		t.Errorf("after a sample of 20 ms: %d, want 60 ms", got)
	}
	for range 200 {
		r.Sample(ms / 10)
	}
	if got := r.Timeout(); got != 5*ms {
		t.Errorf("after many fast samples: %d, want the minimum", got)
	}
	r.Sample(int64(time.Hour))
	if got := r.Timeout(); got != 80*ms {
		t.Errorf("after a slow sample: %d, want the maximum", got)
	}
}

func TestProbe(t *testing.T) {
	const ms = int64(time.Millisecond)
	r := NewTimer(Bounds{First: 40 * time.Millisecond, Least: 20 * time.Millisecond, Most: 80 * time.Millisecond})
	if got := r.Probe(); got != r.Timeout() {
		t.Errorf("with nothing measured: %d", got)
	}
	r.Sample(ms)
	if got := r.Probe(); got != 5*ms {
		t.Errorf("after a round trip of 1 ms: %d", got)
	}
	for range 100 {
		r.Sample(8 * ms)
	}
	if got := r.Probe(); got < 15*ms || got > 16*ms {
		t.Errorf("after round trips of 8 ms: %d", got)
	}
}

func TestBounds(t *testing.T) {
	or := Bounds{First: time.Second, Least: 2, Most: 3}
	if b, err := (Bounds{Least: 1}).Defaulted(or); err != nil || b != (Bounds{First: time.Second, Least: 1, Most: 3}) {
		t.Errorf("%+v %v", b, err)
	}
	for _, bad := range []Bounds{{First: -1}, {Least: -1}, {Most: -1}, {Least: 5, Most: 4}, {Least: 4}} {
		if b, err := bad.Defaulted(or); err == nil {
			t.Errorf("%+v became %+v", bad, b)
		}
	}
}
