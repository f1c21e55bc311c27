package peers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gradnic/dataplane"
	"gradnic/wire/inet"
	"gradnic/xdp"
)

// AggregateWorkers and AggregateSlots are the job that the aggregate task installs; the generator plays its workers.
const (
	AggregateWorkers = 8
	AggregateSlots   = 256
)

// lane is the whole of gradnic: a NIC with one lane on one netdev.
type lane struct {
	nic      *dataplane.NIC
	on       Target
	inKernel bool
}

func startLane(on Target) (Peer, error) { return newLane(on, false) }

// startInKernel is the NIC whose port's function, or whose job's sums, the steering program carries out.
func startInKernel(on Target) (Peer, error) { return newLane(on, true) }

func newLane(on Target, inKernel bool) (Peer, error) {
	nic, err := dataplane.New(dataplane.Config{
		MAC: nicMAC, IP: nicIP, CPUs: []int{on.CPU}, Wait: dataplane.Busy,
	}, dataplane.XDPPort{Interface: on.Interface, Mode: xdp.Native})
	if err != nil {
		return nil, fmt.Errorf("lane: %w", err)
	}
	p := &lane{nic: nic, on: on, inKernel: inKernel}
	if err := nic.Start(context.Background()); err != nil {
		return nil, fmt.Errorf("lane: %w", err)
	}
	switch on.Task {
	case Drop:
		err = nic.SetFunction(on.Interface, dataplane.Function{Kind: dataplane.Sink, InKernel: inKernel})
	case Reflect:
		err = nic.SetFunction(on.Interface, dataplane.Function{Kind: dataplane.Reflect, InKernel: inKernel})
	default:
		job := dataplane.JobSpec{Name: "bench", Workers: AggregateWorkers, Elements: on.Task.elements(), Slots: AggregateSlots, InKernel: inKernel}
		for r := range AggregateWorkers {
			job.Members = append(job.Members, dataplane.WorkerSpec{
				Rank: r, MAC: inet.MAC{2, 0, 0, 0, byte(r + 1), 0}, IP: inet.Addr{10, 50, 0, byte(r + 1)}, Port: -1,
			})
		}
		if on.Task == Multicast64 || on.Task == Multicast256 {
			// The generator's end takes whatever comes: the address only has to be a multicast one.
			job.Multicast = &dataplane.MulticastSpec{MAC: inet.MAC{1, 0, 0x5e, 1, 1, 1}, IP: inet.Addr{239, 1, 1, 1}, Ports: []int{0}}
		}
		err = nic.InstallJob(job)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lane: %w", err), p.release())
	}
	return p, nil
}

func (p *lane) release() error {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	return p.nic.Stop(ctx)
}

func (p *lane) Stop() (Counts, error) {
	err := p.release()
	s := p.nic.Snapshot()
	n := Counts{
		Received: s.Total.Received, Returned: s.Total.Transmitted, Results: s.Total.Results,
		Lost: s.Total.Dropped() + s.Total.ReplicasDropped(), Busy: s.Lanes[0].Time.Busy,
	}
	if p.inKernel {
		by := s.Ports[0].Steering
		if p.on.Task == Reflect {
			n.Returned = by[xdp.Reflected.String()]
		}
		for _, v := range []xdp.Verdict{xdp.Reflected, xdp.Sunk, xdp.Summed, xdp.Repeated} {
			n.Received += by[v.String()]
		}
	}
	return n, errors.Join(err, s.Check())
}
