package native

import (
	"container/heap"
	"math/rand/v2"
	"testing"
	"time"

	"gradnic/worker/rtt"
)

// lab is workers whose links meet in a NIC, in virtual time: each link takes a time for a packet and holds so many; the NIC answers
// when the last worker has contributed. Workers and the NIC are frozen now and then, as on a machine that is busy with other
// things: what comes meanwhile waits.
type lab struct {
	rnd     *rand.Rand
	workers []*labWorker
	nic     frozen
	tick    int64   // that a link takes for a packet
	room    int     // packets that a link's queue holds
	shared  bool    // all links are one, each way
	loss    float64 // of each link, by chance

	counts map[uint64]map[int]bool // by chunk: who has contributed
	events labEvents
	now    int64
	order  int
}

type labWorker struct {
	w        *window
	up, down link
	frozen   frozen
}

type link struct{ free int64 }

// frozen is when something does not run.
type frozen struct{ from, until int64 }

func (f frozen) runs(now int64) int64 {
	if now >= f.from && now < f.until {
		return f.until
	}
	return now
}

type labEvent struct {
	at     int64
	order  int
	kind   int // 0: contribution at the NIC, 1: result at the worker, 2: the worker's timer, 3: someone freezes
	worker int
	chunk  uint64
}

type labEvents []labEvent

func (e labEvents) Len() int { return len(e) }
func (e labEvents) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].order < e[j].order
}
func (e labEvents) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *labEvents) Push(x any)   { *e = append(*e, x.(labEvent)) }
func (e *labEvents) Pop() any {
	old := *e
	x := old[len(old)-1]
	*e = old[:len(old)-1]
	return x
}

const labDelay = int64(100 * time.Microsecond) // on the way, beside queues

func (l *lab) at(at int64, kind, worker int, chunk uint64) {
	l.order++
	heap.Push(&l.events, labEvent{at, l.order, kind, worker, chunk})
}

// carry puts a packet on a link, if there is room and it is not lost.
func (l *lab) carry(k *link, kind, worker int, chunk uint64) {
	free := max(k.free, l.now)
	if free-l.now > int64(l.room)*l.tick {
		return
	}
	k.free = free + l.tick
	if l.loss > 0 && l.rnd.Float64() < l.loss {
		return
	}
	l.at(k.free+labDelay, kind, worker, chunk)
}

func (l *lab) pump(i int) {
	x := l.workers[i]
	for {
		chunk, _, ok := x.w.take(l.now)
		if !ok {
			return
		}
		up := &x.up
		if l.shared {
			up = &l.workers[0].up
		}
		l.carry(up, 0, i, chunk)
	}
}

// run sends chunks packets from each worker, and returns how long that took.
func (l *lab) run(chunks, slots, workers int, stall func(r *rand.Rand) (every, long int64)) time.Duration {
	l.counts = map[uint64]map[int]bool{}
	for range workers {
		x := &labWorker{w: newWindow(slots, slots, rtt.NewTimer(rtt.Bounds{First: DefaultTimeout, Least: DefaultMinTimeout, Most: DefaultMaxTimeout}))}
		x.w.submit(chunks)
		l.workers = append(l.workers, x)
	}
	for i := range workers {
		l.pump(i)
		l.at(0, 2, i, 0)
	}
	for i := range workers + 1 {
		if every, _ := stall(l.rnd); every > 0 {
			l.at(every, 3, i, 0)
		}
	}
	left := workers
	for left > 0 {
		e := heap.Pop(&l.events).(labEvent)
		l.now = e.at
		f := &l.nic
		if e.kind != 0 && e.worker < workers {
			f = &l.workers[e.worker].frozen
		}
		if e.kind != 3 {
			if at := f.runs(l.now); at > l.now {
				if e.at = at; e.kind == 2 {
					l.order++
					e.order = l.order // it reads first what has come
				}
				heap.Push(&l.events, e)
				continue
			}
		}
		switch e.kind {
		case 0:
			c := l.counts[e.chunk]
			if c == nil {
				c = map[int]bool{}
				l.counts[e.chunk] = c
			}
			again := c[e.worker]
			c[e.worker] = true
			down := func(i int) *link {
				if l.shared {
					return &l.workers[0].down
				}
				return &l.workers[i].down
			}
			switch {
			case again && len(c) == workers:
				l.carry(down(e.worker), 1, e.worker, e.chunk)
			case again:
			case len(c) == workers:
				for i := range workers {
					l.carry(down(i), 1, i, e.chunk)
				}
			}
		case 1:
			x := l.workers[e.worker]
			slot, round := x.w.place(e.chunk)
			if _, v, _ := x.w.result(l.now, slot, round); v == fresh && x.w.low == uint64(chunks) {
				left--
			}
			x.w.check(l.now)
			l.pump(e.worker)
		case 2:
			x := l.workers[e.worker]
			x.w.check(l.now)
			l.pump(e.worker)
			l.at(l.now+int64(time.Millisecond), 2, e.worker, 0)
		case 3:
			every, long := stall(l.rnd)
			f := &l.nic
			if e.worker < workers {
				f = &l.workers[e.worker].frozen
			}
			*f = frozen{l.now, l.now + long}
			l.at(l.now+long+every, 3, e.worker, 0)
		}
	}
	return time.Duration(l.now)
}

// Windows over links that are frozen now and then, by what a busy machine does. Time is virtual, so the figures are always the same.
// The links' queues hold 20 ms, as internal/netlab's do.
func TestWindowOverStalls(t *testing.T) {
	for _, c := range []struct {
		workers      int
		shared       bool
		stall, every time.Duration // the longest stall, from 5 ms, and the mean time between two
		least, again float64       // of the link, and the most of the packets that are sent again
	}{
		{workers: 2, least: 0.97, again: 0.001},
		{workers: 2, stall: 50 * time.Millisecond, every: 200 * time.Millisecond, least: 0.86, again: 0.03},
		{workers: 8, stall: 15 * time.Millisecond, every: 60 * time.Millisecond, least: 0.78, again: 0.005},
		{workers: 8, stall: 50 * time.Millisecond, every: 400 * time.Millisecond, least: 0.72, again: 0.04},
		{workers: 8, shared: true, least: 0.97, again: 0.005}, // no collapse of 8 workers into one port
		{workers: 8, shared: true, stall: 50 * time.Millisecond, every: 400 * time.Millisecond, least: 0.73, again: 0.07},
	} {
		const chunks, seeds = 3000, 2
		share, resent := 0.0, 0.0
		for seed := range uint64(seeds) {
			l := &lab{rnd: rand.New(rand.NewPCG(1, seed)), tick: int64(58 * time.Microsecond), room: 20 * 1000 / 58, shared: c.shared}
			ideal := time.Duration(chunks * l.tick)
			if c.shared {
				l.tick /= 4
				l.room *= 4
				ideal = time.Duration(chunks * l.tick * int64(c.workers))
			}
			took := l.run(chunks, 512, c.workers, func(r *rand.Rand) (int64, int64) {
				return int64(r.ExpFloat64() * float64(c.every)), int64(5*time.Millisecond) + int64(r.Float64()*float64(c.stall-5*time.Millisecond))
			})
			for _, x := range l.workers {
				resent += float64(x.w.resent) / float64(chunks*c.workers*seeds)
			}
			share += float64(ideal) / float64(took) / seeds
		}
		t.Logf("%d workers, shared %v, stalls of up to %v: %.2f of the link, %.3f of the packets again", c.workers, c.shared, c.stall, share, resent)
		if share < c.least || resent > c.again {
			t.Errorf("%d workers, shared %v, stalls of up to %v every %v: %.2f of the link, want %.2f; %.3f again, want %.3f", c.workers, c.shared, c.stall, c.every, share, c.least, resent, c.again)
		}
	}
}
