package xdp

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
)

// flood sends the same frame from the peer's end as fast as the kernel can, by test
// runs of a program that transmits (live frames), until the returned stop is called.
// It is the fastest sender there is here and takes one core. Each test run has run
// frames; it costs the kernel some 20 ms beside, and stop waits for its end.
func (r *rig) flood(frame []byte, run uint32) (stop func()) {
	r.t.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "flood", Type: ebpf.XDP, License: "MIT",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 3), asm.Return()}, // XDP_TX
	})
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- r.peer.Do(func() error {
			pin(1)
			for ctx.Err() == nil {
				const liveFrames = 2 // BPF_F_TEST_XDP_LIVE_FRAMES
				_, err := p.Run(&ebpf.RunOptions{
					Data: frame, Repeat: run, Flags: liveFrames, BatchSize: 64,
					Context: struct{ Data, DataEnd, DataMeta, Ingress, Queue, Egress uint32 }{DataEnd: uint32(len(frame)), Ingress: uint32(r.peerIf)},
				})
				if err != nil {
					return err
				}
			}
			return nil
		})
	}()
	return func() {
		cancel()
		if err := <-done; err != nil {
			r.t.Error(err)
		}
		if err := p.Close(); err != nil {
			r.t.Error(err)
		}
	}
}

// stream sends the same frame from a socket of the peer's end, until the returned
// stop is called.
func (r *rig) stream(frame []byte) (stop func()) {
	r.t.Helper()
	u := r.umem(UMEMOptions{Chunks: 64, ChunkSize: 2048})
	s := r.open(r.peer, u, SocketOptions{IfIndex: r.peerIf})
	var batch [64]Desc
	for i := range batch {
		batch[i] = Desc{Addr: uint64(i) * 2048, Len: uint32(len(frame))}
		copy(u.Frame(batch[i]), frame)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		var sent [64]uint64
		for ctx.Err() == nil {
			s.Transmit(batch[:64-(s.TxPosted()-s.Completed())])
			if err := s.Kick(); err != nil {
				done <- err
				return
			}
			s.Complete(sent[:])
		}
		done <- nil
	}()
	return func() {
		cancel()
		if err := <-done; err != nil {
			r.t.Error(err)
		}
	}
}

// pin keeps the calling thread on one CPU where there are several; the thread is a
// locked one.
func pin(cpu int) {
	var set unix.CPUSet
	set.Set(cpu % runtime.NumCPU())
	_ = unix.SchedSetaffinity(0, &set) // only speed depends on it
}

// BenchmarkReceiveDrop receives what one core can send over veth and gives it back
// to the fill ring. An operation is one frame.
func BenchmarkReceiveDrop(b *testing.B) {
	for _, size := range []int{64, 298, 1066, 1514} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			r := newRig(b, 1, 0)
			u := r.umem(UMEMOptions{Chunks: 4096, ChunkSize: 2048})
			s, _ := r.receiver(u, SocketOptions{}, 0, 4096)
			defer r.flood(udpFrame(0xbee0, size-42), 1<<22)()
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			var before unix.CPUSet
			if unix.SchedGetaffinity(0, &before) == nil {
				defer unix.SchedSetaffinity(0, &before)
			}
			pin(0)
			time.Sleep(100 * time.Millisecond)
			b.ReportAllocs()
			b.ResetTimer()
			receiveDrop(s, b.N)
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds()/1e6, "Mpps")
		})
	}
}

// receiveDrop spins until it has received n frames.
func receiveDrop(s *Socket, n int) {
	var batch [64]Desc
	for n > 0 {
		k := s.Receive(batch[:])
		n -= k
		for d := batch[:k]; len(d) > 0; {
			d = d[s.FillDescs(d):]
		}
	}
}

// Stop under flood: no hang, and what stays behind is nothing. (goleak watches the
// goroutines of the whole package.)
func TestStopUnderFlood(t *testing.T) {
	r := newRig(t, 1, 0)
	stop := r.stream(udpFrame(0xbee0, 64))
	defer stop()
	for i := range 30 {
		u, err := NewUMEM(UMEMOptions{Chunks: 512, ChunkSize: 2048})
		if err != nil {
			t.Fatal(err)
		}
		s, err := openIn(r.nic, u, SocketOptions{IfIndex: r.nicIf})
		if err != nil {
			t.Fatalf("round %d: %v", i, err)
		}
		st, err := attachIn(r.nic, AttachOptions{IfIndex: r.nicIf})
		if err != nil {
			t.Fatalf("round %d: %v", i, err)
		}
		if err := st.SetWholePort(true); err != nil {
			t.Fatal(err)
		}
		if err := st.Bind(0, s); err != nil {
			t.Fatal(err)
		}
		s.Fill(chunkRange(u, 0, 512))
		var received atomic.Bool
		if !drain(t, s, time.Second, func(Desc) { received.Store(true) }, received.Load) {
			t.Errorf("round %d: no frame under flood", i)
		}
		start := time.Now()
		for what, c := range map[string]interface{ Close() error }{"steering": st, "socket": s} {
			if err := c.Close(); err != nil {
				t.Fatalf("round %d: %s: %v", i, what, err)
			}
		}
		if err := u.Close(); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(start); d > 10*time.Second { // it hangs; a busy machine takes its time
			t.Errorf("round %d: stop took %v", i, d)
		}
	}
}
