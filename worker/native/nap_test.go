package native

import (
	"testing"
	"time"
)

// A worker naps only while a queue works for it, for as long as a batch takes to come, and never for long.
func TestNap(t *testing.T) {
	for _, c := range []struct {
		state         engineState
		got, inFlight int
		rate          float64 // results a second
		want          time.Duration
	}{
		{running, 4, 200, 20000, time.Millisecond},              // 20 more take exactly that
		{running, 14, 200, 20000, 500 * time.Microsecond},       // 10 more
		{running, 1, 200, 1000, time.Millisecond},               // a slow link: not for longer
		{running, 1, 1000, 1e6, 0},                              // no link to wait for
		{running, 4, 200, 0, 0},                                 // nothing is known
		{running, 4, napWindow - 1, 20000, 0},                   // the link would run dry
		{running, 0, 200, 20000, 0},                             // it has waited already
		{running, napBatch, 200, 20000, 0},                      // more may be there
		{reporting, 4, 200, 20000, 0}, {over, 4, 200, 20000, 0}, // results are not what it waits for
	} {
		e := &engine{state: c.state, win: newWindow(1024, 1024, testTimer())}
		e.win.inFlight = c.inFlight
		e.win.pace.rates[3] = c.rate / 1e9
		if got := e.nap(c.got); got.Round(time.Microsecond) != c.want {
			t.Errorf("%d results, %d in flight, %.0f a second: %v, want %v", c.got, c.inFlight, c.rate, got, c.want)
		}
	}
	if (&engine{}).nap(3) != 0 { // before it has joined
		t.Error("a worker without a job naps")
	}
}
