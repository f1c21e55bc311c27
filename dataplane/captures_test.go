package dataplane

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"gradnic/internal/captures"
	"gradnic/xdp"
)

// wire is the worker's end of a port, in memory or over a veth.
type wire interface {
	Send(frame []byte) error
	Recv(buf []byte, deadline time.Time) (int, error)
}

// replayCaptures feeds the recorded requests in time order, the next when the NIC has counted the last, and compares
// every recorded reply. The files were cut, so the NIC may send more in the end.
func replayCaptures(t *testing.T, n *NIC, elements int, wires []wire) {
	t.Helper()
	steps, err := captures.Load(elements)
	if err != nil {
		t.Fatal(err)
	}
	var want, got [captures.Workers][][]byte
	sent := uint64(0)
	buf := make([]byte, 4096)
	for _, s := range steps {
		if !s.Request {
			want[s.Worker] = append(want[s.Worker], s.Frame)
			continue
		}
		if err := wires[s.Worker].Send(s.Frame); err != nil {
			t.Fatal(err)
		}
		sent++
		snap := waitFor(t, n, func(s *Snapshot) bool { return s.Total.Received+summedHere(s) >= sent && s.Total.InFlight == 0 })
		for r := range wires { // keep up, so that no buffer on the way runs over
			for uint64(len(got[r])) < snap.Ports[r].Transmitted {
				k, err := wires[r].Recv(buf, time.Now().Add(5*time.Second))
				if err != nil {
					t.Fatalf("worker %d: reply %d: %v", r, len(got[r]), err)
				}
				got[r] = append(got[r], bytes.Clone(buf[:k]))
			}
		}
	}
	for r := range want {
		if len(want[r]) == 0 {
			t.Fatal("the captures have no replies")
		}
		if len(got[r]) < len(want[r]) {
			t.Fatalf("worker %d: %d replies, %d recorded", r, len(got[r]), len(want[r]))
		}
		for i, w := range want[r] {
			if !bytes.Equal(w, got[r][i]) {
				t.Fatalf("worker %d: reply %d differs:\nrecorded %x\nsent     %x", r, i, w, got[r][i])
			}
		}
	}
	s := check(t, n)
	if s.Total.Contributed+summedHere(&s) != sent || s.Total.Dropped() != 0 {
		t.Fatalf("%d requests: %+v", sent, s.Total)
	}
}

// summedHere is how many frames the kernel has added up, so that they came to no lane.
func summedHere(s *Snapshot) (n uint64) {
	for i := range s.Ports {
		n += s.Ports[i].Steering[xdp.Summed.String()] + s.Ports[i].Steering[xdp.Repeated.String()]
	}
	return n
}

func capturesJob(elements int) JobSpec {
	j := JobSpec{Name: "hello", Workers: captures.Workers, Elements: elements}
	for r := range captures.Workers {
		j.Members = append(j.Members, WorkerSpec{Rank: r, MAC: captures.WorkerMAC(r), IP: captures.WorkerIP(r), Port: -1})
	}
	return j
}

func TestCapturesOverMem(t *testing.T) {
	for _, elements := range []int{64, 256} {
		for _, lanes := range []int{1, 2} {
			t.Run(fmt.Sprintf("%d/%d-lanes", elements, lanes), func(t *testing.T) {
				cfg := Config{MAC: captures.SwitchMAC(), IP: captures.SwitchIP(), Wait: Interrupt, Lanes: lanes}
				n, mem := memNIC(t, cfg, captures.Workers)
				install(t, n, capturesJob(elements))
				replayCaptures(t, n, elements, []wire{mem[0], mem[1]})
			})
		}
	}
}
