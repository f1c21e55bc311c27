package accl_test

import (
	"fmt"
	"strings"
	"testing"

	"gradnic/internal/acclcheck"
	. "gradnic/worker/accl"
)

// traces are the messages that each rank sends, in order, as "receiver:bytes": written by hand from the description of the
// firmware's schedules, not from the code. E, the float32 of a segment of 4032 bytes, is 1008.
var traces = []struct {
	call  Call
	ranks int
	sends []string // by rank
}{
	// Segments of E elements.
	{Call{Collective: Send, Type: Float32, Count: 2500, Root: 0}, 3, []string{"1:4032 1:4032 1:1936", "", ""}},
	{Call{Collective: Send, Type: Int64, Count: 505, Root: 2}, 3, []string{"", "", "0:4032 0:8"}},
	// Half as wide on the wire, still cut at E elements.
	{Call{Collective: Send, Type: Float32, Count: 1009, Half: true}, 2, []string{"1:2016 1:2", ""}},
	// Flat, segment by segment, all others in rank order.
	{Call{Collective: Bcast, Type: Float32, Count: 1500, Root: 1}, 3, []string{"", "0:4032 2:4032 0:1968 2:1968", ""}},
	{Call{Collective: Bcast, Type: Float16, Count: 5}, 4, []string{"1:10 2:10 3:10", "", "", ""}},
	// Flat, each rank's chunk in one train.
	{Call{Collective: Scatter, Type: Float32, Count: 10, Root: 1}, 3, []string{"", "0:40 2:40", ""}},
	{Call{Collective: Scatter, Type: Float32, Count: 1009, Root: 1}, 3, []string{"", "0:4032 0:4 2:4032 2:4", ""}},
	// A chain to the root: own first, then what comes from behind, distance - 1 times.
	{Call{Collective: Gather, Type: Float32, Count: 10, Root: 1}, 4, []string{"1:40 1:40 1:40", "", "3:40", "0:40 0:40"}},
	{Call{Collective: Gather, Type: Float32, Count: 1010}, 3, []string{"", "2:4032 2:8", "0:4032 0:8 0:4032 0:8"}},
	// A chain from the rank behind the root.
	{Call{Collective: Reduce, Type: Float32, Count: 10, Root: 1}, 4, []string{"1:40", "", "3:40", "0:40"}},
	{Call{Collective: Reduce, Type: Float64, Count: 505}, 3, []string{"", "2:4032 2:8", "0:4032 0:8"}},
	// The first of the chain sends as send does, the others cut what is on the wire.
	{Call{Collective: Reduce, Type: Float32, Count: 2017, Half: true}, 3, []string{"", "2:2016 2:2016 2:2", "0:4032 0:2"}},
	// Rings.
	{Call{Collective: AllGather, Type: Int32, Count: 10}, 2, []string{"1:40", "0:40"}},
	{Call{Collective: AllGather, Type: Int32, Count: 1009}, 3, []string{"1:4032 1:4 1:4032 1:4", "2:4032 2:4 2:4032 2:4", "0:4032 0:4 0:4032 0:4"}},
	{Call{Collective: ReduceScatter, Type: Int32, Count: 10}, 4, []string{"1:40 1:40 1:40", "2:40 2:40 2:40", "3:40 3:40 3:40", "0:40 0:40 0:40"}},
	// 17 at two ranks is the recorded one: chunks of 9 and 8.
	{Call{Collective: AllReduce, Type: Float32, Count: 17}, 2, []string{"1:36 1:32", "0:32 0:36"}},
	// Chunks of 4, 4, 2.
	{Call{Collective: AllReduce, Type: Float32, Count: 10}, 3, []string{"1:16 1:8 1:16 1:16", "2:16 2:16 2:8 2:16", "0:8 0:16 0:16 0:8"}},
	// 2000 elements at three ranks: a segment of 1008 in chunks of 336, one of 992 in 331, 331, 330.
	{Call{Collective: AllReduce, Type: Float32, Count: 2000}, 3, []string{
		"1:1344 1:1344 1:1344 1:1344 1:1324 1:1320 1:1324 1:1324",
		"2:1344 2:1344 2:1344 2:1344 2:1324 2:1324 2:1320 2:1324",
		"0:1344 0:1344 0:1344 0:1344 0:1320 0:1324 0:1324 0:1320"}},
	// What is left for the last chunk is nothing: 2, 2, 0.
	{Call{Collective: AllReduce, Type: Float32, Count: 4}, 3, []string{"1:8 1:8 1:8", "2:8 2:8 2:8", "0:8 0:8"}},
	// And less than nothing, where the firmware goes wrong and chunks are cut short here: 2, 2, 1, 0.
	{Call{Collective: AllReduce, Type: Float32, Count: 5}, 4, []string{"1:8 1:4 1:8 1:8", "2:8 2:8 2:4 2:8 2:8", "3:4 3:8 3:8 3:4 3:8", "0:4 0:8 0:8 0:4"}},
}

// TestTraces: the messages that every rank sends, their lengths and their order are the firmware's, and each pair's
// sequence numbers count them from 0.
func TestTraces(t *testing.T) {
	for _, c := range traces {
		t.Run(fmt.Sprintf("%v-%d-%v-%d", c.call.Collective, c.call.Count, c.call.Type, c.ranks), func(t *testing.T) {
			j := acclcheck.New(c.call, c.ranks, DefaultSegment, 1)
			m := newMesh(t, c.ranks, nil, j.Of)
			m.run()
			m.check(t, j)
			got := make([][]string, c.ranks)
			next := map[[2]int]uint32{}
			for _, x := range m.trace {
				got[x.from] = append(got[x.from], fmt.Sprintf("%d:%d", x.to, x.bytes))
				k := [2]int{x.from, x.to}
				if x.seq != next[k] {
					t.Errorf("%v has number %d, want %d", x, x.seq, next[k])
				}
				next[k]++
			}
			for r, want := range c.sends {
				if s := strings.Join(got[r], " "); s != want {
					t.Errorf("rank %d sends %s\nwant          %s", r, s, want)
				}
			}
		})
	}
}
