package dataplane

import (
	"testing"
	"time"
)

// Every stage counts what went through it, and after a few thousand batches has been timed.
func TestStages(t *testing.T) {
	for _, wait := range []Wait{Interrupt, Busy} {
		cfg := testConfig()
		cfg.Wait = wait
		n, mem := memNIC(t, cfg, 1)
		install(t, n, JobSpec{Name: "j", Workers: 1, Elements: 64, Slots: 16, Members: members(1, true)})
		const frames = 2 * sampleEvery
		f := request(0, 64, 0, 0, 0, 1)
		mustSend(t, mem[0], append([]byte(nil), make([]byte, 60)...)) // ends in parse
		for k := range frames {
			f[46] = byte(k%2) << 7 // the other set
			mustSend(t, mem[0], f)
			recv(t, mem[0])
		}
		s := check(t, n)
		by := map[string]StageSnapshot{}
		for _, st := range s.Stages {
			by[st.Stage] = st
			if st.TimedFrames > st.Frames || st.TimedFrames > 0 && st.NSPerFrame() <= 0 || st.NSPerFrame() > 1e9 {
				t.Errorf("%+v", st)
			}
		}
		for stage, want := range map[string]uint64{
			"receive": frames + 1, "parse": frames + 1, "match": frames, "aggregate": frames, "transmit": frames, "hand-off": 0, "function": 0,
		} {
			if by[stage].Frames != want {
				t.Errorf("%s: %d frames, want %d", stage, by[stage].Frames, want)
			}
			if want > 0 && (by[stage].TimedFrames == 0 || by[stage].Batches > want || by[stage].Batches < want/BatchSize) {
				t.Errorf("%+v", by[stage])
			}
		}
		if c := s.Total.Batches; by["receive"].Batches != c {
			t.Errorf("%d batches, counted %d", by["receive"].Batches, c)
		}
		timed := by["receive"].TimedFrames
		if timed == 0 || timed > frames/sampleEvery*BatchSize+BatchSize {
			t.Errorf("%d frames timed", timed)
		}
		lt := s.Lanes[0].Time
		if lt.Life <= 0 || lt.Busy <= 0 || lt.Busy+lt.Spin+lt.Sleep > lt.Life+time.Millisecond || (lt.Sleep > 0) != (wait != Busy) {
			t.Errorf("%v: %+v", wait, lt)
		}
		r := s.Ports[0].Rings
		if r.FillMost != 128 || r.Fill != 128 || r.TransmitMost != 128 || r.Transmit != 0 && r.Transmit > 1 {
			t.Errorf("%+v", r)
		}
		if q := s.Ports[0].PerQueue; len(q) != 1 || q[0].Rings != r || q[0].Received != frames+1 || q[0].Batches != s.Total.Batches || q[0].Transmitted != s.Total.Transmitted {
			t.Errorf("%+v", q)
		}
	}
}

// An idle lane sleeps, and the share that it slept grows although it publishes nothing.
func TestLaneTimeIdle(t *testing.T) {
	n, _ := memNIC(t, testConfig(), 1)
	var a, b LaneTime
	for range 100 { // a lane that the machine does not let run does not come to sleep
		time.Sleep(20 * time.Millisecond)
		a = n.Snapshot().Lanes[0].Time
		time.Sleep(20 * time.Millisecond)
		b = n.Snapshot().Lanes[0].Time
		if b.Sleep-a.Sleep >= 19*time.Millisecond && b.Share(b.Sleep) >= 0.5 && b.Busy == a.Busy {
			return
		}
	}
	t.Errorf("%+v, then %+v", a, b)
}
