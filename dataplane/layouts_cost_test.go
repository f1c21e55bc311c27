package dataplane

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"strings"
	"testing"

	"gradnic/wire/inet"
	"gradnic/wire/layout"
	"gradnic/wire/native"
)

// layoutWorkers reduce together, each result to each of them alone.
const layoutWorkers = 8

// layoutLoad is a lane alone, with frames of a form that it receives again and again.
type layoutLoad struct {
	nic    *NIC
	lane   *lane
	queue  *loopQueue
	frames [][]byte
	head   int // bytes of a frame that the lane writes over
	next   int
	// round writes the number of a slot's use into a frame; nil where the protocol has none.
	round func(frame []byte, n uint32)
}

// newLayoutLoad makes a load of rules in the form of x, nil for the rules' own by hand.
func newLayoutLoad(t testing.TB, rules layout.Rules, elements int, x *layout.Layout) *layoutLoad {
	p := &loopPort{}
	cfg := testConfig()
	cfg.FramesPerQueue = MinFramesPerQueue
	job := JobSpec{Name: "j", Protocol: rules.String(), Workers: layoutWorkers, Elements: elements, Members: members(layoutWorkers, true)}
	if x != nil {
		cfg.Layouts, job.Layout = []*layout.Layout{x}, x.Name
		if x.EtherType != 0 {
			for r := range job.Members {
				job.Members[r].IP = layout.StationIP(job.Members[r].MAC)
			}
		}
	}
	nic, err := New(cfg, p)
	if err != nil {
		t.Fatal(err)
	}
	if err := nic.InstallJob(job); err != nil {
		t.Fatal(err)
	}
	if err := nic.openAll(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nic.closeAll() })
	g := &layoutLoad{nic: nic, lane: nic.lanes[0], queue: p.queue, head: 2048}
	g.queue.descs = make([]Desc, g.lane.chunks)
	for i := range g.queue.descs {
		g.queue.descs[i].Addr = uint64(i)*2048 + 256
	}
	if rules == layout.SwitchML {
		g.head = 80
		for i := range 2 * 64 * layoutWorkers {
			g.frames = append(g.frames, inForm(t, x, request(i%layoutWorkers, elements, i/layoutWorkers%64, i/layoutWorkers/64, 0, 1)))
		}
		return g
	}
	j := g.lane.natives[1]
	w := nativeWorker{t: t, life: j.native.notice.Life}
	for w.rank = range layoutWorkers {
		b := make([]byte, native.ReportLen)
		(&native.ReportBody{Nonce: uint32(100 + w.rank)}).Put(b)
		g.frames = append(g.frames, inForm(t, x, w.frame(native.Header{Kind: native.Report}, b)))
	}
	g.run(t, len(g.frames))
	w.epoch = j.native.epoch
	g.frames, g.next, g.head = nil, 0, 80
	for i := range 64 * layoutWorkers {
		w.rank = i % layoutWorkers
		h := native.Header{Kind: native.Contribution, Epoch: w.epoch, Slot: uint32(i / layoutWorkers), Elements: uint16(elements)}
		g.frames = append(g.frames, inForm(t, x, w.frame(h, make([]byte, 4*elements))))
	}
	g.round = func(frame []byte, n uint32) { binary.BigEndian.PutUint32(frame[inet.PayloadOffset+12:], n) }
	if x != nil {
		field, base := x.Of(layout.Round), x.Base()
		g.round = func(frame []byte, n uint32) { field.Put(frame, base, uint64(n)) }
	}
	return g
}

// inForm is a worker's frame by a layout.
func inForm(t testing.TB, x *layout.Layout, f []byte) []byte {
	if x == nil {
		return f
	}
	buf := append(make([]byte, 100), f...)
	buf = append(buf, make([]byte, layout.MaxRunning)...)
	at, m, ok := x.Leave(buf, 100, len(f))
	if !ok {
		t.Fatal("a request does not leave")
	}
	f = buf[at : at+m]
	if x.EtherType == 0 {
		binary.BigEndian.PutUint16(f[36:], x.FirstPort)
	}
	return f
}

// run receives n frames, and returns nanoseconds of CPU a frame.
func (g *layoutLoad) run(t testing.TB, n int) float64 {
	l, q := g.lane, g.queue
	before := cpuTime(t)
	for done := 0; done < n; {
		if len(q.filled) == 0 && !l.round() {
			t.Fatal("no chunk to receive into")
		}
		m := min(BatchSize, len(q.filled), n-done)
		for _, a := range q.filled[:m] {
			f := g.frames[g.next%len(g.frames)]
			if g.round != nil {
				g.round(f, uint32(g.next/len(g.frames)))
			}
			g.next++
			d := &q.descs[a/2048]
			d.Len = uint32(len(f))
			copy(l.area[d.Addr:], f[:min(g.head, len(f))])
		}
		q.most = m
		if !l.round() {
			t.Fatal("nothing received")
		}
		done += m
	}
	return float64(cpuTime(t)-before) / float64(n)
}

// A layout costs at most 1.3 times SwitchML by hand, and 1.4 times the native rules: the least cost of many interleaved runs
// (GRADNIC_LAYOUT_RUNS; make bench-layout), which is a lane's alone and does not depend on what else the machine does. Beside
// other tests a few runs must be within twice. The cost of turning values around is not the header's: the example's byte order
// is the rules' here.
func TestLayoutCost(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector's cost is not the lane's")
	}
	frames, runs := 20000, 5
	most := map[layout.Rules]float64{layout.SwitchML: 2, layout.Native: 2}
	if s := os.Getenv("GRADNIC_LAYOUT_RUNS"); s != "" {
		if _, err := fmt.Sscan(s, &runs); err != nil || runs < 1 {
			t.Fatalf("GRADNIC_LAYOUT_RUNS=%q: how many runs", s)
		}
		most = map[layout.Rules]float64{layout.SwitchML: 1.3, layout.Native: 1.4}
	}
	type form struct {
		name string
		x    *layout.Layout
	}
	for _, rules := range []struct {
		rules layout.Rules
		forms []form
	}{
		{layout.SwitchML, []form{{"by hand", nil}, {"layout switchml", loadLayout(t, "switchml")}, {"another header", otherHeader(t)}}},
		{layout.Native, []form{
			{"by hand", nil}, {"layout native", loadLayout(t, "native")},
			{"layout inhouse", parseLayout(t, "inhouse", "payload: {byte-order: big}", "payload: {byte-order: little}")},
		}},
	} {
		loads := make([]*layoutLoad, len(rules.forms))
		best := make([]float64, len(rules.forms))
		for i, f := range rules.forms {
			loads[i], best[i] = newLayoutLoad(t, rules.rules, 64, f.x), 1e18
		}
		for range runs {
			for i, g := range loads {
				best[i] = min(best[i], g.run(t, frames))
			}
		}
		var text strings.Builder
		for i, f := range rules.forms {
			fmt.Fprintf(&text, ", %s %.0f ns (%.2f)", f.name, best[i], best[i]/best[0])
			if m := most[rules.rules]; best[i] > m*best[0] {
				t.Errorf("rules %s: %.0f ns a frame by hand, %.0f with %s: more than %.1f times", rules.rules, best[0], best[i], f.name, m)
			}
		}
		t.Logf("rules %s, 64 values a frame%s", rules.rules, text.String())
		for i, g := range loads {
			if s := check(t, g.nic); s.Total.Dropped() != 0 || s.Total.Results < uint64(frames/layoutWorkers) || s.Total.Duplicates != 0 {
				t.Fatalf("%s, %s: %+v", rules.rules, rules.forms[i].name, s.Total)
			}
		}
	}
}
