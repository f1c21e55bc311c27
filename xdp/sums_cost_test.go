package xdp

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// BenchmarkSum tells what contributions take in the program, beside plain steering of the same frames to a socket: the first
// one of a slot, one that is added to others, the last one, one that had come before, and one that gets the result once
// more. Each is a test run of its own over another slot, as in traffic; figures are medians.
func BenchmarkSum(b *testing.B) {
	const workers, slots = 8, 256
	for _, elements := range []int{64, 256} {
		b.Run(fmt.Sprint(elements), func(b *testing.B) {
			st, s := summing(b, false)
			plain := steeringWithSocket(b, false)
			if err := plain.SetWholePort(true); err != nil {
				b.Fatal(err)
			}
			id := installSum(b, s, SumJob{Workers: workers, Elements: elements, Slots: slots, Tag: sumTag})
			took := map[string][]time.Duration{}
			run := func(what string, st *Steering, frame []byte, action uint32) {
				got, d, err := st.program.Benchmark(frame, 1, nil)
				if err != nil || got != action {
					b.Fatalf("%s: action %d, want %d: %v", what, got, action, err)
				}
				took[what] = append(took[what], d)
			}
			var frames [2][slots][workers][]byte
			for set := range frames {
				for slot := range slots {
					for rank := range workers {
						frames[set][slot][rank] = sumFrame(rank, slot, set, sumValues(elements, int32(slot-rank)))
					}
				}
			}
			rounds := max(4, b.N/(slots*(workers+3)))
			for round := range rounds {
				now := &frames[round&1]
				for rank := range workers {
					what, action := "add", uint32(xdpDrop)
					switch rank {
					case 0:
						what = "first"
					case workers - 1:
						what, action = "last", xdpRedirect
					}
					for slot := range slots {
						run(what, st, now[slot][rank], action)
					}
					for slot := 0; slot < slots && rank == 0; slot++ {
						run("repeated", st, now[slot][0], xdpDrop)
						run("plain", plain, now[slot][0], xdpRedirect)
					}
				}
				for slot := range slots {
					run("answered", st, now[slot][0], xdpRedirect)
				}
			}
			if got := sumStatus(b, s, id); got.Results != uint64(rounds*slots) {
				b.Fatalf("%d results, want %d", got.Results, rounds*slots)
			}
			for what, d := range took {
				slices.Sort(d)
				b.ReportMetric(float64(d[len(d)/2]), "ns/"+what)
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}
