package collective

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"gradnic/aggregation"
	"gradnic/dataplane"
	"gradnic/internal/netlab"
	"gradnic/wire/inet"
	wire "gradnic/wire/native"
	"gradnic/worker/native"
)

// Link is one kind of link that every worker is attached by.
type Link struct {
	Rate uint64 // bit/s of Ethernet frames without preamble and FCS, as tbf counts; 0: a plain veth pair, as fast as the CPU
	MTU  int    // bytes of layer 3
}

func (l Link) String() string {
	if l.Rate == 0 {
		return "unlimited"
	}
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
	loss    float64 // probability that the NIC loses a frame, at each port and in each direction
}

// impair has the NIC lose frames.
func (s *star) impair(n *dataplane.NIC) error {
	if s.loss == 0 {
		return nil
	}
	for i := range s.workers {
		// Each port draws numbers of its own.
		if err := n.Impair(fmt.Sprint(nicIface, i), dataplane.Impairment{IngressLoss: s.loss, EgressLoss: s.loss, Seed: uint64(i) + 1}); err != nil {
			return err
		}
	}
	return nil
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
		a := netlab.End{NS: ns, Name: workerIface, Addr: workerIP(i).String() + "/24", MTU: link.MTU}
		b := netlab.End{NS: s.centre, Name: fmt.Sprint(nicIface, i), MTU: link.MTU}
		if link.Rate > 0 {
			err = lab.LimitedVeth(a, b, link.Rate)
		} else {
			err = lab.Veth(a, b)
		}
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
func (s *star) startNIC(ctx context.Context, codecName string) (_ *nic, err error) {
	ports, members, err := s.members()
	if err != nil {
		return nil, err
	}
	cfg := dataplane.Config{MAC: nicMAC, IP: nicIP, ChunkSize: s.chunk()}
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
	if err := s.impair(k.n); err != nil {
		return nil, err
	}
	spec := &dataplane.NativeSpec{ID: 1, Type: aggregation.Float32, Codec: codecName}
	elements := s.link.elements()
	if codecName != "" {
		elements = spec.FitElements(len(members), s.link.MTU-inet.IPv4Len-inet.UDPLen-wire.HeaderLen)
	}
	k.workers, err = s.join(ctx, k.n, dataplane.JobSpec{Name: "bench", Elements: elements, Members: members, Native: spec})
	return k, err
}

// join installs a job of all workers, whose native number is given, and brings them together. The workers are there also with
// an error, as far as they came.
func (s *star) join(ctx context.Context, n *dataplane.NIC, job dataplane.JobSpec) ([]*native.Worker, error) {
	job.Protocol, job.Workers, job.Slots = dataplane.ProtocolNative, len(s.workers), 1024
	if err := n.InstallJob(job); err != nil {
		return nil, err
	}
	workers := make([]*native.Worker, len(s.workers))
	return workers, each(len(s.workers), func(i int) error {
		// Segments suit this link: native XDP at its other end makes the kernel cut them before.
		cfg := native.Config{Rank: i, Job: job.Native.ID, NIC: nicIP, IP: workerIP(i), Segments: true}
		err := s.workers[i].Do(func() (err error) {
			ip := workerIP(i)
			cfg.Conn, err = net.ListenUDP("udp4", &net.UDPAddr{IP: ip[:]})
			return err
		})
		if err != nil {
			return err
		}
		workers[i], err = native.Join(ctx, cfg)
		return err
	})
}

// allReduce sums n float32 of every worker, once, and returns how long the slowest took and the processor time of NIC and
// workers meanwhile, in seconds. A wrong sum is an error.
func (k *nic) allReduce(ctx context.Context, n int) (slowest time.Duration, cpu float64, err error) {
	var (
		mu         sync.Mutex
		begin, end float64
	)
	slowest, wrong, err := reduceAll(len(k.workers), n, false, exact, func(rank int, dst, src []float32) (time.Duration, error) {
		mu.Lock()
		if begin == 0 { // all arrays are filled
			begin = cpuSeconds(unix.RUSAGE_SELF)
		}
		mu.Unlock()
		d, err := k.one(ctx, rank, dst, src)
		mu.Lock()
		end = cpuSeconds(unix.RUSAGE_SELF) // the last one's remains; no array is checked yet
		mu.Unlock()
		return d, err
	})
	if err == nil && wrong != 0 {
		err = fmt.Errorf("%d wrong elements", wrong)
	}
	return slowest, end - begin, err
}

// reduce is one all-reduce, and how many elements are wrong at all workers together.
func (k *nic) reduce(ctx context.Context, n int, inPlace bool, tolerance float64) (time.Duration, int64, error) {
	return reduceAll(len(k.workers), n, inPlace, tolerance, func(rank int, dst, src []float32) (time.Duration, error) {
		return k.one(ctx, rank, dst, src)
	})
}

// one is a rank's part of an all-reduce, after a barrier.
func (k *nic) one(ctx context.Context, rank int, dst, src []float32) (time.Duration, error) {
	if _, err := native.Barrier(ctx, k.workers[rank]); err != nil {
		return 0, err
	}
	stats, err := native.AllReduce(ctx, k.workers[rank], dst, src)
	return stats.Elapsed, err
}

// exact is the tolerance of transports that change no number: the sums are of small integers.
const exact = 0

// reduceAll runs one all-reduce of n float32 at all ranks at once, and returns the time of the slowest and how many
// elements are wrong: rank i contributes i+1 at even places and -(i+1) at odd ones, and a sum may be off by the share
// tolerance of its size.
func reduceAll(ranks, n int, inPlace bool, tolerance float64, one func(rank int, dst, src []float32) (time.Duration, error)) (time.Duration, int64, error) {
	total := float64(ranks*(ranks+1)) / 2
	elapsed := make([]time.Duration, ranks)
	src, dst := make([][]float32, ranks), make([][]float32, ranks)
	for i := range ranks {
		src[i] = make([]float32, n)
		dst[i] = src[i]
		if !inPlace {
			// What has no result is seen, and the pages are there: a training uses its arrays again.
			dst[i] = make([]float32, n)
			for j := range dst[i] {
				dst[i][j] = float32(math.NaN())
			}
		}
		for j := range n {
			src[i][j] = float32(i+1) * float32(1-2*(j&1))
		}
	}
	err := each(ranks, func(i int) (err error) {
		elapsed[i], err = one(i, dst[i], src[i])
		return err
	})
	if err != nil {
		return 0, 0, err
	}
	var (
		slowest time.Duration
		wrong   int64
	)
	for i := range ranks {
		slowest = max(slowest, elapsed[i])
		for j, v := range dst[i] {
			if off := math.Abs(float64(v) - total*float64(1-2*(j&1))); !(off <= tolerance*total) {
				wrong++
			}
		}
	}
	return slowest, wrong, nil
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
