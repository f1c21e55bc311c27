package worker

import (
	"os"
	"sync/atomic"
	"testing"
	"time"

	"gradnic/wire/inet"
	"gradnic/wire/switchml"
)

// onceLink gives one frame and swallows what is sent.
type onceLink struct{ frame []byte }

func (l *onceLink) Send([]byte) error { return nil }

func (l *onceLink) Recv(buf []byte, _ time.Time) (int, error) {
	if l.frame == nil {
		return 0, os.ErrDeadlineExceeded
	}
	n := copy(buf, l.frame)
	l.frame = nil
	return n, nil
}

var (
	fuzzRoute = route{
		worker:   switchml.Endpoint{MAC: inet.MAC{2, 0, 0, 0, 0, 1}, IP: inet.Addr{10, 0, 0, 1}, Port: 4000},
		nic:      switchml.Endpoint{MAC: inet.MAC{2, 0, 0, 0, 0, 2}, IP: inet.Addr{10, 0, 0, 2}, Port: switchml.PortBase},
		elements: 64,
	}
	fuzzJob = uint8(3)
)

func resultFrame(k uint32, slot, set int) []byte {
	f := make([]byte, switchml.FrameLen(64))
	switchml.PutReply(f, switchml.Reply{
		Switch: fuzzRoute.nic, Worker: fuzzRoute.worker, Elements: 64, Job: fuzzJob,
		TSI: [4]byte{byte(k), byte(k >> 8), byte(k >> 16), byte(k >> 24)}, PoolIndex: switchml.PoolIndexOf(set, slot),
	})
	return f
}

// FuzzResult gives a frame to a worker with packets 0 to 3 of 10 in flight. Only
// a frame that is a result of one of these in every field may count.
func FuzzResult(f *testing.F) {
	for k := range uint32(6) {
		f.Add(resultFrame(k, int(k%4), int(k/4%2)))
	}
	f.Add(resultFrame(1<<31, 0, 0))
	f.Add(append(resultFrame(1, 1, 0), 0, 0, 0)) // padded by Ethernet, and right
	f.Add(resultFrame(1, 1, 0)[:307])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, frame []byte) {
		cfg := Config{Workers: 2, Elements: 64, Outstanding: 4, Threads: 1, Timeout: time.Hour, MinTimeout: 1, MaxTimeout: time.Hour}
		link := &onceLink{}
		var halt atomic.Bool
		th := newThread(0, &cfg, newLinkTransport(link, fuzzRoute), fuzzRoute, &halt)
		p := &int32Payload{elements: 64, dst: make([]int32, 640), src: make([]int32, 640)}
		th.win.begin(10, 0)
		if err := th.sendReady(fuzzJob, p); err != nil {
			t.Fatal(err)
		}
		link.frame = frame
		n, err := th.tr.recv(longAgo, &th.counts)
		if err != nil || n > 1 {
			t.Fatalf("%d results: %v", n, err)
		}
		for i := range n {
			th.take(th.now(), fuzzJob, th.tr.result(i), p)
		}
		c := th.counts
		if got := c.Received + c.Duplicates + c.Stale + c.Foreign; got != 1 {
			t.Fatalf("one frame, %d verdicts: %+v", got, c)
		}
		if c.Received == 0 {
			if th.win.done != 0 {
				t.Fatal("a result counted and was not received")
			}
			return
		}
		// It counted: then its fields are those of a packet in flight.
		k := uint32(frame[44]) | uint32(frame[45])<<8 | uint32(frame[46])<<16 | uint32(frame[47])<<24
		if k > 3 {
			t.Fatalf("packet %d counted", k)
		}
		want := resultFrame(k, int(k), 0)
		for _, field := range [][2]int{{0, 14}, {26, 38}, {43, 48}} { // Ethernet, addresses and ports, job and number
			if string(frame[field[0]:field[1]]) != string(want[field[0]:field[1]]) {
				t.Fatalf("bytes %v are %x, want %x", field, frame[field[0]:field[1]], want[field[0]:field[1]])
			}
		}
	})
}
