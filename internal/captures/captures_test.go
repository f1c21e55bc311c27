package captures

import (
	"bytes"
	"testing"
)

func TestLoad(t *testing.T) {
	for elements, want := range map[int]struct{ frames, size int }{64: {2048, 308}, 256: {1024, 1076}} {
		steps, err := Load(elements)
		if err != nil {
			t.Fatal(err)
		}
		var frames, requests [Workers]int
		for i, s := range steps {
			frames[s.Worker]++
			if i > 0 && s.Time.Before(steps[i-1].Time) {
				t.Fatalf("%d elements: step %d is earlier than the one before", elements, i)
			}
			if len(s.Frame) != want.size {
				t.Fatalf("%d elements: step %d has %d bytes", elements, i, len(s.Frame))
			}
			worker, sw := WorkerMAC(s.Worker), SwitchMAC()
			from, to := sw[:], worker[:]
			if s.Request {
				requests[s.Worker]++
				from, to = to, from
			}
			if !bytes.Equal(s.Frame[6:12], from) || !bytes.Equal(s.Frame[:6], to) {
				t.Fatalf("%d elements: step %d of worker %d, request %v, has addresses %x", elements, i, s.Worker, s.Request, s.Frame[:12])
			}
		}
		for w := range Workers {
			if frames[w] != want.frames || requests[w] < want.frames/2 || requests[w] == want.frames {
				t.Errorf("%d elements, worker %d: %d frames, %d of them requests", elements, w, frames[w], requests[w])
			}
		}
	}
}

func TestLoadOfWhatWasNotRecorded(t *testing.T) {
	if steps, err := Load(128); err == nil {
		t.Errorf("%d steps with 128 elements", len(steps))
	}
}
