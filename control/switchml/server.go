package switchml

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"gradnic/control"
	pb "gradnic/control/switchml/switchmlproto"
	"gradnic/dataplane"
	"gradnic/wire/inet"
)

// DefaultPort is the TCP port that clients look for the controller on.
const DefaultPort = 50099

// Defaults of Options.
const (
	DefaultJob   = "switchml"
	DefaultSlots = dataplane.MaxSlots // as the real switch has
	// DefaultSessions at a time, each with a pool of its own.
	DefaultSessions = 16
)

// Options configure a Server.
type Options struct {
	// Jobs is the registry to install sessions in; required.
	Jobs *control.Jobs
	// Job is the name under which the first session appears; empty: DefaultJob. Others that run beside it get a number
	// behind it, from 2.
	Job string
	// Sessions is how many may run at a time; 0: DefaultSessions.
	Sessions int
	// Slots is the pool of a session; 0: DefaultSlots.
	Slots int
	// Workers are the only ones that may be in a session; empty: anybody who reaches the port.
	Workers []Worker
	// InKernel has the steering programs add up what sessions' workers send. On a NIC of several ports Workers must be all
	// who may come, each with its port.
	InKernel bool
	// Begun is called when a session begins, before its first worker has an answer; nil: nothing.
	Begun func()
	// Logger takes each session and each refusal with its reason; nil discards.
	Logger *slog.Logger
}

// Worker is who a worker is: the source of its frames, and the name of the NIC's port that they come in by; without
// one it is learned.
type Worker struct {
	MAC  inet.MAC
	IP   inet.Addr
	Port string
}

// ParseWorker reads MAC,IP or MAC,IP,PORT.
func ParseWorker(s string) (w Worker, err error) {
	parts := strings.Split(s, ",")
	if len(parts) < 2 || len(parts) > 3 {
		return w, fmt.Errorf("worker %q: write MAC,IP or MAC,IP,PORT", s)
	}
	if w.MAC, err = inet.ParseMAC(parts[0]); err != nil {
		return w, fmt.Errorf("worker %q: %w", s, err)
	}
	if w.IP, err = inet.ParseAddr(parts[1]); err != nil {
		return w, fmt.Errorf("worker %q: %w", s, err)
	}
	if len(parts) == 3 {
		if w.Port = parts[2]; w.Port == "" {
			return w, fmt.Errorf("worker %q: its port has no name", s)
		}
	}
	return w, nil
}

// Check refuses workers at ports that the NIC does not have, and jobs in the kernel whose workers could be at any of
// several ports.
func Check(ports []string, workers []Worker, inKernel bool) error {
	for _, w := range workers {
		if w.Port != "" && !slices.Contains(ports, w.Port) {
			return fmt.Errorf("worker %v,%v: %q is not a port of the NIC: its ports are %v", w.MAC, w.IP, w.Port, ports)
		}
	}
	nowhere := func(w Worker) bool { return w.Port == "" }
	if inKernel && len(ports) > 1 && (len(workers) == 0 || slices.ContainsFunc(workers, nowhere)) {
		return fmt.Errorf("sessions in the kernel: it does not learn at which of %v a worker is: name each as MAC,IP,PORT", ports)
	}
	return nil
}

// Server is the controller.
type Server struct {
	pb.UnimplementedSessionServer
	pb.UnimplementedSyncServer
	options  Options
	logger   *slog.Logger
	meetings *meetings
	sessions sessions
	grpc     *grpc.Server
	stop     sync.Once
}

// New makes the controller. It serves nothing yet.
func New(o Options) (*Server, error) {
	if o.Jobs == nil {
		return nil, errors.New("switchml controller: no registry of jobs")
	}
	if o.Job == "" {
		o.Job = DefaultJob
	}
	if o.Sessions == 0 {
		o.Sessions = DefaultSessions
	}
	if o.Slots == 0 {
		o.Slots = DefaultSlots
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if err := Check(o.Jobs.Ports(), o.Workers, o.InKernel); err != nil {
		return nil, fmt.Errorf("switchml controller: %w", err)
	}
	s := &Server{options: o, logger: o.Logger, meetings: newMeetings()}
	s.grpc = grpc.NewServer(
		grpc.MaxRecvMsgSize(64<<10), // 512 queue pairs of an RDMA session are 5 KiB
		grpc.MaxConcurrentStreams(64),
		grpc.ConnectionTimeout(10*time.Second),
		// A host that loses power sends no FIN: ask, so that its rank does not wait for ever.
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		grpc.StatsHandler(watchConnections{epoch: time.Now()}),
		grpc.UnaryInterceptor(control.Guard(o.Logger)),
		grpc.WaitForHandlers(true),
	)
	s.meetings.logger = o.Logger
	o.Jobs.SetPresence(s.present)
	pb.RegisterSessionServer(s.grpc, s)
	pb.RegisterSyncServer(s.grpc, s)
	return s, nil
}

// Serve answers on l until Stop, and closes it. Call it once a listener.
func (s *Server) Serve(l net.Listener) error {
	if err := s.grpc.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("serve the SwitchML controller on %v: %w", l.Addr(), err)
	}
	return nil
}

// Stop sends callers that wait away (Unavailable) and ends all listeners. The
// session's job stays in the data plane.
func (s *Server) Stop() {
	s.stop.Do(s.meetings.close)
	s.grpc.Stop()
}

// Barrier returns when num_workers callers have come.
func (s *Server) Barrier(ctx context.Context, r *pb.BarrierRequest) (*pb.BarrierResponse, error) {
	if err := s.meetings.barrier(ctx, small(r.GetNumWorkers())); err != nil {
		return nil, err
	}
	return &pb.BarrierResponse{}, nil
}

// Broadcast returns root's value; the k-th call of a rank meets the k-th of the others.
func (s *Server) Broadcast(ctx context.Context, r *pb.BroadcastRequest) (*pb.BroadcastResponse, error) {
	v, err := s.meetings.broadcast(ctx, small(r.GetRank()), small(r.GetNumWorkers()), small(r.GetRoot()), r.GetValue())
	if err != nil {
		return nil, err
	}
	connectionOf(ctx).knows(v)
	return &pb.BroadcastResponse{Value: v}, nil
}

// RdmaSession is refused: this NIC speaks SwitchML over UDP only.
func (s *Server) RdmaSession(_ context.Context, r *pb.RdmaSessionRequest) (*pb.RdmaSessionResponse, error) {
	s.logger.Warn("RDMA session refused: not supported", "rank", r.GetRank(), "workers", r.GetNumWorkers())
	return nil, status.Error(codes.Unimplemented,
		"RdmaSession: SwitchML over RDMA is not supported by this NIC: set backend = dpdk in the client's configuration")
}

// small turns a 32-bit field into an int that range checks see as too large when it is.
func small(v uint32) int { return int(min(v, 1<<31-1)) }
