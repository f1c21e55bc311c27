package rtl

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"gradnic/internal/captures"
	"gradnic/wire/inet"
	"gradnic/worker/native"
)

// wires are the workers' ends of a simulation: what it puts out goes to the worker that it is addressed to.
type wires struct {
	s    *simulation
	mu   sync.Mutex // of writes
	to   []chan []byte
	done chan struct{}
}

// link is one worker's.
type link struct {
	w    *wires
	rank int
}

func newWires(s *simulation, workers int) *wires {
	w := &wires{s: s, done: make(chan struct{})}
	for range workers {
		w.to = append(w.to, make(chan []byte, 1024))
	}
	go func() {
		defer close(w.done)
		for {
			frame, err := s.read()
			if frame == nil || err != nil {
				return // the answer to close's flush
			}
			if rank := int(frame[5]); rank < workers && inet.MAC(frame[:6]) == captures.WorkerMAC(rank) {
				select {
				case w.to[rank] <- frame:
				default: // lost, as on a wire
				}
			}
		}
	}()
	return w
}

func (w *wires) close(t *testing.T) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.s.write(nil); err != nil {
		t.Error(err)
	}
	<-w.done
}

func (l link) Send(frame []byte) error {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	return l.w.s.write(frame)
}

func (l link) Recv(buf []byte, deadline time.Time) (int, error) {
	late := time.NewTimer(time.Until(deadline))
	defer late.Stop()
	select {
	case frame := <-l.w.to[l.rank]:
		return copy(buf, frame), nil
	case <-late.C:
		return 0, os.ErrDeadlineExceeded
	}
}

// Workers of the Go library, with their windows, resends and reports, sum over the hardware: int32 arrays of several
// lengths, in several calls, and exactly.
func TestGoWorkersOverHardware(t *testing.T) {
	const workers = 2
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	s := start(t, simulators()[0], "native", fmt.Sprintf("+workers=%d", workers), "+elements=64", "+slots=16")
	w := newWires(s, workers)
	defer w.close(t)
	errs := make([]error, workers)
	var all sync.WaitGroup
	for rank := range workers {
		all.Go(func() { errs[rank] = sumOverHardware(ctx, w, rank, workers) })
	}
	all.Wait()
	for rank, err := range errs {
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

func sumOverHardware(ctx context.Context, w *wires, rank, workers int) (err error) {
	nw, err := native.Join(ctx, native.Config{
		Rank: rank, Workers: workers, NIC: captures.SwitchIP(), NICMAC: captures.SwitchMAC(),
		IP: captures.WorkerIP(rank), MAC: captures.WorkerMAC(rank), Link: link{w, rank},
		// A simulator is no card: what is only slow must not be sent again.
		Timeout: time.Second, MinTimeout: time.Second, MaxTimeout: 2 * time.Second,
	})
	if err != nil {
		return err
	}
	defer func() {
		if e := nw.Close(); err == nil {
			err = e
		}
	}()
	for _, n := range []int{1, 63, 64, 65, 16*64 + 1} {
		src, dst := make([]int32, n), make([]int32, n)
		for i := range src {
			src[i] = int32(i*7919 + rank<<28)
		}
		if _, err := native.AllReduce(ctx, nw, dst, src); err != nil {
			return err
		}
		for i, got := range dst {
			var want int32
			for r := range workers {
				want += int32(i*7919 + r<<28)
			}
			if got != want {
				return fmt.Errorf("%d elements: element %d is %d, want %d", n, i, got, want)
			}
		}
	}
	return nil
}
