package gen

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"gradnic/bench/flow"
)

func TestJudge(t *testing.T) {
	for _, tt := range []struct {
		asked, sent uint64
		took        time.Duration
		want        string
	}{
		{10000, 10000, time.Second, ""},
		{10000, 9990, time.Second, ""},
		{10000, 9989, time.Second, "sent 9989 of 10000"},
		{10000, 10000, 1010 * time.Millisecond, ""},
		{10000, 10000, 1011 * time.Millisecond, "1.01 times"},
		{0, 5, time.Hour, ""},
	} {
		got := Judge(tt.asked, tt.sent, time.Second, tt.took)
		if (tt.want == "") != (got == "") || !strings.Contains(got, tt.want) || (got != "" && !strings.HasPrefix(got, "INVALID: ")) {
			t.Errorf("%d of %d in %v: %q, want %q", tt.sent, tt.asked, tt.took, got, tt.want)
		}
	}
}

// However a sender is scheduled, a pacer lets the asked frames out, none too early, and no burst over its bound.
func TestPacer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pps := rapid.Float64Range(10, 1e6).Draw(t, "rate")
		total := rapid.Uint64Range(1, 3000).Draw(t, "frames")
		start := time.Unix(1000, 0)
		d := time.Duration(float64(total) / pps * 1e9)
		p := pacer{rate: pps, total: total, start: start, end: start.Add(d)}
		var sent uint64
		now := start
		for range 100000 {
			n, done := p.due(now, sent)
			if done {
				break
			}
			if n > burst {
				t.Fatalf("a burst of %d", n)
			}
			sent += uint64(n)
			if early := float64(sent-min(sent, 1))/pps - now.Sub(start).Seconds(); n > 0 && early > 1e-6 {
				t.Fatalf("frame %d is %v s early", sent, early)
			}
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(d/time.Duration(total)+1)*3).Draw(t, "step")))
			if now.Sub(p.end) > d/11 {
				now = p.end // a sender that gets its time
			}
		}
		if sent != total {
			t.Fatalf("%d of %d frames", sent, total)
		}
	})
}

func TestOptionsRefused(t *testing.T) {
	frame := make([]byte, 64)
	for _, o := range []Options{
		{Frame: frame[:59]}, {Frame: make([]byte, MaxFrame+1)}, {Frame: frame, Workers: 256}, {Frame: frame, StampAt: 49},
		{Frame: frame, Rate: -1}, {Frame: frame, Impairments: flow.Impairments{Loss: 1}},
	} {
		if g, err := Open(o); err == nil {
			g.Close()
			t.Errorf("%+v was not refused", o)
		}
	}
	for _, o := range []QueueOptions{{Queues: 65}, {Rate: -1}, {Rate: 1, Queues: 3}} {
		if _, err := RunUDP(t.Context(), o); err == nil {
			t.Errorf("%+v was not refused", o)
		}
	}
	if _, err := RunUDP(t.Context(), QueueOptions{Flow: flow.Options{Impairments: flow.Impairments{Malformed: 0.1}}}); err == nil {
		t.Error("malformed frames through a socket were not refused")
	}
}
