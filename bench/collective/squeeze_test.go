package collective

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"gradnic/internal/netlab/netlabtest"
)

// A step over a slow link is faster with compression than without, and the run says how much of it is communication. A run that
// says INVALID, as most do on a busy machine, is made again, and so is one without the gain, which a burst of other work may have
// taken: of those that do not say INVALID, one must have it.
func TestSqueeze(t *testing.T) {
	netlabtest.NeedRoot(t)
	missed := ""
	for try := range 4 {
		r, err := Squeeze(t.Context(), SqueezeOptions{Rounds: 3, Log: os.Stderr, Command: "test", Cases: []SqueezeCase{
			{Link: Link{Rate: 100e6, MTU: 1500}, Workers: 2, Bytes: mib, Codecs: []string{"bfp16"}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, row := range r.Rows {
			names = append(names, row.Name)
		}
		const of = "/2-workers/100Mbit/1MiB"
		if want := []string{"communication" + of, "step/none" + of, "steps/bfp16" + of}; !slices.Equal(names, want) {
			t.Fatalf("rows %q, want %q", names, want)
		}
		comm, gain := r.Rows[0], r.Rows[2]
		t.Logf("try %d: communication %.2f of the step, %.2fx with bfp16, %q", try, comm.Value, gain.Ratio, gain.Note)
		if !(comm.Value > 0 && comm.Value < 1) || comm.Invalid() != gain.Invalid() || !comm.Invalid() && (comm.Value < commLow || comm.Value > commHigh) {
			t.Errorf("communication is %.3f of the step, notes %q and %q", comm.Value, comm.Note, gain.Note)
		}
		if gain.Ratio >= squeezeGoal {
			return
		}
		if !gain.Invalid() {
			missed += fmt.Sprintf(" %.2fx", gain.Ratio)
		}
	}
	if missed != "" {
		t.Errorf("with bfp16%s, want %.2fx", missed, squeezeGoal)
	}
}

// What a run that was interrupted has measured is in its report.
func TestInterruptedSqueeze(t *testing.T) {
	netlabtest.NeedRoot(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	slow := Link{Rate: 100e6, MTU: 1500}
	r, err := Squeeze(ctx, SqueezeOptions{Rounds: 1, Command: "test", Cases: []SqueezeCase{
		{Link: slow, Workers: 2, Bytes: 64 * kib, Codecs: []string{"bfp16"}},
		{Link: slow, Workers: 2, Bytes: 128 * kib, Codecs: []string{"bfp16"}},
	}, Log: writerFunc(func(b []byte) (int, error) {
		if strings.Contains(string(b), "128KiB") {
			cancel()
		}
		return len(b), nil
	})})
	// The round that was under way may still have ended well; then nothing was interrupted.
	if r == nil || len(r.Rows) < 3 || (err != nil) != (r.Interrupted != "") {
		t.Errorf("%v: %+v", err, r)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }
