package dataplane

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"gradnic/internal/netlab"
	"gradnic/internal/netlab/netlabtest"
	"gradnic/wire/layout"
	"gradnic/xdp"
)

// A trace follows the frames that come to lanes, which are those that have a result to tell, of slots beyond what lanes
// have of such a job, and on lanes that do not own them.
func TestSummedTrace(t *testing.T) {
	for _, lanes := range []int{1, 2} {
		t.Run(fmt.Sprintf("%d-lanes", lanes), func(t *testing.T) {
			l := newVethLab(t, 2, lanes, false)
			cfg := testConfig()
			cfg.Lanes = lanes
			n := startNIC(t, cfg, l.ports()...)
			install(t, n, summedJob(2, 64, 8))
			tr := startTrace(t, n, TraceOptions{Slot: 7, Count: 4})
			wires := l.wires(t)
			send := func(rank int, frame []byte) {
				t.Helper()
				if err := wires[rank].Send(frame); err != nil {
					t.Fatal(err)
				}
			}
			send(0, request(0, 64, 7, 1, 5, 1)) // is added, and comes to no lane
			send(0, request(0, 64, 6, 1, 5, 1))
			waitFor(t, n, func(s *Snapshot) bool { return summedHere(s) == 2 })
			send(1, request(1, 64, 6, 1, 5, 1)) // another slot
			send(1, request(1, 64, 7, 1, 5, 1))
			all := []int{0, 1}
			f := tr.next(t)
			if f.Outcome != "completed" || f.Verdict != "contributed" || f.Job != "j" || f.Rank != 1 || f.Message.Set != 1 || f.Port != "p1" ||
				!reflect.DeepEqual(f.Seen, all) || len(f.Waiting) != 0 || len(f.Replies) != 2 || f.Replies[1].Rank != 1 || !f.Replies[0].Posted {
				t.Errorf("completed: %+v", f)
			}
			send(0, request(0, 64, 7, 1, 5, 1))
			f = tr.next(t)
			if f.Outcome != "answered" || f.Verdict != "duplicate" || f.Rank != 0 || f.Port != "p0" || !reflect.DeepEqual(f.Seen, all) || len(f.Replies) != 1 || f.Replies[0].Rank != 0 {
				t.Errorf("answered: %+v", f)
			}
			send(0, request(0, 256, 7, 0, 5, 1))
			if f = tr.next(t); f.Verdict != "drop" || f.Reason != "wrong-size" || f.Outcome != "" || len(f.Seen) != 0 {
				t.Errorf("of another size: %+v", f)
			}
			// What no program has looked at.
			n.mu.Lock()
			err := n.ports[0].open.sums(nil)
			n.mu.Unlock()
			if err != nil {
				t.Fatal(err)
			}
			send(0, request(0, 64, 7, 0, 5, 1))
			if f = tr.next(t); f.Verdict != "drop" || f.Reason != "not-summed" || f.Job != "j" || f.Outcome != "" || len(f.Seen) != 0 || len(f.Replies) != 0 {
				t.Errorf("not summed: %+v", f)
			}
			check(t, n)
		})
	}
}

// A job is not there unless all ports add up for it, and the next one asks again.
func TestSummedPortFails(t *testing.T) {
	l := newVethLab(t, 2, 1, false)
	n := startNIC(t, testConfig(), l.ports()...)
	fails := errors.New("no room for a program")
	n.mu.Lock()
	real := n.ports[1].open.sums
	n.ports[1].open.sums = func(*xdp.Sums) error { return fails }
	n.mu.Unlock()
	for range 2 {
		if err := n.InstallJob(summedJob(2, 64, 8)); !errors.Is(err, fails) || len(n.Jobs()) != 0 {
			t.Fatalf("%v, %d jobs", err, len(n.Jobs()))
		}
	}
	n.mu.Lock()
	n.ports[1].open.sums = real
	n.mu.Unlock()
	install(t, n, summedJob(2, 64, 8))
	for rank, w := range l.wires(t) {
		if err := w.Send(request(rank, 64, 0, 0, 0, 1)); err != nil {
			t.Fatal(err)
		}
	}
	waitFor(t, n, func(s *Snapshot) bool { return s.Total.Results == 1 && s.Total.Drops["not-summed"] == 0 })
	check(t, n)
}

// The frames of a job of one worker are its results. When the worker was last there is told as of its last frame, not as of the question.
func TestSummedAlone(t *testing.T) {
	r := newSummedRig(t, 1, 1, summedJob(1, 64, 4))
	for round := range 3 {
		for slot := range 4 {
			r.send(0, request(0, 64, slot, round%2, uint32(round), int32(10*round+slot)))
		}
	}
	r.send(0, request(0, 64, 3, 0, 2, 23)) // once more
	came := time.Now()
	if st := r.status(); st.Results != 12 || st.Status[0].Sent != 13 || st.Status[0].Last != 12 {
		t.Errorf("%+v", st)
	}
	time.Sleep(50 * time.Millisecond)
	for try := 0; ; try++ { // clocks are read one after the other, and the machine may be busy between them
		st, err := r.n.Job("j")
		if err != nil {
			t.Fatal(err)
		}
		late := st.Status[0].LastSeen.Sub(came)
		if late < 10*time.Millisecond {
			break
		}
		if try == 20 {
			t.Fatalf("last seen %v after its last frame had come", late)
		}
	}
}

// A frame in several chunks, which no frame of a worker has to be, brings its result all the same, and none of its chunks is lost.
func TestSummedInChunks(t *testing.T) {
	lab := netlabtest.New(t, "sum")
	nic, peer := netlabtest.Namespace(t, lab, "nic"), netlabtest.Namespace(t, lab, "peer")
	netlabtest.Veth(t, lab, netlab.End{NS: nic, Name: "p0", MTU: 9000}, netlab.End{NS: peer, Name: "w", MTU: 9000})
	n := startNIC(t, testConfig(), XDPPort{Interface: "p0", Namespace: nic.Do})
	install(t, n, summedJob(1, 64, 4))
	w := openRaw(t, peer, "w")
	var b [4096]byte
	for k := range 20 {
		f := append(request(0, 64, k%4, k/4%2, uint32(k), int32(k)), bytes.Repeat([]byte{0xee}, 5000)...)
		if err := w.Send(f); err != nil {
			t.Fatal(err)
		}
		size, err := w.Recv(b[:], time.Now().Add(5*time.Second))
		if err != nil || size != 308 || values(b[:size])[63] != int32(k) {
			t.Fatalf("frame %d: %d bytes, %v", k, size, err)
		}
	}
	if s := check(t, n); s.Total.Results != 20 || s.Total.ReplicasDropped() != 0 {
		t.Errorf("%+v", s.Total)
	}
}

// What comes by a layout no summing program has looked at: the mark in it is its sender's.
func TestSummedByLayout(t *testing.T) {
	l := newVethLab(t, 1, 1, false)
	cfg := testConfig()
	x := parseLayout(t, "switchml", "layout: switchml", "layout: far", "udp: 0xBEE0-0xBEEF", "udp: 9000-9015")
	cfg.Layouts = []*layout.Layout{x}
	n := startNIC(t, cfg, l.ports()...)
	install(t, n, summedJobOnOnePort(1))
	n.mu.Lock()
	tag := n.jobs["j"].summed.tag
	n.mu.Unlock()
	w := l.wires(t)[0]
	for mark := range uint16(4) {
		f := request(0, 64, 0, 0, 0, 1)
		f[36], f[37] = 0x23, 0x28 // port 9000
		f[summedMark], f[summedMark+1] = byte((tag<<2|mark)>>8), byte(tag<<2|mark)
		if err := w.Send(f); err != nil {
			t.Fatal(err)
		}
	}
	s := waitFor(t, n, func(s *Snapshot) bool { return s.Total.Received == 4 })
	if s.Total.Drops["wrong-layout"] != 4 || s.Total.Results != 0 {
		t.Errorf("%+v", s.Total)
	}
	check(t, n)
}
