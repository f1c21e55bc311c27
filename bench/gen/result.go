package gen

import (
	"fmt"
	"time"

	"gradnic/bench/flow"
)

// What a run must keep to be valid: a generator that does not send what was asked measures itself.
const (
	LeastSent   = 0.999 // share of the asked frames that must be sent
	MostElapsed = 1.01  // of the asked duration that sending may take
)

// Result is what one run of a generator sent.
type Result struct {
	Kind    string        `json:"kind"`  // kernel, xdp or udp
	Asked   uint64        `json:"asked"` // frames; 0: as many as it could
	Rate    float64       `json:"rate"`  // frames a second that were asked; 0: as fast as it goes
	For     time.Duration `json:"for_ns"`
	Elapsed time.Duration `json:"elapsed_ns"` // from the first frame to the last
	flow.Counts
	Queues []QueueResult `json:"queues,omitempty"`
}

// QueueResult is one queue's share.
type QueueResult struct {
	Queue   int           `json:"queue"`
	Asked   uint64        `json:"asked"`
	Frames  uint64        `json:"frames"`
	Elapsed time.Duration `json:"elapsed_ns"`
}

// PPS is the rate of frames over the time that sending took.
func (r *Result) PPS() float64 {
	if r.Elapsed <= 0 {
		return 0
	}
	return float64(r.Frames) / r.Elapsed.Seconds()
}

// Invalid says why the run is not what was asked, "" when it is.
func (r *Result) Invalid() string { return Judge(r.Asked, r.Frames, r.For, r.Elapsed) }

// Judge tells whether a generator kept to what was asked: at least LeastSent of the frames, in at most MostElapsed of
// the time. asked 0 is as fast as it goes, which is always kept. The answer is "" or begins with INVALID.
func Judge(asked, sent uint64, duration, elapsed time.Duration) string {
	if asked == 0 {
		return ""
	}
	if float64(sent) < LeastSent*float64(asked) {
		return fmt.Sprintf("INVALID: the generator sent %d of %d frames (%.2f %%, at least %.1f %% is needed)", sent, asked, 100*float64(sent)/float64(asked), 100*LeastSent)
	}
	if elapsed.Seconds() > MostElapsed*duration.Seconds() {
		return fmt.Sprintf("INVALID: the generator took %v for %v (at most %.2f times as long is allowed)", elapsed.Round(time.Millisecond), duration, MostElapsed)
	}
	return ""
}
