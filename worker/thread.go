package worker

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"gradnic/wire/switchml"
	"gradnic/worker/rtt"
)

// thread runs one slice of a job at a time: one goroutine, one transport, one
// range of slots. It allocates nothing for a packet.
type thread struct {
	win   *window
	tr    *transport
	route route
	halt  *atomic.Bool // the worker's: stop at once
	zero  time.Time    // of the window's clock

	frames [][]byte // one a cell, kept until the packet's result is in
	queue  [][]byte // to be sent together
	again  []int

	counts Counts
	rtt    *hdrhistogram.Histogram

	ints   int32Payload
	floats float32Payload
}

// errHalted ends a slice when the worker is told to stop.
var errHalted = errors.New("stopped")

func newThread(index int, cfg *Config, tr *transport, r route, halt *atomic.Bool) *thread {
	m := cfg.Outstanding / cfg.Threads
	t := &thread{
		win:    newWindow(m, 2*m*index, rtt.NewTimer(cfg.timeouts())),
		tr:     tr,
		route:  r,
		halt:   halt,
		zero:   time.Now(),
		frames: make([][]byte, m),
		queue:  make([][]byte, 0, burst),
		again:  make([]int, 0, m),
		rtt:    newHistogram(),
		ints:   int32Payload{elements: cfg.Elements},
		floats: float32Payload{
			elements: cfg.Elements, workers: cfg.Workers, policy: cfg.NonFinite,
			ints: make([]int32, cfg.Elements), clamped: make([]float32, cfg.Elements),
		},
	}
	n := switchml.FrameLen(cfg.Elements)
	all := make([]byte, m*n)
	for i := range t.frames {
		t.frames[i] = all[i*n : (i+1)*n : (i+1)*n]
	}
	return t
}

func (t *thread) now() int64 { return int64(time.Since(t.zero)) }

// run carries total packets of p. On an error the window is out of step with
// the other workers', and the thread must not be used again.
func (t *thread) run(job uint8, total, stride int, p payload) error {
	t.counts = Counts{}
	t.rtt.Reset()
	w := t.win
	w.begin(total, stride)
	for !w.finished() {
		if t.halt.Load() {
			return errHalted
		}
		if err := t.sendReady(job, p); err != nil {
			return err
		}
		until, _ := w.deadline() // something is in flight, or we were finished
		n, err := t.tr.recv(t.zero.Add(time.Duration(until)), &t.counts)
		if err != nil {
			return err
		}
		now := t.now()
		for i := range n {
			t.take(now, job, t.tr.result(i), p)
		}
		if n == burst {
			continue // more may be waiting: hear all results before any resend
		}
		if err := t.sendAgain(now); err != nil {
			return err
		}
	}
	w.end()
	return nil
}

// sendReady sends every packet that may go for the first time.
func (t *thread) sendReady(job uint8, p payload) error {
	for {
		k, ok := t.win.next(t.now())
		if !ok {
			return t.flush()
		}
		frame := t.frames[t.win.cell(k)]
		e0, e1 := p.fill(k, frame[switchml.ValuesOffset:])
		slot, set := t.win.place(k)
		r := switchml.Request{
			Worker: t.route.worker, Switch: t.route.nic, Elements: t.route.elements,
			Job: job, PoolIndex: switchml.PoolIndexOf(set, slot), E0: e0, E1: e1,
		}
		// The public client writes the number in its host's order, little
		// endian on every machine it runs on, and reads what the last worker wrote.
		binary.LittleEndian.PutUint32(r.TSI[:], uint32(k))
		switchml.PutRequest(frame, r)
		t.counts.Packets++
		if err := t.put(frame); err != nil {
			return err
		}
	}
}

// sendAgain sends every packet whose result is overdue.
func (t *thread) sendAgain(now int64) error {
	var early int
	if t.again, early = t.win.expired(now, t.again[:0]); len(t.again) == 0 {
		return nil
	}
	if len(t.again) > early {
		t.counts.Timeouts++
	}
	t.counts.Resent += uint64(len(t.again))
	t.counts.Early += uint64(early)
	for _, k := range t.again {
		if err := t.put(t.frames[t.win.cell(k)]); err != nil {
			return err
		}
	}
	return t.flush()
}

func (t *thread) put(frame []byte) error {
	t.queue = append(t.queue, frame)
	if len(t.queue) == burst {
		return t.flush()
	}
	return nil
}

func (t *thread) flush() error {
	if len(t.queue) == 0 {
		return nil
	}
	err := t.tr.send(t.queue, &t.counts)
	t.queue = t.queue[:0]
	return err
}

// take judges one result and gives it to the payload if it counts.
func (t *thread) take(now int64, job uint8, v switchml.View, p payload) {
	tsi := v.TSI()
	k := binary.LittleEndian.Uint32(tsi[:])
	if v.Job() != job {
		t.counts.Stale++
		return
	}
	verdict, rtt := t.win.result(now, k, v.Slot(), v.Set())
	switch verdict {
	case duplicate:
		t.counts.Duplicates++
		return
	case stale:
		t.counts.Stale++
		return
	}
	t.counts.Received++
	if rtt >= 0 {
		// A time past the histogram's end counts as its end.
		_ = t.rtt.RecordValue(min(max(rtt, int64(time.Microsecond)), int64(time.Minute)))
	}
	e0, e1 := v.Exponents()
	p.drain(int(k), e0, e1, v.Values())
}

// state says what a slice waits for.
func (t *thread) state() string {
	s := fmt.Sprintf("%d of %d packets have their result", t.win.done, t.win.total)
	if k, ok := t.win.oldest(); ok {
		slot, set := t.win.place(k)
		s += fmt.Sprintf(", the oldest without is packet %d on slot %d set %d", k, slot, set)
	}
	if err := t.tr.fault(); err != nil {
		s += fmt.Sprintf(" (last socket error: %v)", err)
	}
	return s
}
