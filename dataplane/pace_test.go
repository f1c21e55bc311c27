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
	free := send(frames)
	const rate = 50_000_000
	link := time.Duration(float64(frames*(len(frame)+wireOverhead)) * 8 / rate * 1e9)
	if free > link/2 {
		t.Skipf("without pace %d frames take %v on this machine: nothing to see", frames, free)
	}
	if err := n.SetPace(rate); err != nil {
		t.Fatal(err)
	}
	// A burst of up to a batch may go ahead at either end.
	if paced := send(frames); paced < link*8/10 || paced > link*3 {
		t.Errorf("%d frames at %d bit/s took %v, a link takes %v", frames, rate, paced, link)
	}
	if err := n.SetPace(0); err != nil {
		t.Fatal(err)
	}
	if again := send(frames); again > link/2 {
		t.Errorf("let go, %d frames took %v, %v before", frames, again, free)
	}
	s := check(t, n)
	if s.Total.Results != 3*frames || s.Total.Dropped() != 0 {
		t.Errorf("%d results, %d dropped", s.Total.Results, s.Total.Dropped())
	}
	for _, wrong := range []uint64{1, 999_999, 1e12 + 1} {
		if err := n.SetPace(wrong); err == nil || errors.Is(err, ErrStopped) {
			t.Errorf("%d bit/s: %v", wrong, err)
		}
	}
}
