package dataplane

import (
	"math"
	"testing"
	"time"
)

// TestExactLosses loses exactly the k-th frames, in either direction.
func TestExactLosses(t *testing.T) {
	n, mem := memNIC(t, testConfig(), 1)
	install(t, n, JobSpec{Name: "j", Workers: 1, Elements: 64, Members: members(1, true)})
	if err := n.Impair("m0", Impairment{DropIngress: []uint64{3, 1}, DropEgress: []uint64{2}}); err != nil {
		t.Fatal(err)
	}
	for i := range 6 {
		mustSend(t, mem[0], request(0, 64, i, 0, uint32(i), 1))
	}
	// Requests 0 and 2 are lost, the results of 1, 4 and 5 come; the second, of 3, is lost.
	for _, want := range []byte{1, 4, 5} {
		if g := recv(t, mem[0]); g[44] != want {
			t.Fatalf("result of %d, want %d", g[44], want)
		}
	}
	s := waitReceived(t, n, 6)
	silent(t, mem...)
	if s.Total.Drops["impaired-ingress"] != 2 || s.Total.ReplicaDrops["impaired-egress"] != 1 || s.Total.Contributed != 4 {
		t.Fatalf("%+v", s.Total)
	}
	check(t, n)
	if err := n.Impair("m0", Impairment{}); err != nil {
		t.Fatal(err)
	}
	mustSend(t, mem[0], request(0, 64, 9, 0, 9, 1))
	recv(t, mem[0])
}

// TestLossRate: the losses are those asked for, the same for the same seed, and the results that come are right.
func TestLossRate(t *testing.T) {
	const frames = 4000
	run := func(seed uint64) (in, out uint64) {
		cfg := testConfig()
		cfg.Seed = seed
		n, mem := memNIC(t, cfg, 1)
		install(t, n, JobSpec{Name: "j", Workers: 1, Elements: 64, Members: members(1, true)})
		if err := n.Impair("m0", Impairment{IngressLoss: 0.1, EgressLoss: 0.2}); err != nil {
			t.Fatal(err)
		}
		stop := drainWire(mem[0])
		for i := range frames {
			mustSend(t, mem[0], request(0, 64, i%512, i/512%2, uint32(i), 1))
		}
		s := waitReceived(t, n, frames)
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
		got := stop()
		in, out = s.Total.Drops["impaired-ingress"], s.Total.ReplicaDrops["impaired-egress"]
		full := s.Total.ReplicaDrops["tx-full"] // the receiver did not keep up
		if s.Total.Contributed+s.Total.Duplicates != frames-in || s.Total.Replicas != frames-in || s.Total.Transmitted != frames-in-out-full || got != s.Total.Transmitted {
			t.Fatalf("%d came: %+v", got, s.Total)
		}
		return in, out
	}
	in, out := run(1)
	near := func(got uint64, n, p float64) bool { return math.Abs(float64(got)-n*p) < 5*math.Sqrt(n*p*(1-p)) }
	if !near(in, frames, 0.1) || !near(out, float64(frames-in), 0.2) {
		t.Fatalf("lost %d and %d of %d", in, out, frames)
	}
	if in2, out2 := run(1); in2 != in || out2 != out {
		t.Fatalf("same seed: %d %d, then %d %d", in, out, in2, out2)
	}
	if in2, out2 := run(2); in2 == in && out2 == out {
		t.Fatal("another seed, the same losses")
	}
}

// TestEgressTogether decides once for all copies of a result.
func TestEgressTogether(t *testing.T) {
	n, mem := memNIC(t, testConfig(), 2)
	install(t, n, JobSpec{Name: "j", Workers: 2, Elements: 64, Members: members(2, false)})
	if err := n.Impair("m1", Impairment{EgressLoss: 0.5, EgressTogether: true}); err != nil {
		t.Fatal(err)
	}
	const rounds = 200
	for i := range rounds {
		mustSend(t, mem[0], request(0, 64, i, 0, 0, 1))
		waitReceived(t, n, uint64(2*i+1))
		mustSend(t, mem[1], request(1, 64, i, 0, 0, 1)) // always the one that completes
		waitReceived(t, n, uint64(2*i+2))
	}
	s := check(t, n)
	a, b := s.Ports[0].Transmitted, s.Ports[1].Transmitted
	if a != b || a < rounds/4 || a > rounds*3/4 || s.Total.ReplicaDrops["impaired-egress"] != 2*(rounds-a) {
		t.Fatalf("sent %d and %d of %d: %+v", a, b, rounds, s.Total)
	}
	stop := drainWire(mem[0])
	stop2 := drainWire(mem[1])
	waitFor(t, n, func(s *Snapshot) bool { return true })
	stop()
	stop2()
}

// TestDuplicateAndReorder: doubled frames are injected and have verdicts; delayed ones come after later ones, and at
// the latest when their time is over.
func TestDuplicateAndReorder(t *testing.T) {
	n, mem := memNIC(t, testConfig(), 1)
	if err := n.SetFunction("m0", Function{Kind: Reflect}); err != nil {
		t.Fatal(err)
	}
	if err := n.Impair("m0", Impairment{Duplicate: 1}); err != nil {
		t.Fatal(err)
	}
	mustSend(t, mem[0], request(0, 64, 0, 0, 1, 1))
	recv(t, mem[0])
	recv(t, mem[0])
	s := waitReceived(t, n, 1)
	if s.Total.Injected != 1 || s.Total.Passed != 2 {
		t.Fatalf("%+v", s.Total)
	}
	check(t, n)

	if err := n.Impair("m0", Impairment{Reorder: 0.3, ReorderBy: 4, Seed: 5}); err != nil {
		t.Fatal(err)
	}
	const frames = 500
	stop := make(chan []byte)
	window := make(chan struct{}, 64)
	go func() {
		var order []byte
		buf := make([]byte, 4096)
		for len(order) < frames {
			if _, err := mem[0].Recv(buf, time.Now().Add(2*time.Second)); err != nil {
				break
			}
			order = append(order, buf[44])
			select {
			case <-window:
			default:
			}
		}
		stop <- order
	}()
	for i := range frames {
		window <- struct{}{}
		mustSend(t, mem[0], request(0, 64, 0, 0, uint32(i), 1))
	}
	order := <-stop
	if len(order) != frames {
		t.Fatalf("%d of %d frames came", len(order), frames)
	}
	late := 0
	for i := 1; i < len(order); i++ {
		if order[i]-order[i-1] > 127 {
			late++
		}
	}
	if late < frames/20 {
		t.Fatalf("%d frames were out of order", late)
	}
	waitFor(t, n, func(s *Snapshot) bool { return s.Frames.Held == 0 })
	check(t, n)

	// Held frames are in flight, and are let go when the impairment is taken away.
	if err := n.Impair("m0", Impairment{Reorder: 1, ReorderBy: 100, ReorderHold: time.Second}); err != nil {
		t.Fatal(err)
	}
	mustSend(t, mem[0], request(0, 64, 0, 0, 0, 1))
	s = waitFor(t, n, func(s *Snapshot) bool { return s.Total.Received == frames+2 })
	if s.Total.InFlight != 1 || s.Frames.Held != 1 {
		t.Fatalf("%+v", s)
	}
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	if err := n.Impair("m0", Impairment{}); err != nil {
		t.Fatal(err)
	}
	recv(t, mem[0])
	check(t, n)
}

func TestImpairmentIsChecked(t *testing.T) {
	n, _ := memNIC(t, testConfig(), 1)
	for _, im := range []Impairment{
		{IngressLoss: -0.1}, {EgressLoss: 1.1}, {Duplicate: math.NaN()}, {Reorder: 2}, {ReorderBy: -1},
		{ReorderHold: -1}, {DropIngress: []uint64{0}},
	} {
		if err := n.Impair("m0", im); err == nil {
			t.Errorf("%+v was taken", im)
		}
	}
	if err := n.Impair("m9", Impairment{}); err == nil {
		t.Error("a port that does not exist")
	}
}
