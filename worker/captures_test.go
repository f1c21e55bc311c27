package worker

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"gradnic/internal/captures"
	"gradnic/wire/inet"
	"gradnic/wire/switchml"
	"gradnic/worker/rtt"
)

// The window, given the results that a real client was given, sends the packets
// that this client sent: the same numbers on the same slots and sets, in the same order.
func TestWindowFollowsTheRealClient(t *testing.T) {
	for _, elements := range []int{64, 256} {
		steps, err := captures.Load(elements)
		if err != nil {
			t.Fatal(err)
		}
		for rank := range 2 {
			t.Run(fmt.Sprintf("%d elements, rank %d", elements, rank), func(t *testing.T) {
				m, totals := shapeOf(steps, rank)
				w := newWindow(m, 0, rtt.NewTimer(rtt.Bounds{First: time.Second, Least: time.Second, Most: time.Second}))
				job := -1
				requests, results := 0, 0
				for i, s := range steps {
					if s.Worker != rank {
						continue
					}
					v, fault := switchml.Validate(s.Frame[inet.PayloadOffset:])
					if fault != switchml.OK {
						t.Fatalf("frame %d: %v", i, fault)
					}
					tsi := v.TSI()
					k := binary.LittleEndian.Uint32(tsi[:])
					if int(v.Job()) == job+1 && s.Request {
						if job >= 0 {
							if !w.finished() {
								t.Fatalf("frame %d: job %d begins, and job %d has %d of %d results", i, job+1, job, w.done, w.total)
							}
							w.end()
						}
						job++
						w.begin(totals[job], 0)
					}
					if int(v.Job()) != job {
						t.Fatalf("frame %d is of job %d in job %d", i, v.Job(), job)
					}
					if !s.Request {
						if got, _ := w.result(0, k, v.Slot(), v.Set()); got != fresh {
							t.Fatalf("frame %d: result %d on slot %d set %d: verdict %d", i, k, v.Slot(), v.Set(), got)
						}
						results++
						continue
					}
					got, ok := w.next(0)
					if !ok {
						t.Fatalf("frame %d: the client sends packet %d, the window nothing", i, k)
					}
					if slot, set := w.place(got); got != int(k) || slot != v.Slot() || set != v.Set() {
						t.Fatalf("frame %d: the client sends packet %d on slot %d set %d, the window %d on %d, %d", i, k, v.Slot(), v.Set(), got, slot, set)
					}
					requests++
				}
				if requests < 200 || results < 200 || job < 1 {
					t.Errorf("only %d requests, %d results and %d jobs were looked at", requests, results, job+1)
				}
			})
		}
	}
}

// shapeOf finds how many slots the client's one thread uses, all of which a
// recording shows, and how many packets each job has; the last one is cut off.
func shapeOf(steps []captures.Step, rank int) (m int, totals []int) {
	for _, s := range steps {
		if s.Worker != rank || !s.Request {
			continue
		}
		m = max(m, int(binary.BigEndian.Uint16(s.Frame[48:50])&(switchml.Slots-1))+1)
		job := int(s.Frame[43])
		for len(totals) <= job {
			totals = append(totals, 0)
		}
		totals[job] = max(totals[job], int(binary.LittleEndian.Uint32(s.Frame[44:48]))+1)
	}
	totals[len(totals)-1] = 1 << 20
	return m, totals
}
