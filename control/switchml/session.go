package switchml

import (
	"context"
	"fmt"
	"slices"

	pb "gradnic/control/switchml/switchmlproto"

	"gradnic/control"
	"gradnic/dataplane"
	"gradnic/wire/inet"
)

// UdpSession sets a worker up. Rank 0's request begins a session, or replaces the one that its worker was in or that
// has ended; the others add themselves to it. A request that can not be served gets an
// all-zero response with status OK, and the log says why.
func (s *Server) UdpSession(ctx context.Context, r *pb.UdpSessionRequest) (*pb.UdpSessionResponse, error) {
	if err := s.join(connectionOf(ctx), r); err != nil {
		s.logger.Warn("session refused", "rank", r.GetRank(), "workers", r.GetNumWorkers(),
			"mac", fmt.Sprintf("%012x", r.GetMac()), "ip", inet.AddrFromUint32(r.GetIpv4()), "why", err)
		return &pb.UdpSessionResponse{}, nil
	}
	mac, ip := s.options.Jobs.Address()
	return &pb.UdpSessionResponse{SessionId: r.GetSessionId(), Mac: mac.Uint64(), Ipv4: ip.Uint32()}, nil
}

// join translates a request into the registry's words.
func (s *Server) join(from *connection, r *pb.UdpSessionRequest) error {
	rank, workers := small(r.GetRank()), small(r.GetNumWorkers())
	if workers < 1 || workers > maxWorkers {
		return fmt.Errorf("num_workers %d: legal are 1 to %d", workers, maxWorkers)
	}
	if rank >= maxWorkers || rank >= workers {
		return fmt.Errorf("rank %d: %d workers have ranks 0 to %d", rank, workers, workers-1)
	}
	elements, err := elementsOf(r.GetPacketSize())
	if err != nil {
		return err
	}
	if r.GetMac()>>48 != 0 {
		return fmt.Errorf("mac %#x has more than 48 bits", r.GetMac())
	}
	worker := dataplane.WorkerSpec{
		Rank: rank,
		MAC:  inet.MACFromUint64(r.GetMac()),
		IP:   inet.AddrFromUint32(r.GetIpv4()),
		Port: -1,
	}
	if allowed := s.options.Workers; len(allowed) > 0 {
		i := slices.IndexFunc(allowed, func(w Worker) bool { return w.MAC == worker.MAC && w.IP == worker.IP })
		if i < 0 {
			return fmt.Errorf("%v %v is not one of the %d workers that may be in a session", worker.MAC, worker.IP, len(allowed))
		}
		worker.Port = slices.Index(s.options.Jobs.Ports(), allowed[i].Port) // -1 without one
	}
	if rank == 0 {
		return s.begin(from, r.GetSessionId(), workers, elements, worker)
	}
	name, err := s.sessions.find(from.where(), r.GetSessionId(), s.options.Job)
	if err != nil {
		return err
	}
	job, err := s.options.Jobs.Get(name)
	if err == nil && job.Origin == control.OriginAPI {
		err = fmt.Errorf("job %s was installed through the API, and is no session", job.Name)
	}
	if err != nil {
		return fmt.Errorf("rank 0 has not begun a session: %w", err)
	}
	if job.Workers != workers {
		return fmt.Errorf("num_workers %d: rank 0 said %d", workers, job.Workers)
	}
	if job.Elements != elements {
		return fmt.Errorf("packet_size %v: rank 0 said %d elements", r.GetPacketSize(), job.Elements)
	}
	created, err := s.options.Jobs.AddWorker(name, worker)
	if err != nil {
		return err
	}
	if !created {
		return fmt.Errorf("rank %d is in the session already: a worker that restarts alone would not know where the others are; restart all", rank)
	}
	s.sessions.joined(name, from)
	s.logger.Info("worker joined", "session", r.GetSessionId(), "job", name, "rank", rank, "mac", worker.MAC, "ip", worker.IP)
	return nil
}

// begin installs a session's job with its rank 0.
func (s *Server) begin(from *connection, id uint64, workers, elements int, worker dataplane.WorkerSpec) error {
	s.sessions.begin.Lock()
	defer s.sessions.begin.Unlock()
	name, err := s.sessions.place(&s.options, worker)
	if err != nil {
		return err
	}
	if err := s.options.Jobs.Replace(dataplane.JobSpec{
		Name: name, Protocol: dataplane.ProtocolSwitchML,
		Workers: workers, Elements: elements, Slots: s.options.Slots, InKernel: s.options.InKernel,
		Members: []dataplane.WorkerSpec{worker},
	}, control.OriginSwitchML); err != nil {
		return err
	}
	if s.options.Begun != nil {
		s.options.Begun()
	}
	s.sessions.put(&session{name: name, door: from.where(), id: id, connections: []*connection{from}})
	s.logger.Info("session begun", "session", id, "job", name, "workers", workers, "elements", elements)
	s.logger.Info("worker joined", "session", id, "job", name, "rank", 0, "mac", worker.MAC, "ip", worker.IP)
	return nil
}

// elementsOf is the number of int32 in a packet of this size. The real switch has
// the other two sizes in its enum and drops their packets.
func elementsOf(size pb.PacketSize) (int, error) {
	switch size {
	case pb.PacketSize_MTU_256:
		return 64, nil
	case pb.PacketSize_MTU_1024:
		return 256, nil
	}
	return 0, fmt.Errorf("packet_size %v: legal are MTU_256 (64 elements) and MTU_1024 (256 elements)", size)
}
