package control

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"

	apiv1 "gradnic/control/api/v1"
	"gradnic/control/store"
	"gradnic/dataplane"
)

// maxMessage bounds a message of the API in bytes: a list of a thousand jobs fits.
const maxMessage = 16 << 20

// Options configure a Server.
type Options struct {
	NIC *dataplane.NIC // required
	// Version is shown to clients; empty: unknown.
	Version string
	// Store keeps the jobs that the API installs; nil: they end with the process. What is
	// in it is installed by New.
	Store *store.Store
	// Limits are what jobs may take; zero: as much as there is.
	Limits Limits
	// TLS asks callers on TCP for certificates; nil: nobody is served there.
	TLS *tls.Config
	// Now is the clock; nil: time.Now.
	Now func() time.Time
	// Logger takes every change and every failed call; nil discards.
	Logger *slog.Logger
}

// Server is the control plane of one NIC.
type Server struct {
	jobs    *Jobs
	nic     *dataplane.NIC
	options Options
	logger  *slog.Logger
	grpc    *grpc.Server
	health  *health.Server
	ending  chan struct{}              // closed when Stop begins: streams end
	tls     atomic.Pointer[tls.Config] // of the connections to come by TCP; nil: nobody is served there
	once    sync.Once
}

// New makes the control plane of a NIC. It serves nothing yet.
func New(o Options) (*Server, error) {
	if o.NIC == nil {
		return nil, errors.New("control: no NIC")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Version == "" {
		o.Version = "unknown"
	}
	s := &Server{
		jobs:    newJobs(o),
		nic:     o.NIC,
		options: o,
		logger:  o.Logger,
		health:  health.NewServer(),
		ending:  make(chan struct{}),
	}
	if err := s.jobs.restore(); err != nil {
		return nil, err
	}
	var door doorCredentials
	if o.TLS != nil {
		s.tls.Store(o.TLS)
		door.TransportCredentials = credentials.NewTLS(&tls.Config{
			MinVersion:         o.TLS.MinVersion,
			GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return s.tls.Load(), nil },
		})
	}
	s.grpc = grpc.NewServer(
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.MaxConcurrentStreams(128),
		grpc.ConnectionTimeout(10*time.Second),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
		grpc.WaitForHandlers(true),
		grpc.Creds(door),
		grpc.ChainUnaryInterceptor(Guard(o.Logger), authorizeUnary),
		grpc.ChainStreamInterceptor(guardStream(o.Logger), authorizeStream),
	)
	apiv1.RegisterJobServiceServer(s.grpc, &jobService{server: s})
	apiv1.RegisterNICServiceServer(s.grpc, &nicService{server: s})
	apiv1.RegisterSightServiceServer(s.grpc, &sightService{server: s})
	healthpb.RegisterHealthServer(s.grpc, s.health)
	reflection.Register(s.grpc)
	s.setHealth(healthpb.HealthCheckResponse_SERVING)
	return s, nil
}

// NIC is the NIC that this is the control plane of.
func (s *Server) NIC() *dataplane.NIC { return s.nic }

// Version is the program's, as clients see it.
func (s *Server) Version() string { return s.options.Version }

// Jobs is the registry that all doors share.
func (s *Server) Jobs() *Jobs { return s.jobs }

// SetTLS has connections to come by TCP served with another configuration than Options.TLS, renewed certificates for example;
// those that are there stay. It is for a server that was made with one, and ignores nil.
func (s *Server) SetTLS(c *tls.Config) {
	if s.tls.Load() != nil && c != nil {
		s.tls.Store(c)
	}
}

// Serve answers on l until Stop, and closes it. Call it once a listener.
func (s *Server) Serve(l net.Listener) error {
	if err := s.grpc.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("serve the API on %v: %w", l.Addr(), err)
	}
	return nil
}

// Stop ends all listeners and lets calls finish until ctx ends. The data plane
// goes on.
func (s *Server) Stop(ctx context.Context) {
	s.setHealth(healthpb.HealthCheckResponse_NOT_SERVING)
	s.once.Do(func() { close(s.ending) })
	stopGRPC(ctx, s.grpc)
}

// stopGRPC stops a server gracefully until ctx ends, then at once.
func stopGRPC(ctx context.Context, server *grpc.Server) {
	done := make(chan struct{})
	go func() {
		server.GracefulStop()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		server.Stop()
		<-done
	}
}

func (s *Server) setHealth(to healthpb.HealthCheckResponse_ServingStatus) {
	for _, name := range []string{"", apiv1.JobService_ServiceDesc.ServiceName, apiv1.NICService_ServiceDesc.ServiceName, apiv1.SightService_ServiceDesc.ServiceName} {
		s.health.SetServingStatus(name, to)
	}
}

// Guard is an interceptor that turns a panic of one call into that call's error,
// since a bug in showing must not stop the data plane, and logs calls that failed.
func Guard(logger *slog.Logger) grpc.UnaryServerInterceptor {
	q := &quiet{logger: logger}
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
		defer func() {
			if p := recover(); p != nil {
				logger.Error("call panicked", "method", info.FullMethod, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
				resp, err = nil, status.Errorf(codes.Internal, "%s panicked: this is a bug of gradnic, its log has more", info.FullMethod)
			}
		}()
		resp, err = handler(ctx, req)
		if err != nil {
			q.refused(info.FullMethod, err)
		}
		return resp, err
	}
}

// ports returns the names of the NIC's ports by index.
func (s *Server) ports() portNames {
	ports := s.nic.Snapshot().Ports
	names := make(portNames, len(ports))
	for i := range ports {
		names[i] = ports[i].Name
	}
	return names
}
