// Package daemon is a NIC with its doors, from start to stop: what `gradnic run`
// runs.
//
// Doors are opened first and answered last, so that an address that is taken is
// known before any netdev is touched, and nobody is answered by a NIC that does
// not run. Stopping goes the other way: doors shut, then the NIC drains and
// leaves its netdevs as it found them.
package daemon

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"gradnic/control"
	"gradnic/control/metrics"
	"gradnic/control/store"
	"gradnic/control/switchml"
	"gradnic/dataplane"
	"gradnic/internal/privilege"
)

// leaseTick is how often leases are looked at: half of the shortest one.
const leaseTick = control.MinLease / 2

// DefaultStopTimeout is how long stopping may take.
const DefaultStopTimeout = 5 * time.Second

// Options configure a daemon.
type Options struct {
	NIC   dataplane.Config     // Logger is filled in from below when nil
	Ports []dataplane.PortSpec // at least one
	// API is where the API answers, as control.SplitAddress takes it; empty: nowhere.
	API string
	// SwitchML is HOST:PORT of the SwitchML controller; without a port
	// switchml.DefaultPort; unix:PATH for workers on this machine that have no
	// network to it; several are separated by commas, so that jobs of the same size
	// each have one of their own; empty: off.
	SwitchML string
	// SwitchMLSlots is the pool of a SwitchML session; 0: switchml.DefaultSlots.
	SwitchMLSlots int
	// TLS is where the API answers those who have certificates, beside API.
	TLS TLS
	// Limits are what jobs may take; zero: as much as there is.
	Limits control.Limits
	// Store is the file that keeps the API's jobs over restarts; empty: they end with the process.
	Store string
	// Metrics is HOST:PORT, or unix:PATH, where Prometheus and people with a browser
	// find the NIC; empty: off. Pprof shows Go's profiles there too.
	Metrics string
	Pprof   bool
	// SwitchMLWorkers are the only ones that may be in a session; empty: anybody.
	SwitchMLWorkers []switchml.Worker
	// SwitchMLInKernel has the steering programs add up what sessions' workers send; switchml.Options.InKernel.
	SwitchMLInKernel bool
	// SwitchMLBegun is called when a session begins, before its first worker has an answer; nil: nothing.
	SwitchMLBegun func()
	// StopTimeout bounds stopping; 0: DefaultStopTimeout.
	StopTimeout time.Duration
	Version     string
	Logger      *slog.Logger // nil discards
	// Drop is what the process gives up once everything is open. privilege.All turns healing off.
	Drop privilege.Level
	// Ready is called once when everything answers; nil: nothing.
	Ready func(Status) error
	// Begin, if not nil, is handed the NIC before it starts, to add a function that another package brings.
	Begin func(*dataplane.NIC) (Function, error)
	// Reload brings settings that change while it runs; nil: none do.
	Reload <-chan Settings
}

// Function is what Options.Begin has added.
type Function struct {
	Close      func() error           // called before the NIC stops
	Collectors []prometheus.Collector // of its own metrics
}

// Settings are the options that change while a daemon runs.
type Settings struct {
	StopTimeout time.Duration  // as in Options
	Limits      control.Limits // as in Options
	TLS         *tls.Config    // of the TLS door's connections to come, as TLS.Read makes it; nil: as it is
}

// Settings are those of the options that change while a daemon runs.
func (o Options) Settings() Settings {
	return Settings{StopTimeout: o.StopTimeout, Limits: o.Limits, TLS: o.TLS.Config}
}

func (o *Options) apply(s Settings) {
	o.StopTimeout, o.Limits = s.StopTimeout, s.Limits
	if o.StopTimeout <= 0 {
		o.StopTimeout = DefaultStopTimeout
	}
}

// checkAPI refuses TCP, where nobody would be asked who they are.
func checkAPI(address string) error {
	if address == "" {
		return nil
	}
	network, _, err := control.SplitAddress(address)
	if err == nil && network != "unix" {
		err = fmt.Errorf("address %s: on TCP the API asks for certificates: give the address as tls, with tls-cert, tls-key and tls-ca", address)
	}
	if err != nil {
		return fmt.Errorf("API: %w", err)
	}
	return nil
}

// Status is what runs, when it is ready.
type Status struct {
	MAC, IP       string
	Ports         []dataplane.PortSnapshot
	Lanes         int
	API, SwitchML net.Addr // nil: off
	TLS, Metrics  net.Addr // nil: off
	// MoreSwitchML are the other addresses of the SwitchML controller.
	MoreSwitchML []net.Addr
}

// Line is one line of name=value for people and scripts: "ready ip=10.50.0.254
// mac=... lanes=1 port=veth0:xdp-native api=unix:/run/gradnic/api.sock".
func (s Status) Line() string {
	var b strings.Builder
	fmt.Fprintf(&b, "ready ip=%s mac=%s lanes=%d", s.IP, s.MAC, s.Lanes)
	for _, p := range s.Ports {
		fmt.Fprintf(&b, " port=%s:%s", p.Name, p.Kind)
		if p.Mode != "" {
			fmt.Fprintf(&b, "-%s", p.Mode)
		}
		if p.ZeroCopy {
			b.WriteString("-zerocopy")
		}
	}
	if s.API != nil {
		fmt.Fprintf(&b, " api=%s:%s", s.API.Network(), s.API)
	}
	if s.TLS != nil {
		fmt.Fprintf(&b, " tls=%s:%s", s.TLS.Network(), s.TLS)
	}
	if s.SwitchML != nil {
		fmt.Fprintf(&b, " switchml=%s:%s", s.SwitchML.Network(), s.SwitchML)
	}
	for _, a := range s.MoreSwitchML {
		fmt.Fprintf(&b, " switchml=%s:%s", a.Network(), a)
	}
	if s.Metrics != nil {
		fmt.Fprintf(&b, " metrics=%s:%s", s.Metrics.Network(), s.Metrics)
	}
	return b.String()
}

// Run starts everything, waits for ctx to end or a door to fail, and stops. It
// returns nil only when stopping was clean and within its time.
func Run(ctx context.Context, o Options) (err error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.NIC.Logger == nil {
		o.NIC.Logger = o.Logger
	}
	o.apply(o.Settings())
	o.NIC.NoHealing = o.NIC.NoHealing || o.Drop == privilege.All
	nic, err := dataplane.New(o.NIC, o.Ports...)
	if err != nil {
		return err
	}
	var function Function
	if o.Begin != nil {
		if function, err = o.Begin(nic); err != nil {
			return err
		}
	}
	doors, err := openDoors(ctx, nic, o, function.Collectors)
	if err != nil {
		return errors.Join(err, function.close())
	}
	defer func() {
		err = errors.Join(err, function.close())
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), o.StopTimeout)
		defer cancel()
		err = errors.Join(err, stopAll(stop, doors, nic, o.StopTimeout))
	}()
	probes := probe(&o)
	defer probes.close()
	if err := nic.Start(ctx); err != nil {
		return err
	}
	if err := drop(o); err != nil {
		return err
	}
	failed := doors.answer()
	if o.Ready != nil {
		if err := o.Ready(statusOf(nic, doors)); err != nil {
			return err
		}
	}
	leases := time.NewTicker(leaseTick)
	defer leases.Stop()
	answered := time.After(probeTime)
	for {
		select {
		case <-answered:
			probes.report(&o)
		case now := <-leases.C:
			doors.api.Jobs().Expire(now)
			doors.api.Jobs().Tend()
		case <-ctx.Done():
			o.Logger.Info("stopping", "why", context.Cause(ctx))
			return nil
		case err := <-failed:
			return err
		case s := <-o.Reload:
			o.apply(s)
			doors.api.Jobs().SetLimits(o.Limits)
			doors.api.SetTLS(s.TLS)
		}
	}
}

func (f Function) close() error {
	if f.Close == nil {
		return nil
	}
	return f.Close()
}

// drop gives up what is not needed any more. A binary with cgo cannot: that is an error only where it was to give up all.
func drop(o Options) error {
	err := privilege.Drop(o.Drop)
	if errors.Is(err, privilege.ErrCgo) && o.Drop != privilege.All {
		o.Logger.Warn("all capabilities are kept", "err", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("drop capabilities (%v): %w", o.Drop, err)
	}
	return nil
}

func statusOf(nic *dataplane.NIC, d *doors) Status {
	snap, cfg := nic.Snapshot(), nic.Config()
	s := Status{MAC: cfg.MAC.String(), IP: cfg.IP.String(), Ports: snap.Ports, Lanes: len(snap.Lanes)}
	if d.apiListener != nil {
		s.API = d.apiListener.Addr()
	}
	for i, l := range d.switchmlListeners {
		if i == 0 {
			s.SwitchML = l.Addr()
			continue
		}
		s.MoreSwitchML = append(s.MoreSwitchML, l.Addr())
	}
	if d.tlsListener != nil {
		s.TLS = d.tlsListener.Addr()
	}
	if d.metricsListener != nil {
		s.Metrics = d.metricsListener.Addr()
	}
	return s
}

// stopAll shuts the doors and stops the NIC. It does not outlive ctx, even if the
// NIC would: the process ends, and the kernel takes sockets and programs with it.
func stopAll(ctx context.Context, d *doors, nic *dataplane.NIC, limit time.Duration) error {
	done := make(chan error, 1)
	go func() {
		d.shut(ctx)
		done <- nic.Stop(ctx)
	}()
	select {
	case err := <-done:
		if err != nil {
			return fmt.Errorf("stop: %w", err)
		}
		return nil
	case <-ctx.Done():
	}
	// Stop may have been at its end just now.
	select {
	case err := <-done:
		return err
	case <-time.After(100 * time.Millisecond):
		return fmt.Errorf("stop: not done within %v: the process ends without the rest", limit)
	}
}

// doors are the servers and what they listen on.
type doors struct {
	api               *control.Server
	apiListener       net.Listener
	tlsListener       net.Listener
	switchml          *switchml.Server
	switchmlListeners []net.Listener
	metrics           *metrics.Server
	metricsListener   net.Listener
	store             *store.Store
	serving           sync.WaitGroup
}

func openDoors(ctx context.Context, nic *dataplane.NIC, o Options, own []prometheus.Collector) (_ *doors, err error) {
	d := &doors{}
	defer func() {
		if err != nil {
			d.shut(ctx)
		}
	}()
	if o.Store != "" {
		if d.store, err = store.Open(o.Store); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(o.TLS.check(), o.checkSessions(nic.Snapshot().Ports)); err != nil {
		return nil, err
	}
	if o.TLS.Config == nil {
		if err := o.TLS.Read(); err != nil {
			return nil, err
		}
	}
	if d.api, err = control.New(control.Options{NIC: nic, Store: d.store, TLS: o.TLS.Config, Limits: o.Limits, Version: o.Version, Logger: o.Logger}); err != nil {
		return nil, err
	}
	if err := checkAPI(o.API); err != nil {
		return nil, err
	}
	if o.TLS.Listen != "" {
		if d.tlsListener, err = o.TLS.listen(ctx); err != nil {
			return nil, err
		}
	}
	if o.API != "" {
		if d.apiListener, err = control.Listen(ctx, o.API); err != nil {
			return nil, fmt.Errorf("API: %w", err)
		}
	}
	if o.SwitchML != "" {
		d.switchml, err = switchml.New(switchml.Options{Jobs: d.api.Jobs(), Slots: o.SwitchMLSlots, Workers: o.SwitchMLWorkers, InKernel: o.SwitchMLInKernel, Begun: o.SwitchMLBegun, Logger: o.Logger})
		if err != nil {
			return nil, err
		}
		for _, address := range switchMLAddresses(o.SwitchML) {
			l, err := listenSwitchML(ctx, address)
			if err != nil {
				return nil, fmt.Errorf("SwitchML controller: %w", err)
			}
			d.switchmlListeners = append(d.switchmlListeners, l)
		}
	}
	if o.Metrics != "" {
		if d.metrics, err = metrics.New(metrics.Options{Server: d.api, Pprof: o.Pprof, Collectors: own, Logger: o.Logger}); err != nil {
			return nil, err
		}
		if d.metricsListener, err = listenMetrics(ctx, o.Metrics); err != nil {
			return nil, fmt.Errorf("metrics: %w", err)
		}
	}
	return d, nil
}

// listenMetrics opens HOST:PORT or unix:PATH.
func listenMetrics(ctx context.Context, address string) (net.Listener, error) {
	if !strings.HasPrefix(address, "unix:") {
		if err := checkMetrics(address); err != nil {
			return nil, err
		}
		address = "tcp://" + address
	}
	return control.Listen(ctx, address)
}

func checkMetrics(address string) error {
	if strings.HasPrefix(address, "unix:") {
		return nil
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil || port == "" {
		return fmt.Errorf("address %q: write HOST:PORT or unix:PATH", address)
	}
	return checkPort(address, port)
}

// checkPort refuses a TCP port that is neither a number nor the name of a service.
func checkPort(address, port string) error {
	if _, err := net.LookupPort("tcp", port); err != nil {
		return fmt.Errorf("address %q: the port is not a number from 0 to 65535", address)
	}
	return nil
}

// switchMLAddresses are the addresses of the controller; none: it is off.
func switchMLAddresses(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, ",")
}

func listenSwitchML(ctx context.Context, address string) (net.Listener, error) {
	if strings.HasPrefix(address, "unix:") {
		return control.Listen(ctx, address)
	}
	address, err := switchMLAddress(address)
	if err != nil {
		return nil, err
	}
	return control.Listen(ctx, "tcp://"+address)
}

// switchMLAddress adds the port that clients expect where none is given.
func switchMLAddress(s string) (string, error) {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		host, port = strings.Trim(s, "[]"), strconv.Itoa(switchml.DefaultPort)
		if strings.ContainsAny(host, "/ ") || strings.Count(host, ":") == 1 {
			return "", fmt.Errorf("address %q: write HOST, HOST:PORT or unix:PATH", s)
		}
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return "", fmt.Errorf("address %q: the port is not a number from 0 to 65535", s)
	}
	return net.JoinHostPort(host, port), nil
}

// answer starts the servers; the channel gives the first error of one.
func (d *doors) answer() <-chan error {
	failed := make(chan error, 3+len(d.switchmlListeners))
	serve := func(f func(net.Listener) error, l net.Listener) {
		d.serving.Add(1)
		go func() {
			defer d.serving.Done()
			if err := f(l); err != nil {
				failed <- err
			}
		}()
	}
	if d.apiListener != nil {
		serve(d.api.Serve, d.apiListener)
	}
	if d.tlsListener != nil {
		serve(d.api.Serve, d.tlsListener)
	}
	for _, l := range d.switchmlListeners {
		serve(d.switchml.Serve, l)
	}
	if d.metricsListener != nil {
		serve(d.metrics.Serve, d.metricsListener)
	}
	return failed
}

// shut stops the servers and closes what they listened on, served or not.
func (d *doors) shut(ctx context.Context) {
	if d.switchml != nil {
		d.switchml.Stop()
	}
	if d.metrics != nil {
		d.metrics.Stop(ctx)
	}
	if d.api != nil {
		d.api.Stop(ctx)
	}
	for _, l := range append([]net.Listener{d.apiListener, d.tlsListener, d.metricsListener}, d.switchmlListeners...) {
		if l != nil {
			_ = l.Close() // closed already when it was served
		}
	}
	d.serving.Wait()
	if d.store != nil {
		_ = d.store.Close() // what was acknowledged is on the disk
	}
}
