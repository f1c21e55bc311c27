package ring

import (
	"bytes"
	"encoding/binary"
	"math"
	"testing"
	"time"

	wire "gradnic/wire/ring"
)

// TestSameFrameAgain: a neighbour that sends its frames once more under other numbers, before or after the host has come,
// adds nothing to a sum and holds nothing up.
func TestSameFrameAgain(t *testing.T) {
	for _, name := range []string{"none", "bfp16-intel"} {
		for _, late := range []bool{false, true} {
			w := newNetwork(t, 1)
			nodes := w.ringOf(3, func(c *Config) { c.Window = 2 })
			copies := 0
			w.watch = func(_, to uint16, b []byte) {
				if v, _ := wire.Validate(b); v.Kind() != wire.Data {
					return
				}
				again := bytes.Clone(b)
				binary.BigEndian.PutUint32(again[16:], binary.BigEndian.Uint32(b[16:])+300)
				w.at(w.now+w.delay, to, b)
				w.at(w.now+w.delay, to, again)
				copies++
			}
			j := w.job(3, 512*3*7, name)
			for k := range 3 {
				i := 2 - k
				if i == 0 && late {
					w.until(second/50, func() bool { return false })
				}
				j.submit(t, nodes[i], i)
			}
			if !w.until(second, j.over) {
				t.Fatalf("%s: not done: %+v", name, nodes[0].Status())
			}
			j.check(t, 512)
			if copies == 0 {
				t.Fatal("nothing was sent again")
			}
		}
	}
}

// TestNumbersStartAgain: blocks, requests and frames are numbered modulo 2^32, with windows that are no power of two too.
func TestNumbersStartAgain(t *testing.T) {
	for _, window := range []int{1, 3, 5, 8} {
		w := newNetwork(t, 4)
		w.loss = 0.05
		nodes := w.ringOf(3, func(c *Config) { c.Window = window })
		if !w.until(second, func() bool {
			for _, n := range nodes {
				if m := &n.eng.ring; m.phase != Formed || !m.ready[0] || !m.ready[1] {
					return false
				}
			}
			return true
		}) {
			t.Fatal("not formed")
		}
		const first = math.MaxUint32 - 6 // an odd number: windows do not begin at their first slot
		for _, n := range nodes {
			e := n.eng
			e.nextRequest, e.nextBlock, e.inject = first+5, first, first
			for h := range e.half {
				e.half[h].base = first
				e.tx.credit[h] = first + uint32(window)
				e.rx.granted[h] = first + uint32(window)
			}
			e.rx.next, e.rx.highest = first, first
			e.tx.next, e.tx.oldest, e.tx.highest, e.tx.recover = first, first, first, first
		}
		w.events = nil // acknowledgements of what was before
		for _, n := range nodes {
			n.wake()
		}
		var jobs []*job
		for k := range 6 {
			jobs = append(jobs, w.job(3, 512*3*(k+1)-k, "bfp16"))
		}
		for i := range 3 {
			for _, j := range jobs {
				j.submit(t, nodes[2-i], 2-i)
			}
			w.until(second/1000, func() bool { return false }) // node 0's host comes when frames wait for it
		}
		if !w.until(20*second, func() bool { return jobs[5].over() }) {
			t.Fatalf("window %d: not done: %+v", window, nodes[0].Status())
		}
		for _, j := range jobs {
			j.check(t, 512)
		}
		if b := nodes[0].eng.nextBlock; b > 100 {
			t.Fatalf("window %d: the next block is %d, the numbers have not started again", window, b)
		}
	}
}

// TestLongTimes: a deadline that never comes is one, and does not end the request at once.
func TestLongTimes(t *testing.T) {
	w := newNetwork(t, 1)
	nodes := w.ringOf(2, func(c *Config) { c.Deadline = math.MaxInt64 })
	j := w.job(2, 1000, "none")
	for i, node := range nodes {
		j.submit(t, node, i)
	}
	if !w.until(second, j.over) {
		t.Fatal("not done")
	}
	j.check(t, 512)
	if _, err := New(Config{Peers: peers(2), DeadAfter: time.Duration(math.MaxInt64)}); err == nil {
		t.Error("a neighbour may be silent for 292 years")
	}
}
