package bench

import (
	"testing"
	"time"

	"gradnic/bench/gen"
	"gradnic/bench/peers"
)

func TestUndisturbed(t *testing.T) {
	r := Run{Offered: 1000, Elapsed: time.Second, Undisturbed: 4}
	if got := r.undisturbed(500); got != 2 {
		t.Errorf("half of 4 Mpps is %v", got)
	}
	if got := (Run{Undisturbed: 4}).undisturbed(0); got != 0 {
		t.Errorf("of nothing: %v", got)
	}
	var s summing
	s.add(Run{Offered: 1_000_000, Elapsed: time.Second, Undisturbed: 4}, peers.Counts{Received: 1_000_000})
	s.add(Run{Offered: 1_000_000, Elapsed: time.Second, Undisturbed: 4}, peers.Counts{Received: 500_000}) // overrun
	s.add(Run{Offered: 1_000_000, Elapsed: time.Second}, peers.Counts{Received: 1_000_000})               // not in slices
	if s.in[0] != 4 || s.in[1] != 0.5 || s.in[2] != 1 || s.mean[0] != 1 {
		t.Errorf("%+v", s)
	}
}

// A run in slices offers what its slices do, and its least disturbed rate is that of one of the fastest.
func TestDriveSlices(t *testing.T) {
	r := newRig(t)
	stop, err := r.begin(contestant{ceiling: gen.OpenDrop}, peers.Drop)
	if err != nil {
		t.Fatal(err)
	}
	run, err := r.driveSlices(xdpProgram, gen.Options{Frame: r.Frame(64, false)}, 60*time.Millisecond)
	counts, err2 := stop()
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	if run.Offered == 0 || counts.Received != run.Offered || run.Elapsed < 30*time.Millisecond || run.Elapsed > 10*time.Second {
		t.Errorf("%+v, %d received", run, counts.Received)
	}
	if mean := run.Mpps(run.Offered); run.Undisturbed < mean/2 || run.Undisturbed > 100 {
		t.Errorf("%v Mpps undisturbed, %v over the whole run", run.Undisturbed, mean)
	}
}
