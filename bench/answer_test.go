package bench

import (
	"os"
	"testing"
	"time"

	"gradnic/bench/peers"
)

// What comes back counts whoever sends it: a socket answers from its own port, all others send the frame as it was.
func TestAnswersCount(t *testing.T) {
	rig := newRig(t)
	for _, c := range []contestant{
		{name: "udp", argv: []string{os.Args[0], "contestant", "udp"}, toKernel: true},
		{name: "packet", argv: []string{os.Args[0], "contestant", "packet"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if note, err := rig.integrity(t.Context(), c, 128); err != nil || note != "" {
				t.Errorf("its frames: %q, %v", note, err)
			}
			stop, err := rig.begin(c, peers.Reflect)
			if err != nil {
				t.Fatal(err)
			}
			// At this rate a busy machine may lose some, not all, and the generator may be late.
			got, err := rig.trial(t.Context(), c, 128, 2000, 100*time.Millisecond)
			counts, err2 := stop()
			if err != nil || err2 != nil {
				t.Fatal(err, err2)
			}
			t.Logf("%+v, %+v", got, counts)
			if got.Sent == 0 || got.Received == 0 || got.Received > got.Sent {
				t.Errorf("%d of %d frames came back", got.Received, got.Sent)
			}
		})
	}
}
