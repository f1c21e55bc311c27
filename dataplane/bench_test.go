package dataplane

import (
	"context"
	"fmt"
	"testing"

	"gradnic/wire/inet"
)

// loopQueue plays a kernel that costs nothing: frames are there already, in the chunks they were written to, and what is
// transmitted is completed at once. It measures the lane alone.
type loopQueue struct {
	descs  []Desc // of each chunk, received again and again
	filled []uint64
	done   []uint64
	most   int // frames that are received at once; 0: as many as there are
}

type loopPort struct{ queue *loopQueue }

func (p *loopPort) portName() string            { return "loop" }
func (p *loopPort) portKind() string            { return "mem" }
func (p *loopPort) queueCount(int) (int, error) { return 1, nil }
func (p *loopPort) open(e *environment) (*openPort, error) {
	p.queue = &loopQueue{}
	return &openPort{queues: []queue{p.queue}}, nil
}

// Receive writes nothing: each chunk holds the frame that it was given at first. Chunks come back in another order,
// which the frames follow by address.
func (q *loopQueue) Receive(out []Desc) int {
	n := min(len(out), len(q.filled))
	if q.most > 0 {
		n = min(n, q.most)
	}
	for i, a := range q.filled[:n] {
		out[i] = q.descs[a/2048]
	}
	q.filled = q.filled[:copy(q.filled, q.filled[n:])]
	return n
}
func (q *loopQueue) Fill(addrs []uint64) int {
	q.filled = append(q.filled, addrs...)
	return len(addrs)
}
func (q *loopQueue) Transmit(d []Desc) int {
	for _, x := range d {
		q.done = append(q.done, x.Addr)
	}
	return len(d)
}
func (q *loopQueue) Complete(out []uint64) int {
	n := copy(out, q.done)
	q.done = q.done[:copy(q.done, q.done[n:])]
	return n
}
func (q *loopQueue) Kick() error        { return nil }
func (q *loopQueue) TxPending() int     { return 0 }
func (q *loopQueue) WakeReceive() error { return nil }
func (q *loopQueue) FD() int            { return -1 }
func (q *loopQueue) Pending() bool      { return len(q.filled) > 0 }

// BenchmarkLane is the lane's own cost a received frame, without the kernel's.
func BenchmarkLane(b *testing.B) {
	const workers = 8
	for _, elements := range []int{64, 256} {
		for _, what := range []string{"sink", "reflect", "multicast", "unicast"} {
			b.Run(fmt.Sprintf("%s/%d", what, elements), func(b *testing.B) {
				p := &loopPort{}
				cfg := testConfig()
				cfg.FramesPerQueue = MinFramesPerQueue
				n, err := New(cfg, p)
				if err != nil {
					b.Fatal(err)
				}
				job := JobSpec{Name: "j", Workers: workers, Elements: elements, Members: members(workers, true)}
				switch what {
				case "sink":
					err = n.SetFunction("loop", Function{Kind: Sink})
				case "reflect":
					err = n.SetFunction("loop", Function{Kind: Reflect})
				case "multicast":
					job.Multicast = &MulticastSpec{MAC: inet.MAC{1, 0, 0x5e}, IP: inet.Addr{239, 1, 1, 1}, Ports: []int{0}}
					fallthrough
				case "unicast":
					err = n.InstallJob(job)
				}
				if err != nil {
					b.Fatal(err)
				}
				if err := n.openAll(context.Background()); err != nil {
					b.Fatal(err)
				}
				defer n.closeAll()
				l := n.lanes[0]
				q := p.queue
				// Any chunk may be received into, after a result was in it: the values do not matter here.
				q.descs = make([]Desc, l.chunks)
				for i := range q.descs {
					q.descs[i].Addr = uint64(i)*2048 + 256
				}
				frames := make([][]byte, 0, 2*workers*64)
				for set := range 2 {
					for s := range 64 {
						for r := range workers {
							frames = append(frames, request(r, elements, s, set, 0, 1))
						}
					}
				}
				k := 0
				b.SetBytes(int64(len(frames[0])))
				b.ReportAllocs()
				cpu := cpuTime(b)
				b.ResetTimer()
				for done := 0; done < b.N; {
					// Only headers are renewed: 60 bytes into the chunks that come next.
					m := min(BatchSize, len(q.filled))
					for _, a := range q.filled[:m] {
						f := frames[k%len(frames)]
						k++
						d := &q.descs[a/2048]
						d.Len = uint32(len(f))
						copy(l.area[d.Addr:], f[:60])
					}
					if !l.round() {
						b.Fatal("nothing received")
					}
					done += m
				}
				b.StopTimer()
				b.ReportMetric(float64(cpuTime(b)-cpu)/float64(b.N), "cpu-ns/op")
				s := check(b, n)
				if s.Total.Dropped() != 0 {
					b.Fatalf("%+v", s.Total)
				}
			})
		}
	}
}
