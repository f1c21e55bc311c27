package xdp

import (
	"errors"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// FuzzSum has the program take any bytes, as they are or with a worker's addresses, in the middle of a job: twice, so that
// what they were taken for is seen. Whatever they are, the program does what the model does: a legal action, one verdict, and not a byte of
// the frame is another unless its mark says why.
func FuzzSum(f *testing.F) {
	if os.Geteuid() != 0 {
		f.Skip("loading the steering program needs root")
	}
	for _, c := range sumFaults {
		frame := sumFrame(1, 0, 0, sumValues(64, 7))
		if c.mutate != nil {
			frame = c.mutate(frame)
		}
		f.Add(frame, true)
		f.Add(frame, false)
	}
	for set := range 2 {
		for slot := range 3 {
			f.Add(sumFrame(0, slot, set, sumValues(64, -1)), true)
		}
	}
	st, err := loadSteering(false)
	if err != nil {
		f.Fatal(err)
	}
	defer st.Close()
	s, err := NewSums(SumsOptions{Slots: 4})
	if err != nil {
		f.Fatal(err)
	}
	defer s.Close()
	fd, err := unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		f.Fatal(err)
	}
	defer unix.Close(fd)
	if err := errors.Join(st.Bind(0, &Socket{fd: fd}), st.SetAddress(nicMAC, nicIP), st.SetPorts(Ports(0xbee0, 0xbeef)), st.SetSums(s)); err != nil {
		f.Fatal(err)
	}
	job := SumJob{Workers: 2, Elements: 64, Slots: 2, Tag: sumTag}
	id := installSum(f, s, job)
	f.Fuzz(func(t *testing.T, frame []byte, raw bool) {
		if len(frame) < 14 || len(frame) > 1500 {
			return // a test run takes nothing below an Ethernet header
		}
		if !raw && len(frame) >= 38 {
			// A worker's, whatever it is beside that.
			worker := sumFrame(int(frame[0])&1, 0, 0, nil)
			frame = slices.Clone(frame)
			copy(frame, worker[:14])
			copy(frame[26:], worker[26:34])
			frame[23] = 17
			copy(frame[36:], worker[36:38])
		}
		begin := monotonic(t)
		if err := s.Reset(id); err != nil {
			t.Fatal(err)
		}
		m := newSumModel(t, job, false)
		// A slot that is begun, one that is complete, one with values that need exact sums, and one that is empty.
		for _, before := range [][]byte{
			sumFrame(0, 0, 0, sumValues(64, 1)), sumFrame(0, 1, 0, sumValues(64, 1)), sumFrame(1, 1, 0, sumValues(64, 2)),
			sumFrame(0, 1, 1, sumValues(64, 1<<31-1)),
		} {
			if d := sumRun(t, st, before).differs(m.judge(before)); d != "" {
				t.Fatal(d)
			}
		}
		for range 2 {
			given := slices.Clone(frame)
			got := sumRun(t, st, given)
			if !slices.Equal(given, frame) {
				t.Fatal("the test run has changed what it was given")
			}
			if d := got.differs(m.judge(frame)); d != "" {
				t.Fatal(d)
			}
			if got.action != xdpPass && got.action != xdpRedirect && got.action != xdpDrop {
				t.Fatalf("action %d", got.action)
			}
		}
		m.check(t, s, id, begin)
	})
}
