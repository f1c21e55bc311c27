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
	if err := n.Start(context.Background()); err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { n.Stop(context.Background()) })
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
		s := waitReceived(t, n, sent)
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
		for range s.Frames.Transmit {
			if _, err := mem.Recv(buf, time.Now().Add(time.Millisecond)); err != nil {
				break // received before, and not completed yet
			}
		}
	})
}
