package worker_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"gradnic/dataplane"
	"gradnic/wire/inet"
	"gradnic/wire/native"
	"gradnic/worker"
	"gradnic/worker/datagram"
)

var group = inet.Addr{239, 9, 8, 7}

// multicastTo is results to a group by the first ports.
func multicastTo(group inet.Addr, ports int) *dataplane.MulticastSpec {
	m := &dataplane.MulticastSpec{IP: group, MAC: native.GroupMAC(group)}
	for p := range ports {
		m.Ports = append(m.Ports, p)
	}
	return m
}

// counted counts what comes to a transport.
type counted struct {
	datagram.Transport
	n *atomic.Uint64
}

func (c counted) Recv(until time.Time) ([][]byte, error) {
	got, err := c.Transport.Recv(until)
	c.n.Add(uint64(len(got)))
	return got, err
}

// Over a frame link, with losses: what is asked for again comes to each alone.
func TestGroupOnLinks(t *testing.T) {
	f := newFabric(t, 3, worker.Config{Elements: 64, Outstanding: 16, Group: group}, nil)
	for _, n := range []int{0, 1, 64, 64*40 + 3} {
		f.reduceInts(t, n, uint64(n))
	}
	f.impair(t, dataplane.Impairment{IngressLoss: 0.05, EgressLoss: 0.05})
	f.reduceInts(t, 64*200, 7)
	f.reduceFloats(t, 64*100, 8)
	if job, err := f.nic.Job("test"); err != nil || job.Resent == 0 {
		t.Errorf("%+v, %v: no result was sent to a worker alone", job, err)
	}
}

// Over sockets and AF_XDP: nearly all results come by the group, in lanes and in the kernel.
func TestGroupOverXDP(t *testing.T) {
	for _, inKernel := range []bool{false, true} {
		t.Run(fmt.Sprintf("in kernel %t", inKernel), func(t *testing.T) {
			const workers, packets = 3, 400
			job := dataplane.JobSpec{Name: "test", Workers: workers, Elements: 256, Slots: 512, Multicast: multicastTo(group, workers), InKernel: inKernel}
			f := newLabFor(t, workers, worker.Config{Group: group, Threads: 2, Outstanding: 64}, &job)
			stats := f.reduceInts(t, 256*packets, 1)
			for r := range workers {
				if got, least := f.heard[r].Load(), packets-stats[r].Resent; got < least {
					t.Errorf("rank %d: %d results came by the group, %d at least should", r, got, least)
				}
			}
			f.reduceFloats(t, 100_000, 2)
			if !inKernel {
				if err := f.nic.Impair("w1", dataplane.Impairment{EgressLoss: 0.1, Seed: 3}); err != nil {
					t.Fatal(err)
				}
				if stats := f.reduceInts(t, 256*packets, 3); stats[1].Resent == 0 {
					t.Errorf("nothing was asked for again at 10 %% loss: %+v", stats[1])
				}
			}
			snap := f.nic.Snapshot()
			if inKernel {
				var summed uint64
				for i := range snap.Ports {
					summed += snap.Ports[i].Steering["summed"]
				}
				if summed < (workers-1)*packets {
					t.Errorf("%d frames were added in the kernel", summed)
				}
			}
		})
	}
}

// A group that cannot be joined ends Join, and leaves nothing open.
func TestGroupCannotBeJoined(t *testing.T) {
	why := errors.New("no such network")
	opened := 0
	_, err := worker.Join(t.Context(), worker.Config{
		Workers: 2, IP: inet.Addr{127, 0, 0, 1}, NICIP: inet.Addr{127, 0, 0, 1}, Port: 40801, Threads: 2, Group: group,
		ListenGroup: func(_, nic datagram.Endpoint, room int) (datagram.Transport, error) {
			if opened++; opened == 2 {
				return nil, why
			}
			return datagram.NewFrames(dataplane.NewMemPort("none"), datagram.Endpoint{}, nic, room), nil
		},
	})
	if !errors.Is(err, why) || opened != 2 {
		t.Errorf("%v, %d opened", err, opened)
	}
}
