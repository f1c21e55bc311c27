package dataplane

import (
	"fmt"
	"testing"
	"time"
)

// TestFullEgressHoldsUpNobody: a worker that does not receive loses its own results under tx-full; the others get all
// of theirs, and when it receives again it asks and is answered.
func TestFullEgressHoldsUpNobody(t *testing.T) {
	n, mem := memNIC(t, testConfig(), 3)
	install(t, n, JobSpec{Name: "j", Workers: 3, Elements: 64, Members: members(3, false)})
	const rounds = 500
	for i := range rounds {
		for r := range 3 {
			mustSend(t, mem[r], request(r, 64, i, 0, uint32(i), 1))
		}
		for r := range 2 { // mem[2] is not read
			if v := values(recv(t, mem[r])); v[0] != 3 {
				t.Fatalf("round %d: %d", i, v[0])
			}
		}
	}
	s := check(t, n)
	full := s.Ports[2].ReplicaDrops["tx-full"]
	if want := uint64(rounds - testConfig().FramesPerQueue/2); full != want || s.Ports[0].ReplicaDrops["tx-full"] != 0 {
		t.Fatalf("%d results lost, want %d: %+v", full, want, s.Total)
	}
	if s.Ports[0].Transmitted != rounds || s.Ports[1].Transmitted != rounds {
		t.Fatalf("%+v", s.Ports)
	}
	buf := make([]byte, 2048)
	for range rounds - full {
		if _, err := mem[2].Recv(buf, time.Now().Add(time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	mustSend(t, mem[2], request(2, 64, rounds-1, 0, 0, 1))
	if v := values(recv(t, mem[2])); v[0] != 3 {
		t.Fatalf("%d", v[0])
	}
	check(t, n)
}

// TestLossIsMended: workers that lose a tenth of their frames in both directions, or exactly the last, and send again
// end with the right sums, whatever was lost.
func TestLossIsMended(t *testing.T) {
	const workers, slots, rounds = 3, 16, 40
	for name, im := range map[string]Impairment{
		"1%":   {IngressLoss: 0.01, EgressLoss: 0.01},
		"10%":  {IngressLoss: 0.1, EgressLoss: 0.1},
		"last": {DropIngress: []uint64{slots * rounds}, DropEgress: []uint64{slots * rounds}},
	} {
		t.Run(name, func(t *testing.T) {
			n, mem := memNIC(t, testConfig(), workers)
			install(t, n, JobSpec{Name: "j", Workers: workers, Elements: 64, Slots: slots, Members: members(workers, true)})
			for _, p := range []string{"m0", "m2"} {
				if err := n.Impair(p, im); err != nil {
					t.Fatal(err)
				}
			}
			errs := make(chan error, workers)
			for r := range workers {
				go func() { errs <- allReduce(mem[r], r, slots, rounds) }()
			}
			for range workers {
				if err := <-errs; err != nil {
					t.Fatal(err)
				}
			}
			s := check(t, n)
			if s.Total.Results != slots*rounds || s.Total.Contributed != slots*rounds*workers {
				t.Fatalf("%+v", s.Total)
			}
			if s.Total.Dropped() == 0 || s.Total.ReplicasDropped() == 0 {
				t.Fatalf("nothing was lost: %+v", s.Total)
			}
		})
	}
}

// allReduce is a worker that sends again after a while: in round k slot s of set k%2 gets k*1000+s+rank.
func allReduce(w wire, rank, slots, rounds int) error {
	type flight struct {
		round int
		sent  time.Time
	}
	const again = 3 * time.Millisecond
	at := make([]flight, slots)
	send := func(s int) error {
		at[s].sent = time.Now()
		k := at[s].round
		return w.Send(request(rank, 64, s, k%2, uint32(k), int32(k*1000+s+rank)))
	}
	for s := range at {
		if err := send(s); err != nil {
			return err
		}
	}
	buf := make([]byte, 2048)
	for left := slots * rounds; left > 0; {
		k, err := w.Recv(buf, time.Now().Add(again))
		if err == nil {
			s, round := int(buf[49]), int(buf[44])
			if round == at[s].round {
				if v := values(buf[:k])[11]; v != int32(3*(round*1000+s)+3) {
					return fmt.Errorf("rank %d slot %d round %d: %d", rank, s, round, v)
				}
				at[s].round++
				left--
				if at[s].round < rounds {
					if err := send(s); err != nil {
						return err
					}
				}
			}
		}
		for s := range at {
			if at[s].round < rounds && time.Since(at[s].sent) > again {
				if err := send(s); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
