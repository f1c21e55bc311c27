package dataplane

import (
	"errors"
	"testing"
	"time"
)

// A paced NIC takes and makes as many frames as a link of that rate carries, loses none of those that wait, and is as fast
// as before when it is let go.
func TestPace(t *testing.T) {
	n, mem := memNIC(t, testConfig(), 1)
	install(t, n, JobSpec{Name: "j", Workers: 1, Elements: 256, Slots: 64, Members: members(1, false)})
	frame := request(0, 256, 0, 0, 0, 1)
	send := func(frames int) time.Duration {
		t.Helper()
		begin := time.Now()
		buf := make([]byte, 2048)
		outstanding := 0
		for i := range frames {
			mustSend(t, mem[0], request(0, 256, i%64, i/64%2, 0, 1))
			if outstanding++; outstanding == 32 {
				if _, err := mem[0].Recv(buf, time.Now().Add(5*time.Second)); err != nil {
					t.Fatal(err)
				}
				outstanding--
			}
		}
		for ; outstanding > 0; outstanding-- {
			if _, err := mem[0].Recv(buf, time.Now().Add(5*time.Second)); err != nil {
				t.Fatal(err)
			}
		}
		return time.Since(begin)
	}
	const frames = 512
	const rate = 50_000_000
	link := time.Duration(float64(frames*(len(frame)+wireOverhead)) * 8 / rate * 1e9)
	// Other work on the machine makes a turn longer, never shorter: that one of many is short enough tells. That none is
	// shorter than a link allows must hold for all.
	sent := 0
	within := func(what string, least, most time.Duration) {
		t.Helper()
		var took []time.Duration
		for begin := time.Now(); len(took) < 3 || time.Since(begin) < 20*time.Second; {
			d := send(frames)
			sent += frames
			if d < least {
				t.Fatalf("%s, %d frames took %v, a link of %d bit/s takes %v", what, frames, d, rate, link)
			}
			if d <= most {
				return
			}
			took = append(took, d)
		}
		t.Fatalf("%s, %d frames took %v, each time more than %v", what, frames, took, most)
	}
	within("without pace", 0, link/2)
	if err := n.SetPace(rate); err != nil {
		t.Fatal(err)
	}
	// A burst of up to a batch may go ahead at either end.
	within("paced", link*8/10, link*3)
	if err := n.SetPace(0); err != nil {
		t.Fatal(err)
	}
	within("let go", 0, link/2)
	s := check(t, n)
	if s.Total.Results != uint64(sent) || s.Total.Dropped() != 0 {
		t.Errorf("%d results, %d dropped", s.Total.Results, s.Total.Dropped())
	}
	for _, wrong := range []uint64{1, 999_999, 1e12 + 1} {
		if err := n.SetPace(wrong); err == nil || errors.Is(err, ErrStopped) {
			t.Errorf("%d bit/s: %v", wrong, err)
		}
	}
}
