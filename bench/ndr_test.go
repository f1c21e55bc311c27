package bench

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"gradnic/bench/gen"
	"gradnic/bench/ndr"
	"gradnic/bench/peers"
	"gradnic/internal/netlab/netlabtest"
)

// A device that damages what it sends back is found out, and so is one that sends nothing back. A program that takes 20 us
// a frame runs on the generator's own core: that makes the generator slow, and the trial INVALID, not the device bad.
func TestSlowAndDamagingDevices(t *testing.T) {
	rig := newRig(t)
	faulty := func(f gen.Fault) contestant {
		return contestant{name: "faulty", ceiling: func(index int) (*gen.Program, error) { return gen.OpenFaulty(index, f) }}
	}
	slow := faulty(gen.Fault{Dawdle: 20 * time.Microsecond})
	stop, err := rig.begin(slow, peers.Reflect)
	if err != nil {
		t.Fatal(err)
	}
	got, err := rig.trial(t.Context(), slow, 64, 200e3, 50*time.Millisecond)
	if _, err2 := stop(); err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	if !strings.Contains(got.Invalid, "INVALID: the generator") || got.Sent > got.Asked/2 {
		t.Errorf("a slowed generator: %+v", got)
	}
	note, err := rig.integrity(t.Context(), faulty(gen.Fault{Spoil: 10}), 128)
	if err != nil || !strings.Contains(note, "INVALID: the device damages frames") {
		t.Errorf("a device that turns a bit of each tenth frame: %q, %v", note, err)
	}
	if note, err = rig.integrity(t.Context(), contestant{ceiling: gen.OpenBounce}, 128); err != nil || note != "" {
		t.Errorf("a device that sends back what it gets: %q, %v", note, err)
	}
	if note, err = rig.integrity(t.Context(), contestant{ceiling: gen.OpenDrop}, 128); err != nil || !strings.Contains(note, "no frame comes back") {
		t.Errorf("a device that drops everything: %q, %v", note, err)
	}
}

// A contestant that is slowed down in user space, on a CPU of its own, loses frames in a valid trial: it is the device
// that is slow, not the tester.
func TestSlowedContestant(t *testing.T) {
	rig := newRig(t)
	slowed := contestant{name: "slowed", argv: []string{os.Args[0], "contestant", "slowed"}}
	stop, err := rig.begin(slowed, peers.Reflect)
	if err != nil {
		t.Fatal(err)
	}
	var got ndr.Trial
	// On a busy machine many a trial is INVALID; one that is not tells.
	for range 60 {
		if got, err = rig.trial(t.Context(), slowed, 64, 300e3, 20*time.Millisecond); err != nil || got.Invalid == "" {
			break
		}
	}
	if _, err2 := stop(); err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	t.Logf("%+v", got)
	// It takes 20 us a frame: 50,000 a second, and what fits its rings.
	if got.Invalid != "" {
		t.Logf("no trial of 60 was valid: the machine is busy: %s", got.Invalid)
		return
	}
	if got.Loss() < 0.3 {
		t.Errorf("a contestant that takes 20 us a frame: %+v, lost %.3f", got, got.Loss())
	}
}

// Asking for more than the generator can do is INVALID, and a search then says that it is bound by the tester.
func TestTesterBound(t *testing.T) {
	rig := newRig(t)
	bounce := contestant{ceiling: gen.OpenBounce}
	stop, err := rig.begin(bounce, peers.Reflect)
	if err != nil {
		t.Fatal(err)
	}
	got, err := rig.trial(t.Context(), bounce, 64, 100e6, 30*time.Millisecond)
	if _, err2 := stop(); err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	if !strings.Contains(got.Invalid, "INVALID: the generator") || got.Sent >= got.Asked {
		t.Errorf("100 Mpps: %+v", got)
	}
}

// What an interrupted run has measured is in its report. It is interrupted in the first of two rounds, however its
// trials go: how many trials a search takes, and whether they are INVALID, depends on the machine.
func TestInterruptedNDR(t *testing.T) {
	netlabtest.NeedRoot(t)
	if err := cpus(); err != nil {
		t.Skip(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := NDR(ctx, NDROptions{
		Self: []string{os.Args[0], "contestant"}, Dir: t.TempDir(), Devices: []string{"rings"}, Sizes: []int{64, 128}, Rounds: 2,
		Search: ndr.Options{Max: 100e3, Precision: 0.5, Goals: []float64{0.005}, Trials: []time.Duration{20 * time.Millisecond}},
		Log: writerFunc(func(b []byte) (int, error) {
			if strings.Contains(string(b), "rings") && strings.Contains(string(b), " 128 B") {
				cancel()
			}
			return len(b), nil
		}),
	})
	if !errors.Is(err, context.Canceled) || r == nil || r.Interrupted == "" {
		t.Fatalf("%v, %+v", err, r)
	}
	complete := 0 // rows of the size that was done
	for _, row := range r.Rows {
		if strings.Contains(row.Name, "/64/") {
			complete++
		}
	}
	if complete != 2 || len(r.Plots) == 0 { // the tester alone and the device
		t.Errorf("rows %+v, %d plots", r.Rows, len(r.Plots))
	}
	if _, err := r.HTML(); err != nil {
		t.Error(err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// The plot of a search says of each trial whether it kept a goal of that search, whatever the goals are; what never happened is
// an empty list in JSON.
func TestTracePlot(t *testing.T) {
	out := &ndr.Outcome{Trials: []ndr.Trial{{Rate: 1e6, Sent: 1000, Received: 1000}, {Rate: 2e6, Sent: 1000, Received: 985}, {Rate: 3e6, Sent: 1000, Received: 900}}}
	for _, x := range []struct {
		goals  []float64
		name   string
		points [4]int
	}{
		{nil, "up to 0.5 % lost", [4]int{1, 0, 2, 0}},
		{[]float64{0}, "up to 0.5 % lost", [4]int{1, 0, 2, 0}},
		{[]float64{0, 0.02}, "up to 2 % lost", [4]int{1, 1, 1, 0}},
	} {
		p := tracePlot("", out, x.goals)
		if p.Lines[1].Name != x.name {
			t.Errorf("goals %v: %q, want %q", x.goals, p.Lines[1].Name, x.name)
		}
		for k, n := range x.points {
			if len(p.Lines[k].Points) != n || p.Lines[k].Points == nil {
				t.Errorf("goals %v: line %q has %v, want %d points", x.goals, p.Lines[k].Name, p.Lines[k].Points, n)
			}
		}
	}
}
