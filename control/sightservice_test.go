package control

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "gradnic/control/api/v1"
)

// short is a frame that the NIC drops for being short.
func short(k int) []byte { return []byte{byte(k), byte(k >> 8), 3, 4, 5, 6, 7, 8} }

// A capture gives every frame once and in order, ends when its context does with all that is left, and says what it lost.
func TestCaptureOverAPI(t *testing.T) {
	r := newRig(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const frames = 1000
	var rx, drops int
	var ports []string
	err := r.client.CaptureFrames(ctx, &apiv1.CaptureRequest{Ports: []string{"mem1"}}, func(m *apiv1.CaptureResponse) error {
		if ports == nil {
			ports = m.GetPorts()
			go func() {
				for k := range frames {
					if err := r.ports[1].Send(short(k)); err != nil {
						t.Error(err)
					}
				}
				if err := r.ports[0].Send(short(0)); err != nil {
					t.Error(err)
				}
				for total := r.nic.Snapshot().Total; total.Dropped() != frames+1; total = r.nic.Snapshot().Total {
					time.Sleep(time.Millisecond)
				}
				cancel()
			}()
		}
		for _, f := range m.GetFrames() {
			n := &rx
			if f.GetStage() == apiv1.CaptureStage_CAPTURE_STAGE_DROP {
				n = &drops
				if f.GetReason() != "short" {
					t.Errorf("%v", f)
				}
			}
			if f.GetPort() != 1 || f.GetLength() != 8 || string(f.GetData()) != string(short(*n)) {
				t.Errorf("frame %d is %v", *n, f)
			}
			*n++
		}
		if len(m.GetLost()) != 0 {
			t.Errorf("lost %v", m.GetLost())
		}
		return nil
	})
	if err != nil || rx != frames || drops != frames || len(ports) != 2 || ports[1] != "mem1" {
		t.Errorf("%v: %d received, %d dropped, ports %v", err, rx, drops, ports)
	}
}

// A count is exact, and a client that breaks off is forgotten.
func TestCaptureCountAndBreak(t *testing.T) {
	r := newRig(t)
	n := 0
	send := func() {
		for k := range 100 {
			if err := r.ports[0].Send(short(k)); err != nil {
				t.Error(err)
			}
		}
	}
	first := true
	err := r.client.CaptureFrames(t.Context(), &apiv1.CaptureRequest{Count: 7, Stages: []apiv1.CaptureStage{apiv1.CaptureStage_CAPTURE_STAGE_RX}}, func(m *apiv1.CaptureResponse) error {
		if first {
			first = false
			send()
		}
		n += len(m.GetFrames())
		return nil
	})
	if err != nil || n != 7 {
		t.Errorf("%v: %d frames", err, n)
	}
	stop := errors.New("enough")
	for range 20 { // more than may run at a time
		if err := r.client.CaptureFrames(t.Context(), &apiv1.CaptureRequest{}, func(*apiv1.CaptureResponse) error { return stop }); !errors.Is(err, stop) {
			// The one before may not have been let go yet.
			if status.Code(err) != codes.InvalidArgument {
				t.Fatal(err)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
}

// Stop does not wait for those who watch: their streams end, with what was there, and without an error.
func TestStopEndsStreams(t *testing.T) {
	r := newRig(t)
	done := make(chan error, 2)
	started := make(chan struct{}, 2)
	go func() {
		done <- r.client.CaptureFrames(context.Background(), &apiv1.CaptureRequest{}, func(m *apiv1.CaptureResponse) error {
			if m.GetPorts() != nil {
				started <- struct{}{}
			}
			return nil
		})
	}()
	go func() {
		done <- r.client.TraceFrames(context.Background(), &apiv1.TraceRequest{Slot: 1}, func(*apiv1.TraceResponse) error {
			started <- struct{}{}
			return nil
		})
	}()
	<-started
	<-started
	begin := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	r.server.Stop(ctx)
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if d := time.Since(begin); d > 5*time.Second {
		t.Errorf("stopping took %v", d)
	}
}

// What cannot be watched is refused with the right code.
func TestSightRefuses(t *testing.T) {
	r := newRig(t)
	none := func(*apiv1.CaptureResponse) error { return nil }
	for name, c := range map[string]*apiv1.CaptureRequest{
		"port": {Ports: []string{"mem9"}}, "stage": {Stages: []apiv1.CaptureStage{9}}, "snap": {SnapLen: 1 << 30}, "buffer": {Buffer: 1},
	} {
		if err := r.client.CaptureFrames(t.Context(), c, none); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, c := range []struct {
		r    *apiv1.TraceRequest
		code codes.Code
	}{{&apiv1.TraceRequest{Job: "nope"}, codes.NotFound}, {&apiv1.TraceRequest{Slot: 1 << 31}, codes.InvalidArgument}} {
		if err := r.client.TraceFrames(t.Context(), c.r, func(*apiv1.TraceResponse) error { return nil }); status.Code(err) != c.code {
			t.Errorf("%v: %v", c.r, err)
		}
	}
}
