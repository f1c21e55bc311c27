package xdp

import (
	"fmt"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"
)

// side holds the words and entries of one ring in ordinary memory; the test plays
// the kernel on it.
type side[E any] struct {
	prod, cons, flags uint32
	entries           []E
}

func newSide[E any](size int, start uint32) *side[E] {
	return &side[E]{prod: start, cons: start, entries: make([]E, size)}
}

func (r *side[E]) producer() producer {
	return producer{prod: &r.prod, cons: &r.cons, flags: &r.flags, size: uint32(len(r.entries)), next: r.prod, limit: r.cons + uint32(len(r.entries))}
}

func (r *side[E]) consumer() consumer {
	return consumer{prod: &r.prod, cons: &r.cons, size: uint32(len(r.entries)), next: r.cons, limit: r.cons}
}

// pop and push are the kernel's ends, written on their own, without the code under test.
func (r *side[E]) pop() (e E, ok bool) {
	c := atomic.LoadUint32(&r.cons)
	if c == atomic.LoadUint32(&r.prod) {
		return e, false
	}
	e = r.entries[c%uint32(len(r.entries))]
	atomic.StoreUint32(&r.cons, c+1)
	return e, true
}

func (r *side[E]) push(e E) bool {
	p := atomic.LoadUint32(&r.prod)
	if p-atomic.LoadUint32(&r.cons) == uint32(len(r.entries)) {
		return false
	}
	r.entries[p%uint32(len(r.entries))] = e
	atomic.StoreUint32(&r.prod, p+1)
	return true
}

func (r *side[E]) held() int { return int(r.prod - r.cons) }

// fakeKernel is the kernel's end of a socket over plain memory.
type fakeKernel struct {
	fill *side[uint64]
	rx   *side[Desc]
	tx   *side[Desc]
	comp *side[uint64]
}

func plainSocket(fill, rx, tx, comp, chunkSize int, start uint32) (*Socket, *fakeKernel) {
	k := &fakeKernel{newSide[uint64](fill, start), newSide[Desc](rx, start), newSide[Desc](tx, start), newSide[uint64](comp, start)}
	s := &Socket{
		mask: ^uint64(chunkSize - 1),
		fill: fillRing{k.fill.producer(), k.fill.entries},
		rx:   rxRing{k.rx.consumer(), k.rx.entries},
		tx:   txRing{k.tx.producer(), k.tx.entries},
		comp: completionRing{k.comp.consumer(), k.comp.entries},
	}
	return s, k
}

// place is where a chunk is. A chunk posted k times to TX has posts k and is the
// kernel's until its k-th completion.
type place uint8

const (
	free      place = iota // with the lane
	inFill                 // in the fill ring
	inKernel               // taken from the fill ring, being received into
	inRx                   // in the RX ring
	inTransit              // posted to TX
)

type world struct {
	s         *Socket
	k         *fakeKernel
	chunkSize uint64
	place     []place
	posts     []int    // completions outstanding, by chunk
	free      []uint64 // what the lane has, as addresses somewhere in the chunk
	sending   []Desc   // taken from TX by the kernel, not completed yet
	receiving []uint64 // taken from fill by the kernel, not received yet
	step      int
}

func (w *world) chunk(t *rapid.T, addr uint64) int {
	c := int(addr / w.chunkSize)
	if c >= len(w.place) {
		t.Fatalf("step %d: address %#x is outside", w.step, addr)
	}
	return c
}

func (w *world) move(t *rapid.T, addr uint64, from, to place) {
	c := w.chunk(t, addr)
	if w.place[c] != from {
		t.Fatalf("step %d: chunk %d is in place %d, want %d before it goes to %d", w.step, c, w.place[c], from, to)
	}
	w.place[c] = to
}

// do runs one step: what says which, n how many.
func (w *world) do(t *rapid.T, what, n int) {
	var addrs [96]uint64
	var descs [96]Desc
	switch what {
	case 0: // the lane fills
		n = min(n, len(w.free))
		batch := w.free[len(w.free)-n:]
		got := w.s.Fill(batch)
		for _, a := range batch[:got] {
			w.move(t, a, free, inFill)
		}
		w.free = append(w.free[:len(w.free)-n], batch[got:]...)
	case 1: // the kernel takes chunks to receive into
		for ; n > 0; n-- {
			a, ok := w.k.fill.pop()
			if !ok {
				break
			}
			if a%w.chunkSize != 0 {
				t.Fatalf("step %d: fill ring holds %#x, no chunk's start", w.step, a)
			}
			w.move(t, a, inFill, inKernel)
			w.receiving = append(w.receiving, a)
		}
	case 2: // the kernel receives
		for ; n > 0 && len(w.receiving) > 0; n-- {
			a := w.receiving[0]
			if !w.k.rx.push(Desc{Addr: a + KernelHeadroom, Len: uint32(a % 1500)}) {
				break
			}
			w.receiving = w.receiving[1:]
			w.move(t, a, inKernel, inRx)
		}
	case 3: // the lane receives
		n = w.s.Receive(descs[:n])
		for _, d := range descs[:n] {
			w.move(t, d.Addr, inRx, free)
			w.free = append(w.free, d.Addr)
		}
	case 4: // the lane transmits, each chunk one to three times
		var batch []Desc
		for i := 0; len(batch) < n && i < len(w.free); i++ {
			for k := 0; k <= (w.step+i)%3 && len(batch) < len(descs); k++ {
				batch = append(batch, Desc{Addr: w.free[i], Len: 60})
			}
		}
		for _, d := range batch[:w.s.Transmit(batch)] {
			c := w.chunk(t, d.Addr)
			if w.posts[c]++; w.posts[c] == 1 {
				w.move(t, d.Addr, free, inTransit)
			}
		}
		w.dropPosted(t)
	case 5: // the kernel takes from TX
		for ; n > 0; n-- {
			d, ok := w.k.tx.pop()
			if !ok {
				break
			}
			w.sending = append(w.sending, d)
		}
	case 6: // the kernel completes, in any order
		for ; n > 0 && len(w.sending) > 0; n-- {
			i := (w.step + n) % len(w.sending)
			if !w.k.comp.push(w.sending[i].Addr) {
				break
			}
			w.sending[i] = w.sending[len(w.sending)-1]
			w.sending = w.sending[:len(w.sending)-1]
		}
	case 7: // the lane reaps
		for _, a := range addrs[:w.s.Complete(addrs[:n])] {
			if a%w.chunkSize != 0 {
				t.Fatalf("step %d: completion %#x is no chunk's start", w.step, a)
			}
			c := w.chunk(t, a)
			if w.posts[c]--; w.posts[c] == 0 {
				w.move(t, a, inTransit, free)
				w.free = append(w.free, a)
			} else if w.posts[c] < 0 {
				t.Fatalf("step %d: chunk %d completed more often than posted", w.step, c)
			}
		}
	}
}

// dropPosted takes chunks that are the kernel's now off the lane's list.
func (w *world) dropPosted(t *rapid.T) {
	kept := w.free[:0]
	for _, a := range w.free {
		if w.place[w.chunk(t, a)] == free {
			kept = append(kept, a)
		}
	}
	w.free = kept
}

// check verifies that the chunks, counted where they really lie, are where the
// ledger says.
func (w *world) check(t *rapid.T) {
	var count [inTransit + 1]int
	posts := 0
	for c, p := range w.place {
		count[p]++
		posts += w.posts[c]
	}
	inComp, outstanding := w.k.comp.held(), w.k.tx.held()+len(w.sending)
	if count[free] != len(w.free) || count[inFill] != w.k.fill.held() || count[inKernel] != len(w.receiving) ||
		count[inRx] != w.k.rx.held() || posts != outstanding+inComp {
		t.Fatalf("step %d: places %v, posts %d, but lane %d, fill ring %d, kernel %d, rx ring %d, tx %d, completion %d",
			w.step, count, posts, len(w.free), w.k.fill.held(), len(w.receiving), w.k.rx.held(), outstanding, inComp)
	}
	kernel := w.s.FillPosted() - w.s.Received() + w.s.TxPosted() - w.s.Completed()
	if int(kernel) != count[inFill]+count[inKernel]+count[inRx]+posts {
		t.Fatalf("step %d: the counters say the kernel holds %d, it holds %d", w.step, kernel, count[inFill]+count[inKernel]+count[inRx]+posts)
	}
	if w.s.TxPending() != w.k.tx.held() {
		t.Fatalf("step %d: TxPending %d, the ring holds %d", w.step, w.s.TxPending(), w.k.tx.held())
	}
}

// A million steps in the default 100 runs of 10,000: every frame is in exactly one
// place, always. Indices start shortly before they wrap.
func TestRingsKeepEveryFrameInOnePlace(t *testing.T) {
	const perRun = 10_000
	total := 0
	sizes := rapid.SampledFrom([]int{2, 4, 16, 64, 128})
	rapid.Check(t, func(t *rapid.T) {
		chunkSize := rapid.SampledFrom([]int{2048, 4096}).Draw(t, "chunk size")
		start := rapid.SampledFrom([]uint32{0, 1<<32 - 1, 1<<32 - 700, 1<<31 - 3}).Draw(t, "start")
		s, k := plainSocket(sizes.Draw(t, "fill"), sizes.Draw(t, "rx"), sizes.Draw(t, "tx"), sizes.Draw(t, "completion"), chunkSize, start)
		chunks := rapid.IntRange(1, 200).Draw(t, "chunks")
		w := &world{s: s, k: k, chunkSize: uint64(chunkSize), place: make([]place, chunks), posts: make([]int, chunks)}
		for i := range chunks {
			w.free = append(w.free, uint64(i*chunkSize))
		}
		seed := rapid.Uint64().Draw(t, "seed")
		for w.step = range perRun {
			// A step's choice is drawn from a small generator of our own: rapid's
			// own draws would make the run ten times as long.
			seed = seed*6364136223846793005 + 1442695040888963407
			w.do(t, int(seed>>33)%8, int(seed>>40)%80)
			w.check(t)
		}
		total += perRun
	})
	if total < 1_000_000 && !testing.Short() {
		t.Errorf("%d steps: want 10^6 (run with -rapid.checks of 100 or more)", total)
	}
	t.Logf("%d steps", total)
}

// Descriptors arrive whole and in order over the wrap of both ring and index.
func TestRingsKeepOrder(t *testing.T) {
	s, k := plainSocket(8, 8, 8, 8, 2048, 1<<32-13)
	var out [5]Desc
	next, want := uint32(0), uint32(0)
	for i := range 10_000 {
		for range i % 7 {
			if k.rx.push(Desc{Addr: uint64(next) << 11, Len: next, Options: next & 1}) {
				next++
			}
		}
		for _, d := range out[:s.Receive(out[:i%6])] {
			if d != (Desc{Addr: uint64(want) << 11, Len: want, Options: want & 1}) {
				t.Fatalf("descriptor %+v, want number %d", d, want)
			}
			want++
		}
	}
	if want < 5000 {
		t.Fatalf("only %d descriptors passed", want)
	}
}

func TestFillNormalisesAddresses(t *testing.T) {
	for _, chunk := range []int{2048, 4096} {
		s, k := plainSocket(4, 2, 2, 2, chunk, 0)
		s.Fill([]uint64{uint64(3*chunk + KernelHeadroom + 64)})
		s.FillDescs([]Desc{{Addr: uint64(7*chunk + chunk - 1)}})
		for _, want := range []uint64{uint64(3 * chunk), uint64(7 * chunk)} {
			if got, ok := k.fill.pop(); !ok || got != want {
				t.Errorf("chunk size %d: fill ring holds %#x (%t), want %#x", chunk, got, ok, want)
			}
		}
	}
}

func TestBatchCallsOfClosedSocket(t *testing.T) {
	s := &Socket{fd: -1}
	s.forgetRings()
	var d [4]Desc
	var a [4]uint64
	if n := s.Receive(d[:]) + s.Complete(a[:]) + s.Transmit(d[:]) + s.Fill(a[:]) + s.FillDescs(d[:]) + s.TxPending(); n != 0 {
		t.Errorf("a closed socket moved %d entries", n)
	}
	if err := s.Kick(); err != nil {
		t.Errorf("kick of a closed socket with nothing to send: %v", err)
	}
}

func TestBatchCallsDoNotAllocate(t *testing.T) {
	s, k := plainSocket(256, 256, 256, 256, 2048, 0)
	var d [64]Desc
	var a [64]uint64
	moved := 0
	if n := testing.AllocsPerRun(1000, func() {
		moved += cycle(s, k, d[:], a[:])
	}); n != 0 {
		t.Errorf("%v allocations a cycle", n)
	}
	if moved < 64_000 {
		t.Errorf("only %d frames moved", moved)
	}
}

// cycle moves a batch through all four rings; the kernel's part is indices only.
func cycle(s *Socket, k *fakeKernel, d []Desc, a []uint64) int {
	n := s.Fill(a)
	k.fill.cons += uint32(n)
	k.rx.prod += uint32(n)
	n = s.Receive(d)
	n = s.Transmit(d[:n])
	k.tx.cons += uint32(n)
	k.comp.prod += uint32(n)
	return s.Complete(a)
}

// BenchmarkRings gives the cost of a frame in each operation, the kernel's part excluded
// as far as it can be (it moves an index a batch).
func BenchmarkRings(b *testing.B) {
	for _, batch := range []int{1, 8, 64} {
		d, a := make([]Desc, batch), make([]uint64, batch)
		for _, op := range []struct {
			name string
			do   func(s *Socket, k *fakeKernel) int
		}{
			{"fill", func(s *Socket, k *fakeKernel) int { n := s.Fill(a); k.fill.cons += uint32(n); return n }},
			{"receive", func(s *Socket, k *fakeKernel) int { k.rx.prod += uint32(batch); return s.Receive(d) }},
			{"transmit", func(s *Socket, k *fakeKernel) int { n := s.Transmit(d); k.tx.cons += uint32(n); return n }},
			{"complete", func(s *Socket, k *fakeKernel) int { k.comp.prod += uint32(batch); return s.Complete(a) }},
			{"receive+fill", func(s *Socket, k *fakeKernel) int {
				k.rx.prod += uint32(batch)
				n := s.FillDescs(d[:s.Receive(d)])
				k.fill.cons += uint32(n)
				return n
			}},
		} {
			b.Run(fmt.Sprintf("%s/%d", op.name, batch), func(b *testing.B) {
				s, k := plainSocket(4096, 2048, 2048, 2048, 2048, 0)
				frames := 0
				b.ReportAllocs()
				for b.Loop() {
					frames += op.do(s, k)
				}
				if frames != b.N*batch {
					b.Fatalf("%d frames in %d batches of %d", frames, b.N, batch)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(frames), "ns/frame")
			})
		}
	}
}
