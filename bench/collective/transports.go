package collective

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"gradnic/codec"
	"gradnic/dataplane"
	"gradnic/wire/inet"
	"gradnic/worker"
)

// reducer is a transport that runs in this process: one all-reduce of n float32, the time of its slowest rank, and the
// wrong elements of all ranks.
type reducer interface {
	reduce(ctx context.Context, n int, inPlace bool) (time.Duration, int64, error)
	close() error
}

// lossy is how far off a codec's sum of equal numbers may be: numbers of four bits are within an eighth.
const lossy = 0.13

// Transports names what the table may compare, in its order. "native+CODEC" stands for any codec of package codec.
func Transports() []string {
	return []string{"native", "native+bfp16", "switchml", "udp-ps", "gloo", "mpi"}
}

// start makes the transport of a name over a star of its own. gloo and mpi are programs, not reducers.
func start(ctx context.Context, name string, s *star) (reducer, error) {
	switch {
	case name == "native":
		k, err := s.startNIC(ctx, "")
		if err != nil {
			return nil, err
		}
		return &nativeReducer{k, exact}, nil
	case strings.HasPrefix(name, "native+"):
		k, err := s.startNIC(ctx, strings.TrimPrefix(name, "native+"))
		if err != nil {
			return nil, err
		}
		return &nativeReducer{k, lossy}, nil
	case name == "switchml":
		return startSwitchML(ctx, s)
	case name == "udp-ps":
		return startParameterServer(ctx, s)
	}
	return nil, fmt.Errorf("transport %q: legal are %v, and native+ with any codec", name, Transports())
}

// overNIC tells whether a transport's frames go through gradnic.
func overNIC(name string) bool {
	return name == "native" || name == "switchml" || strings.HasPrefix(name, "native+")
}

// checkTransport refuses names before anything is set up.
func checkTransport(name string) error {
	if c, ok := strings.CutPrefix(name, "native+"); ok {
		if _, err := codec.ByName(c); err != nil {
			return fmt.Errorf("transport %q: %w", name, err)
		}
		return nil
	}
	for _, t := range Transports() {
		if t == name {
			return nil
		}
	}
	return fmt.Errorf("transport %q: legal are %v, and native+ with any codec", name, Transports())
}

type nativeReducer struct {
	k         *nic
	tolerance float64
}

func (n *nativeReducer) reduce(ctx context.Context, count int, inPlace bool) (time.Duration, int64, error) {
	return n.k.reduce(ctx, count, inPlace, n.tolerance)
}

func (n *nativeReducer) close() error { return n.k.Close() }

// switchML is the NIC with a SwitchML job and its workers, each with a UDP socket. The protocol's frames are of 1076
// bytes, whatever the link takes.
type switchML struct {
	n       *dataplane.NIC
	workers []*worker.Worker
}

func startSwitchML(ctx context.Context, s *star) (_ *switchML, err error) {
	ports, members, err := s.members()
	if err != nil {
		return nil, err
	}
	x := &switchML{}
	if x.n, err = dataplane.New(dataplane.Config{MAC: nicMAC, IP: nicIP, ChunkSize: s.chunk()}, ports...); err != nil {
		return nil, err
	}
	if err := x.n.Start(ctx); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, x.close())
		}
	}()
	if err := s.impair(x.n); err != nil {
		return nil, err
	}
	cfg := worker.Config{Workers: len(members), NICMAC: nicMAC, NICIP: nicIP, Elements: 256, Outstanding: 256}
	err = x.n.InstallJob(dataplane.JobSpec{Name: "bench", Workers: len(members), Elements: cfg.Elements, Slots: max(cfg.Slots(), 512), Members: members})
	if err != nil {
		return nil, err
	}
	x.workers = make([]*worker.Worker, len(members))
	return x, each(len(members), func(i int) error {
		cfg := cfg
		cfg.Rank, cfg.IP, cfg.MAC = i, workerIP(i), members[i].MAC
		err := s.workers[i].Do(func() (err error) {
			ip := workerIP(i)
			cfg.Conn, err = net.ListenUDP("udp4", &net.UDPAddr{IP: ip[:], Port: worker.DefaultPort})
			return err
		})
		if err != nil {
			return err
		}
		x.workers[i], err = worker.Join(ctx, cfg)
		return err
	})
}

func (x *switchML) reduce(ctx context.Context, n int, inPlace bool) (time.Duration, int64, error) {
	// The protocol has no barrier: the array is checked, so that ranks that begin earlier wait for the others in it.
	return reduceAll(len(x.workers), n, inPlace, 1e-6, func(rank int, dst, src []float32) (time.Duration, error) {
		begin := time.Now()
		_, err := x.workers[rank].AllReduceFloat32(ctx, dst, src)
		return time.Since(begin), err
	})
}

func (x *switchML) close() error {
	var errs []error
	for _, w := range x.workers {
		if w != nil {
			errs = append(errs, w.Close())
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	errs = append(errs, x.n.Stop(ctx))
	s := x.n.Snapshot()
	return errors.Join(append(errs, s.Check())...)
}

// members are the ports of a NIC at the star's centre, and its workers.
func (s *star) members() ([]dataplane.PortSpec, []dataplane.WorkerSpec, error) {
	var ports []dataplane.PortSpec
	members := make([]dataplane.WorkerSpec, len(s.workers))
	for i, ns := range s.workers {
		ports = append(ports, dataplane.XDPPort{Interface: fmt.Sprint(nicIface, i), Namespace: s.centre.Do})
		_, mac, err := ns.Interface(workerIface)
		if err != nil {
			return nil, nil, err
		}
		members[i] = dataplane.WorkerSpec{Rank: i, MAC: inet.MAC(mac), IP: workerIP(i), Port: -1}
	}
	return ports, members, nil
}

// chunk is the size of the NIC's chunks that the link's frames fit.
func (s *star) chunk() int {
	if s.link.MTU > 1500 {
		return 4096
	}
	return 0
}
