package dataplane

import (
	"context"
	"testing"
	"time"

	"gradnic/wire/inet"
)

// FuzzFrames gives a NIC any two frames: it must not crash, must count each once, and must keep its frames.
func FuzzFrames(f *testing.F) {
	arp := make([]byte, 60)
	inet.PutARP(arp, inet.ARP{Op: inet.ARPRequest, SenderMAC: workerMAC(0), SenderIP: workerIP(0), TargetIP: nicIP})
	f.Add(arp, request(0, 64, 0, 0, 0, 1))
	f.Add(request(0, 64, 1, 0, 0, 1), request(1, 64, 1, 0, 0, 1))
	f.Add(request(0, 256, 1, 0, 0, 1), request(1, 64, 99, 1, 0, 1)[:100])
	mem := NewMemPort("m")
	n, err := New(testConfig(), mem)
	if err != nil {
		f.Fatal(err)
	}
	if err := n.InstallJob(JobSpec{Name: "j", Workers: 2, Elements: 64, Slots: 4, Members: members(2, true)}); err != nil {
		f.Fatal(err)
	}
	// The lane runs on the fuzzer's goroutine, round by round: what it covers is then the input's doing alone.
	if err := n.openAll(context.Background()); err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { n.closeAll() })
	l := n.lanes[0]
	sent := uint64(0)
	buf := make([]byte, 4096)
	f.Fuzz(func(t *testing.T, a, b []byte) {
		for _, frame := range [][]byte{a, b} {
			if len(frame) == 0 || len(frame) > 1700 {
				continue
			}
			mustSend(t, mem, frame)
			sent++
		}
		for l.round() {
		}
		l.publish()
		s := n.Snapshot()
		if s.Total.Received != sent {
			t.Fatalf("sent %d, received %d", sent, s.Total.Received)
		}
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
		for range s.Frames.Transmit {
			if _, err := mem.Recv(buf, time.Now().Add(-1)); err != nil {
				break // received before, and not completed yet
			}
		}
	})
}
