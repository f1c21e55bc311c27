package aggregation_test

import (
	"bytes"
	"fmt"
	"testing"

	"gradnic/aggregation"
	"gradnic/internal/captures"
	"gradnic/multicast"
	"gradnic/wire/inet"
	"gradnic/wire/switchml"
)

// The requests of the real client's capture, in time order, must give the
// recorded replies of each worker: all of them, in order, byte for byte. The
// files were cut, so the aggregator may give more replies than were recorded
// after a worker's last one, but only then.
func TestCapturedRequestsGiveCapturedReplies(t *testing.T) {
	for _, elements := range []int{64, 256} {
		t.Run(fmt.Sprint(elements), func(t *testing.T) {
			steps, err := captures.Load(elements)
			if err != nil {
				t.Fatal(err)
			}
			got, requests := replay(t, elements, steps)
			var want [captures.Workers][][]byte
			var asked [captures.Workers]int
			for _, s := range steps {
				if s.Request {
					asked[s.Worker]++
				} else {
					want[s.Worker] = append(want[s.Worker], s.Frame)
				}
			}
			for w := range captures.Workers {
				if len(want[w]) == 0 || len(want[w]) < requests/4 {
					t.Fatalf("worker %d: capture has only %d replies for %d requests", w, len(want[w]), requests)
				}
				if len(got[w]) < len(want[w]) {
					t.Errorf("worker %d: %d replies, capture has %d", w, len(got[w]), len(want[w]))
				}
				for k := range min(len(got[w]), len(want[w])) {
					if !bytes.Equal(got[w][k], want[w][k]) {
						t.Fatalf("worker %d reply %d differs\n got %x\nwant %x", w, k, got[w][k], want[w][k])
					}
				}
				// The client never has more replies than requests in a run without loss.
				if len(got[w]) > asked[w] {
					t.Errorf("worker %d: %d replies to %d requests", w, len(got[w]), asked[w])
				}
				t.Logf("worker %d: %d replies equal, %d more after the end of the capture", w, len(want[w]), len(got[w])-len(want[w]))
			}
		})
	}
}

func replay(t *testing.T, elements int, steps []captures.Step) (got [captures.Workers][][]byte, requests int) {
	t.Helper()
	pool, err := aggregation.NewPool(aggregation.Spec{
		Rule: aggregation.SwitchML, Workers: captures.Workers, Slots: 8192, Elements: elements, Exponents: 2,
	})
	if err != nil {
		t.Fatal(err)
	}
	var members []multicast.Member
	for w := range captures.Workers {
		members = append(members, multicast.Member{Rank: w, Port: w, MAC: captures.WorkerMAC(w), IP: captures.WorkerIP(w)})
	}
	group, err := multicast.NewGroup(captures.Workers, members...)
	if err != nil {
		t.Fatal(err)
	}
	for k, s := range steps {
		if !s.Request {
			continue
		}
		requests++
		var p inet.Packet
		if f := inet.Parse(s.Frame, &p); f != inet.OK {
			t.Fatalf("step %d: %v", k, f)
		}
		v, f := switchml.Validate(p.Payload)
		if f != switchml.OK {
			t.Fatalf("step %d: %v", k, f)
		}
		e0, e1 := v.Exponents()
		out := make([]byte, len(v.Values()))
		o := pool.Contribute(&aggregation.Contribution{
			Slot: v.Slot(), Set: v.Set(), Worker: s.Worker, Exponents: [2]int8{e0, e1}, Values: v.Values(),
		}, s.Time.UnixNano(), out)
		copies := group.Copies()
		switch o {
		case aggregation.Added, aggregation.Duplicate:
			continue
		case aggregation.Answered:
			copies = copies[s.Worker : s.Worker+1]
		case aggregation.Completed:
		default:
			t.Fatalf("step %d: %v", k, o)
		}
		r := switchml.Reply{
			Switch:   switchml.Endpoint{MAC: captures.SwitchMAC(), IP: captures.SwitchIP(), Port: p.DstPort},
			Worker:   switchml.Endpoint{Port: p.SrcPort},
			Elements: v.Elements(), Job: v.Job(), TSI: v.TSI(), PoolIndex: v.PoolIndex(),
		}
		r.E0, r.E1 = pool.Exponents(v.Slot(), v.Set())
		frames := make([][]byte, len(copies))
		for i := range frames {
			frames[i] = make([]byte, switchml.FrameLen(elements))
		}
		if n := multicast.SwitchML(frames, copies, r, out); n != len(s.Frame) {
			t.Fatalf("step %d: replies of %d bytes to a request of %d", k, n, len(s.Frame))
		}
		for i, c := range copies {
			got[c.Rank] = append(got[c.Rank], frames[i])
		}
	}
	return got, requests
}
