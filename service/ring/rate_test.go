package ring

import "testing"

// TestFillsTheLink: on links without a flaw window, credit and acknowledgements cost next to nothing: what a ring of four without
// compression lacks of the bound 2(N-1)/N * bytes / rate is headers (5.7 % of the bytes at an MTU of 1500, 1 % at 9000), acknowledgements, and a round
// trip to begin and to end.
func TestFillsTheLink(t *testing.T) {
	const n, elements = 4, 1 << 19
	for mtu, least := range map[int]float64{1500: 0.93, 9000: 0.97} {
		w := newNetwork(t, 3)
		w.rate, w.delay = 0.025, 100_000
		nodes := w.ringOf(n, func(c *Config) { c.SliceElements, c.MTU = DefaultSlice, mtu })
		var start int64
		for _, length := range []int{elements / 4, elements} { // first one that opens the windows
			j := w.job(n, length, "none")
			start = w.now
			j.submitAll(t, nodes)
			if !w.until(60*second, j.over) {
				t.Fatal("not done")
			}
		}
		bound := 2 * float64(n-1) / n * 4 * elements / w.rate
		if got := bound / float64(w.now-start); got < least || got > 1 {
			t.Errorf("MTU %d: %.3f of the bound, at least %.2f is possible", mtu, got, least)
		}
		if c := nodes[0].eng.counters; c.Resends > 0 || c.Timeouts > 0 {
			t.Errorf("MTU %d: nothing was lost, %d frames were sent again", mtu, c.Resends)
		}
	}
}
