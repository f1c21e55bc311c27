package dataplane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// startCapture starts a capture that is closed when the test ends.
func startCapture(t testing.TB, n *NIC, o CaptureOptions) *Capture {
	t.Helper()
	c, err := n.Capture(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// all closes a capture and returns what it has.
func (c *Capture) all(t testing.TB) []CapturedFrame {
	t.Helper()
	c.Close()
	var out []CapturedFrame
	for {
		f, err := c.Read(context.Background(), 7)
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, f...)
	}
}

// What is captured is what was counted, at each stage, on each port, with every reason, and byte for byte.
func TestCaptureIsWhatIsCounted(t *testing.T) {
	for _, lanes := range []int{1, 2} {
		t.Run(fmt.Sprintf("lanes=%d", lanes), func(t *testing.T) {
			cfg := testConfig()
			cfg.Lanes = lanes
			n, mem := memNIC(t, cfg, 2)
			install(t, n, JobSpec{Name: "j", Workers: 2, Elements: 64, Slots: 16, Members: members(2, false)})
			c := startCapture(t, n, CaptureOptions{})
			var in [][]byte
			send := func(port int, f []byte) {
				in = append(in, f)
				mustSend(t, mem[port], f)
			}
			for slot := range 4 {
				send(0, request(0, 64, slot, 0, 0, 1))
				send(1, request(1, 64, slot, 0, 0, 2))
			}
			send(0, request(7, 64, 0, 0, 0, 1))               // unknown worker
			send(1, request(1, 64, 99, 0, 0, 1))              // no such slot
			send(1, request(1, 256, 0, 0, 0, 1))              // wrong size
			send(0, request(0, 64, 0, 0, 0, 1)[:30])          // short
			send(0, append([]byte(nil), make([]byte, 60)...)) // not IPv4
			for range 4 {
				for p := range mem {
					recv(t, mem[p])
				}
			}
			waitReceived(t, n, uint64(len(in)))
			if err := n.Impair("m0", Impairment{DropIngress: []uint64{1}}); err != nil {
				t.Fatal(err)
			}
			send(0, request(0, 64, 9, 0, 0, 1))
			if err := n.Impair("m1", Impairment{DropEgress: []uint64{1}}); err != nil {
				t.Fatal(err)
			}
			send(0, request(0, 64, 10, 0, 0, 1))
			send(1, request(1, 64, 10, 0, 0, 1))
			recv(t, mem[0])
			waitReceived(t, n, uint64(len(in)))
			s := check(t, n)

			type key struct {
				port   int
				stage  CaptureStage
				reason string
			}
			got := map[key]uint64{}
			left := in
			for i, f := range c.all(t) {
				got[key{f.Port, f.Stage, f.Reason}]++
				if f.Length != len(f.Data) || time.Since(f.Time) > time.Minute || f.Lane < 0 || f.Lane >= lanes {
					t.Errorf("frame %d: %+v", i, f)
				}
				if f.Stage == CaptureReceive && lanes == 1 {
					// Two ports are polled in turn: the order is kept for each port.
					k := 0
					for ; k < len(left) && !bytes.Equal(left[k], f.Data); k++ {
					}
					if k == len(left) {
						t.Errorf("frame %d was not sent: %x", i, f.Data)
						continue
					}
					left = append(append([][]byte(nil), left[:k]...), left[k+1:]...)
				}
			}
			for i := range s.Ports {
				p := &s.Ports[i]
				want := map[key]uint64{{i, CaptureReceive, ""}: p.Received, {i, CaptureTransmit, ""}: p.Transmitted}
				for _, m := range []map[string]uint64{p.Drops, p.ReplicaDrops} {
					for reason, k := range m {
						want[key{i, CaptureDrop, reason}] += k
					}
				}
				for k, frames := range want {
					if got[k] != frames {
						t.Errorf("%+v: captured %d, counted %d", k, got[k], frames)
					}
					delete(got, k)
				}
			}
			if len(got) != 0 || len(c.Lost()) != 0 {
				t.Errorf("captured but not counted: %+v; lost %+v", got, c.Lost())
			}
			for _, reason := range []string{"unknown-worker", "slot-out-of-range", "wrong-size", "short", "not-ipv4", "impaired-ingress"} {
				if s.Total.Drops[reason] != 1 {
					t.Errorf("%s: dropped %d, want 1: %+v", reason, s.Total.Drops[reason], s.Total.Drops)
				}
			}
			if s.Total.ReplicaDrops["impaired-egress"] != 1 {
				t.Errorf("%+v", s.Total.ReplicaDrops)
			}
		})
	}
}

// A reader that does not read costs the lane nothing and no frame: what does not fit is counted, the rest is whole.
func TestCaptureLoses(t *testing.T) {
	n, mem := memNIC(t, testConfig(), 1)
	if err := n.SetFunction("m0", Function{Kind: Sink}); err != nil {
		t.Fatal(err)
	}
	c := startCapture(t, n, CaptureOptions{Buffer: MinCaptureBuffer, Stages: []CaptureStage{CaptureReceive}})
	const frames = 1000
	f := request(0, 256, 0, 0, 0, 5)
	for range frames {
		mustSend(t, mem[0], f)
	}
	s := waitReceived(t, n, frames)
	if s.Total.Passed != frames {
		t.Fatalf("%+v", s.Total)
	}
	got := c.all(t)
	lost := c.Lost()
	fit := MinCaptureBuffer / (captureHeader + (len(f)+7)&^7)
	if len(got) != fit || len(lost) != 1 || lost[0] != (CaptureLoss{0, CaptureReceive, uint64(frames - fit)}) {
		t.Errorf("%d captured of %d that fit, lost %+v", len(got), fit, lost)
	}
	for i := range got {
		if !bytes.Equal(got[i].Data, f) {
			t.Fatalf("frame %d is %x", i, got[i].Data)
		}
	}
}

// Ports, stages and length are what was asked for; so are the errors.
func TestCaptureOptions(t *testing.T) {
	n, mem := memNIC(t, testConfig(), 2)
	for name, o := range map[string]CaptureOptions{
		"port": {Ports: []string{"nope"}}, "stage": {Stages: []CaptureStage{3}}, "snap": {SnapLen: -1},
		"long": {SnapLen: MaxSnapLen + 1}, "buffer": {Buffer: 1}, "huge": {Buffer: MaxCaptureBuffer + 1},
	} {
		if _, err := n.Capture(o); err == nil {
			t.Errorf("%s: %+v is taken", name, o)
		}
	}
	for i := range 2 {
		if err := n.SetFunction(fmt.Sprintf("m%d", i), Function{Kind: Reflect}); err != nil {
			t.Fatal(err)
		}
	}
	c := startCapture(t, n, CaptureOptions{Ports: []string{"m1"}, Stages: []CaptureStage{CaptureTransmit}, SnapLen: 20})
	for i := range mem {
		mustSend(t, mem[i], request(0, 64, 0, 0, 0, 1))
		recv(t, mem[i])
	}
	check(t, n)
	got := c.all(t)
	if len(got) != 1 || got[0].Port != 1 || got[0].Stage != CaptureTransmit || len(got[0].Data) != 20 || got[0].Length != 308 {
		t.Errorf("%+v", got)
	}
	var many []*Capture
	for range MaxWatchers {
		many = append(many, startCapture(t, n, CaptureOptions{Buffer: MinCaptureBuffer}))
	}
	if _, err := n.Capture(CaptureOptions{}); err == nil {
		t.Error("one capture too many")
	}
	for _, c := range many {
		c.Close()
		c.Close()
	}
	n.mu.Lock()
	n.onLanes(func(l *lane) {
		if l.taps != nil {
			t.Error("taps are left")
		}
	})
	n.mu.Unlock()
}

// Stopping the NIC ends captures, after what they have; waiting ends with the context.
func TestCaptureEnds(t *testing.T) {
	n, mem := memNIC(t, testConfig(), 1)
	c := startCapture(t, n, CaptureOptions{})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
	defer cancel()
	if _, err := c.Read(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	mustSend(t, mem[0], make([]byte, 60))
	waitReceived(t, n, 1)
	if err := n.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := c.all(t); len(got) != 2 {
		t.Errorf("%+v", got)
	}
	if _, err := n.Capture(CaptureOptions{}); !errors.Is(err, ErrStopped) {
		t.Errorf("%v", err)
	}
}

// The ring against a slice, with records of all lengths in pieces.
func TestCaptureRing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newCaptureRing(512)
		type record struct {
			now  int64
			data []byte
			long int
		}
		var want []record
		used := 0
		t.Repeat(map[string]func(*rapid.T){
			"write": func(t *rapid.T) {
				a := rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "a")
				b := rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "b")
				snap := rapid.IntRange(1, 300).Draw(t, "snap")
				whole := append(append([]byte(nil), a...), b...)
				keep := whole[:min(snap, len(whole))]
				now := rapid.Int64().Draw(t, "now")
				size := (captureHeader + len(keep) + 7) &^ 7
				if ok := r.write(now, 3, CaptureDrop, WrongSize, snap, len(whole), a, b); ok != (used+size <= 512) {
					t.Fatalf("%d used, %d more: %v", used, size, ok)
				} else if ok {
					used += size
					want = append(want, record{now, keep, len(whole)})
				}
				r.publish()
			},
			"read": func(t *rapid.T) {
				now, ok := r.peek()
				if ok != (len(want) > 0) {
					t.Fatalf("peek %v with %d", ok, len(want))
				}
				if !ok {
					return
				}
				f := r.read()
				w := want[0]
				want = want[1:]
				used -= (captureHeader + len(w.data) + 7) &^ 7
				if now != w.now || !bytes.Equal(f.Data, w.data) || f.Length != w.long || f.Port != 3 || f.Reason != "wrong-size" || f.Stage != CaptureDrop {
					t.Fatalf("%+v, want %+v", f, w)
				}
			},
		})
	})
}

// Looking allocates nothing on the lane, and not looking costs nothing but a check.
func TestTapsAllocateNothing(t *testing.T) {
	for _, on := range []bool{false, true} {
		p := &loopPort{}
		cfg := testConfig()
		cfg.FramesPerQueue = MinFramesPerQueue
		n, err := New(cfg, p)
		if err != nil {
			t.Fatal(err)
		}
		if err := n.InstallJob(JobSpec{Name: "j", Workers: 2, Elements: 64, Members: members(2, true)}); err != nil {
			t.Fatal(err)
		}
		if on {
			startCapture(t, n, CaptureOptions{Buffer: MinCaptureBuffer})
		}
		if err := n.openAll(context.Background()); err != nil {
			t.Fatal(err)
		}
		l, q := n.lanes[0], p.queue
		q.descs = make([]Desc, l.chunks)
		for i := range q.descs {
			q.descs[i] = Desc{Addr: uint64(i)*2048 + 256, Len: 308}
		}
		for i := range q.descs {
			copy(l.area[q.descs[i].Addr:], request(i%3, 64, i%8, 0, 0, 1)) // every third is dropped
		}
		round := func() {
			if !l.round() {
				t.Fatal("nothing received")
			}
		}
		round()
		if a := testing.AllocsPerRun(2*sampleEvery, round); a != 0 {
			t.Errorf("capture %v: %v allocations a round", on, a)
		}
		s := check(t, n)
		if s.Total.Drops["unknown-worker"] == 0 || s.Total.Contributed == 0 {
			t.Errorf("%+v", s.Total)
		}
		if err := n.closeAll(); err != nil {
			t.Error(err)
		}
	}
}

// Frames of several chunks are captured whole at each stage, also where a batch or a full ring cuts between them.
func TestCaptureJumbo(t *testing.T) {
	cfg := testConfig()
	cfg.LongestFrame = 9014
	n, mem := memNIC(t, cfg, 1)
	if err := n.SetFunction("m0", Function{Kind: Reflect}); err != nil {
		t.Fatal(err)
	}
	c := startCapture(t, n, CaptureOptions{Buffer: 16 << 20})
	var sent [][]byte
	drop := map[int]bool{}
	for k := range 200 {
		f := make([]byte, 60+k*8954/199)
		for i := range f {
			f[i] = byte(i*7 + k)
		}
		if k == 150 {
			if err := n.Impair("m0", Impairment{DropIngress: []uint64{3}, DropEgress: []uint64{5}}); err != nil {
				t.Fatal(err)
			}
		}
		sent = append(sent, f)
		mustSend(t, mem[0], f)
		if k != 152 && k != 155 { // the 3rd in, and the 5th out of the others
			buf := make([]byte, 9100)
			if m, err := mem[0].Recv(buf, time.Now().Add(5*time.Second)); err != nil || m != len(f) {
				t.Fatalf("frame %d: %d of %d bytes, %v", k, m, len(f), err)
			}
			continue
		}
		drop[k] = true
	}
	waitReceived(t, n, uint64(len(sent)))
	check(t, n)
	var want [numCaptureStages][][]byte
	for k, f := range sent {
		want[CaptureReceive] = append(want[CaptureReceive], f)
		switch {
		case k == 152:
			want[CaptureDrop] = append(want[CaptureDrop], f)
		case drop[k]:
			want[CaptureDrop] = append(want[CaptureDrop], swapped(f))
		default:
			want[CaptureTransmit] = append(want[CaptureTransmit], swapped(f))
		}
	}
	for i, f := range c.all(t) {
		w := want[f.Stage]
		if len(w) == 0 || !bytes.Equal(f.Data, w[0]) || f.Length != len(w[0]) {
			t.Fatalf("frame %d: %v of %d bytes is not what was sent", i, f.Stage, f.Length)
		}
		want[f.Stage] = w[1:]
	}
	for s, w := range want {
		if len(w) != 0 {
			t.Errorf("%v: %d frames were not captured", CaptureStage(s), len(w))
		}
	}
}
