package ring

import (
	"bytes"
	"encoding/binary"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

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
	j.submitAll(t, nodes)
	if !w.until(second, j.over) {
		t.Fatal("not done")
	}
	j.check(t, 512)
	if _, err := New(Config{Peers: peers(2), DeadAfter: time.Duration(math.MaxInt64)}); err == nil {
		t.Error("a neighbour may be silent for 292 years")
	}
}

// TestLiar: a member's messages come along with changed ones: any field, any kind. Sums may be wrong then, members are trusted; but
// every request ends by its deadline, nothing falls, and when the lies end the ring can be formed again and is right.
func TestLiar(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 4).Draw(t, "nodes")
		w := newNetwork(t, rapid.Uint64().Draw(t, "seed"))
		often := rapid.SampledFrom([]float64{0.01, 0.1, 0.5}).Draw(t, "often")
		fields := rapid.SampledFrom([]int{1, 2, 40}).Draw(t, "fields")
		nodes := w.ringOf(n, func(c *Config) { c.Deadline, c.Window = 2*time.Second, 2 })
		lies, quiet := 0, false
		w.watch = func(_, to uint16, b []byte) {
			if quiet || lies > 5000 || w.rng.Float64() >= often {
				return
			}
			lie := bytes.Clone(b)
			for range 1 + w.rng.IntN(fields) {
				at := w.rng.IntN(min(len(lie), wire.HeaderLen+24))
				if at == 4 || at == 5 || at == 38 || at == 39 {
					continue // another ring's, or not as long as it says: dropped at once
				}
				switch w.rng.IntN(3) {
				case 0:
					lie[at]++
				case 1:
					lie[at] = byte(w.rng.Uint32())
				default:
					lie[at] ^= 1 << w.rng.IntN(8)
				}
			}
			w.at(w.now+w.rng.Int64N(3*w.delay), to, lie)
			lies++
		}
		var jobs []*job
		for range 3 {
			j := w.job(n, rapid.IntRange(0, 512*n*4).Draw(t, "length"), rapid.SampledFrom(codecNames).Draw(t, "codec"))
			jobs = append(jobs, j)
			for i, node := range nodes {
				if node.eng.ring.phase == Failed {
					j.done[i] = &Completion{Err: node.eng.ring.failure}
					continue
				}
				j.submit(t, node, i)
			}
		}
		if !w.until(4*second, func() bool { return jobs[0].over() && jobs[1].over() && jobs[2].over() }) {
			t.Fatalf("not over after %d lies: %+v", lies, nodes[0].Status())
		}
		quiet = true
		// A lie about the generation is believed, as is one about a boot: it takes the hosts as many turns as there are nodes.
		good := false
		for range 2 * n {
			reformAll(t, nodes)
			j := w.job(n, 2000, "bfp16")
			j.submitAll(t, nodes)
			if !w.until(10*second, j.over) {
				t.Fatalf("the ring without lies hangs: %+v", nodes[0].Status())
			}
			if good = j.done[0].Err == nil; good {
				j.check(t, 512)
				break
			}
		}
		if !good {
			t.Fatalf("the ring without lies: %+v\n%+v", nodes[0].Status(), nodes[1].Status())
		}
	})
}
