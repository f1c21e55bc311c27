package collective

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"gradnic/aggregation"
	"gradnic/dataplane"
	"gradnic/internal/netlab"
	"gradnic/wire/inet"
	wire "gradnic/wire/native"
	"gradnic/worker/native"
)

// Link is one kind of link that every worker is attached by.
type Link struct {
	Rate uint64 // bit/s of Ethernet frames without preamble and FCS, as tbf counts
	MTU  int    // bytes of layer 3
}

func (l Link) String() string {
	if l.Rate%1e9 == 0 {
		return fmt.Sprintf("%dGbit", l.Rate/1e9)
	}
	return fmt.Sprintf("%dMbit", l.Rate/1e6)
}

// elements is how many float32 a native packet carries on the link: the most that the MTU takes, in whole cache lines.
func (l Link) elements() int { return (l.MTU - inet.IPv4Len - inet.UDPLen - wire.HeaderLen) / 64 * 16 }

// Allowance is the payload in bytes per second that the link carries one way.
func (l Link) Allowance() float64 {
	payload := float64(4 * l.elements())
	return float64(l.Rate) / 8 * payload / (payload + wire.ValuesOffset)
}

const (
	nicIface    = "p"    // of the NIC's ports, with the rank behind it
	workerIface = "eth0" // of each worker
)

var (
	nicMAC = inet.MAC{0x06, 0, 0, 0, 0, 0xfe}
	nicIP  = inet.Addr{10, 60, 0, 254}
)

func workerIP(rank int) inet.Addr { return inet.Addr{10, 60, 0, byte(rank + 1)} }

// star is workers in namespaces of their own, each behind a limited link, with the other ends all in one namespace.
type star struct {
	lab     *netlab.Lab
	centre  *netlab.NS
	workers []*netlab.NS
	link    Link
}

func newStar(workers int, link Link) (_ *star, err error) {
	lab, err := netlab.New("gnreduce")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, lab.Close())
		}
	}()
	s := &star{lab: lab, link: link}
	if s.centre, err = lab.Namespace("centre"); err != nil {
		return nil, err
	}
	for i := range workers {
		ns, err := lab.Namespace(fmt.Sprint("w", i))
		if err != nil {
			return nil, err
		}
		s.workers = append(s.workers, ns)
		err = lab.LimitedVeth(
			netlab.End{NS: ns, Name: workerIface, Addr: workerIP(i).String() + "/24", MTU: link.MTU},
			netlab.End{NS: s.centre, Name: fmt.Sprint(nicIface, i), MTU: link.MTU},
			link.Rate)
		if err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Close removes the namespaces and with them the links.
func (s *star) Close() error { return s.lab.Close() }

// nic is gradnic at the centre of the star, with one native job.
type nic struct {
	n       *dataplane.NIC
	workers []*native.Worker
}

// startNIC starts the NIC on all ports of the centre and joins every worker.
func (s *star) startNIC(ctx context.Context) (_ *nic, err error) {
	var ports []dataplane.PortSpec
	members := make([]dataplane.WorkerSpec, len(s.workers))
	for i, ns := range s.workers {
		ports = append(ports, dataplane.XDPPort{Interface: fmt.Sprint(nicIface, i), Namespace: s.centre.Do})
		_, mac, err := ns.Interface(workerIface)
		if err != nil {
			return nil, err
		}
		members[i] = dataplane.WorkerSpec{Rank: i, MAC: inet.MAC(mac), IP: workerIP(i), Port: -1}
	}
	cfg := dataplane.Config{MAC: nicMAC, IP: nicIP}
	if s.link.MTU > 1500 {
		cfg.ChunkSize = 4096
	}
	k := &nic{}
	if k.n, err = dataplane.New(cfg, ports...); err != nil {
		return nil, err
	}
	if err := k.n.Start(ctx); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, k.Close())
		}
	}()
	err = k.n.InstallJob(dataplane.JobSpec{
		Name: "bench", Protocol: dataplane.ProtocolNative, Workers: len(members), Elements: s.link.elements(), Slots: 1024,
		Members: members, Native: &dataplane.NativeSpec{Type: aggregation.Float32},
	})
	if err != nil {
		return nil, err
	}
	k.workers = make([]*native.Worker, len(members))
	err = each(len(members), func(i int) error {
		// Segments suit this link: native XDP at its other end makes the kernel cut them before.
		cfg := native.Config{Rank: i, NIC: nicIP, IP: workerIP(i), Segments: true}
		err := s.workers[i].Do(func() (err error) {
			ip := workerIP(i)
			cfg.Conn, err = net.ListenUDP("udp4", &net.UDPAddr{IP: ip[:]})
			return err
		})
		if err != nil {
			return err
		}
		k.workers[i], err = native.Join(ctx, cfg)
		return err
	})
	return k, err
}

// allReduce sums n float32 of every worker, once, and returns how long the slowest took. The sums are checked: rank i
// contributes i+1 at even places and -(i+1) at odd ones.
func (k *nic) allReduce(ctx context.Context, n int) (time.Duration, error) {
	w := len(k.workers)
	total := float32(w*(w+1)) / 2
	elapsed := make([]time.Duration, w)
	src, dst := make([][]float32, w), make([][]float32, w)
	for i := range w {
		src[i], dst[i] = make([]float32, n), make([]float32, n)
		for j := range n {
			src[i][j] = float32(i+1) * float32(1-2*(j&1))
		}
	}
	err := each(w, func(i int) error {
		if _, err := native.Barrier(ctx, k.workers[i]); err != nil {
			return err
		}
		stats, err := native.AllReduce(ctx, k.workers[i], dst[i], src[i])
		elapsed[i] = stats.Elapsed
		return err
	})
	if err != nil {
		return 0, err
	}
	var slowest time.Duration
	for i := range w {
		slowest = max(slowest, elapsed[i])
		for j, v := range dst[i] {
			if want := total * float32(1-2*(j&1)); v != want {
				return 0, fmt.Errorf("worker %d: element %d is %v, want %v", i, j, v, want)
			}
		}
	}
	return slowest, nil
}

// Close ends the workers and the NIC, and checks the NIC's accounts.
func (k *nic) Close() error {
	var errs []error
	for _, w := range k.workers {
		if w != nil {
			errs = append(errs, w.Close())
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	errs = append(errs, k.n.Stop(ctx))
	s := k.n.Snapshot()
	return errors.Join(append(errs, s.Check())...)
}

// each runs f for every rank at once and returns what failed.
func each(n int, f func(rank int) error) error {
	errs := make(chan error, n)
	for i := range n {
		go func() {
			err := f(i)
			if err != nil {
				err = fmt.Errorf("rank %d: %w", i, err)
			}
			errs <- err
		}()
	}
	var all []error
	for range n {
		all = append(all, <-errs)
	}
	return errors.Join(all...)
}
