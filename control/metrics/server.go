package metrics

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"gradnic/control"
)

// Options configure a Server.
type Options struct {
	Server *control.Server // required
	// Pprof adds /debug/pprof/: who reaches it can slow the process down and read
	// what it does, so it is off unless asked for.
	Pprof bool
	// Collectors are of functions that run on the NIC beside what Server tells.
	Collectors []prometheus.Collector
	Logger     *slog.Logger // nil discards
}

// Server answers HTTP at the metrics address: /metrics for Prometheus, /healthz,
// and a status page for people at /. It only reads.
type Server struct {
	http *http.Server
}

// New makes the server. It serves nothing yet.
func New(o Options) (*Server, error) {
	if o.Server == nil {
		return nil, errors.New("metrics: no control plane")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	registry := prometheus.NewRegistry()
	for _, c := range append([]prometheus.Collector{
		NewCollector(o.Server),
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	}, o.Collectors...) {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("metrics: %w", err)
		}
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		ErrorLog:            slog.NewLogLogger(o.Logger.Handler(), slog.LevelError),
		MaxRequestsInFlight: 4, Timeout: 30 * time.Second,
	}))
	mux.HandleFunc("GET /{$}", servePage(o.Server))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	if o.Pprof {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	return &Server{http: &http.Server{
		Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, IdleTimeout: time.Minute,
		MaxHeaderBytes: 16 << 10, ErrorLog: slog.NewLogLogger(o.Logger.Handler(), slog.LevelDebug),
	}}, nil
}

// Serve answers on l until Stop, and closes it.
func (s *Server) Serve(l net.Listener) error {
	if err := s.http.Serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve metrics on %v: %w", l.Addr(), err)
	}
	return nil
}

// Stop lets answers finish until ctx ends.
func (s *Server) Stop(ctx context.Context) {
	if s.http.Shutdown(ctx) != nil {
		_ = s.http.Close() // the listeners' errors say nothing that helps now
	}
}
