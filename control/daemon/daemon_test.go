package daemon

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"gradnic/control"
	apiv1 "gradnic/control/api/v1"
	"gradnic/control/switchml"
	"gradnic/dataplane"
	"gradnic/internal/privilege"
	"gradnic/wire/inet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func options(t *testing.T) Options {
	t.Helper()
	return Options{
		NIC:      dataplane.Config{MAC: inet.MAC{2, 0x67, 10, 50, 0, 254}, IP: inet.Addr{10, 50, 0, 254}},
		Ports:    []dataplane.PortSpec{dataplane.NewMemPort("mem0")},
		API:      filepath.Join(t.TempDir(), "api.sock"),
		SwitchML: "127.0.0.1:0",
		Metrics:  "127.0.0.1:0",
	}
}

// start runs a daemon until the returned function is called, which gives Run's error.
func start(t *testing.T, o Options) (Status, func() error) {
	t.Helper()
	ready := make(chan Status, 1)
	o.Ready = func(s Status) error { ready <- s; return nil }
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, o) }()
	select {
	case s := <-ready:
		return s, func() error { cancel(); return <-done }
	case err := <-done:
		cancel()
		t.Fatalf("not ready: %v", err)
	case <-time.After(10 * time.Second):
		cancel()
		t.Fatal("not ready in 10 s")
	}
	return Status{}, nil
}

func TestRunFromReadyToStop(t *testing.T) {
	o := options(t)
	s, stop := start(t, o)
	line := s.Line()
	for _, want := range []string{"ready ip=10.50.0.254 mac=02:67:0a:32:00:fe lanes=1 port=mem0:mem", " api=unix:" + o.API, " switchml=tcp:127.0.0.1:"} {
		if !strings.Contains(line, want) {
			t.Errorf("line %q has no %q", line, want)
		}
	}
	c, err := control.Dial(o.API)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.GetNIC(t.Context(), &apiv1.GetNICRequest{}); err != nil {
		t.Error(err)
	}
	if conn, err := net.Dial("tcp", s.SwitchML.String()); err != nil {
		t.Error(err)
	} else {
		conn.Close()
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(o.API); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left behind: %v", err)
	}
	if conn, err := net.Dial("tcp", s.SwitchML.String()); err == nil {
		conn.Close()
		t.Error("the SwitchML port still answers")
	}
	// The next start works at once.
	o.Ports = []dataplane.PortSpec{dataplane.NewMemPort("mem0")}
	_, stop = start(t, o)
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// The SwitchML controller is off unless asked for.
func TestSwitchMLIsOffByDefault(t *testing.T) {
	o := options(t)
	o.SwitchML = ""
	s, stop := start(t, o)
	if s.SwitchML != nil || strings.Contains(s.Line(), "switchml") {
		t.Errorf("it answers on %v", s.SwitchML)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// Workers in a namespace without a network to the controller reach it through the file system.
func TestSwitchMLOnUnixSocket(t *testing.T) {
	o := options(t)
	path := filepath.Join(t.TempDir(), "switchml.sock")
	o.SwitchML = "unix:" + path
	s, stop := start(t, o)
	if !strings.Contains(s.Line(), " switchml=unix:"+path+" ") {
		t.Errorf("line %q", s.Line())
	}
	if conn, err := net.Dial("unix", path); err != nil {
		t.Error(err)
	} else {
		conn.Close()
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// Several addresses: each is one of the ready line's, answers, and is gone with the daemon.
func TestSwitchMLOnSeveralAddresses(t *testing.T) {
	o := options(t)
	path := filepath.Join(t.TempDir(), "switchml.sock")
	o.SwitchML = "127.0.0.1:0,unix:" + path
	s, stop := start(t, o)
	if len(s.MoreSwitchML) != 1 || !strings.Contains(s.Line(), " switchml=tcp:"+s.SwitchML.String()+" switchml=unix:"+path) {
		t.Errorf("line %q", s.Line())
	}
	for _, a := range []net.Addr{s.SwitchML, s.MoreSwitchML[0]} {
		if conn, err := net.Dial(a.Network(), a.String()); err != nil {
			t.Error(err)
		} else {
			conn.Close()
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if conn, err := net.Dial("tcp", s.SwitchML.String()); err == nil {
		conn.Close()
		t.Error("the port still answers")
	}
	o.SwitchML = "127.0.0.1:0,/run/x"
	if err := Check(o); err == nil || !strings.Contains(err.Error(), "SwitchML controller: address") {
		t.Errorf("one of two is wrong: %v", err)
	}
}

// What cannot start says which door or port, and leaves nothing open.
func TestRunFails(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for name, c := range map[string]struct {
		change func(*Options)
		says   string
	}{
		"no port":               {func(o *Options) { o.Ports = nil }, "port"},
		"no address":            {func(o *Options) { o.NIC.IP = inet.Addr{} }, "IPv4"},
		"API is a directory":    {func(o *Options) { o.API = filepath.Dir(o.API) }, "API: socket"},
		"SwitchML is taken":     {func(o *Options) { o.SwitchML = taken.Addr().String() }, "SwitchML controller: listen"},
		"SwitchML is a path":    {func(o *Options) { o.SwitchML = "/run/x" }, "SwitchML controller: address"},
		"metrics is no address": {func(o *Options) { o.Metrics = "x" }, "metrics: address"},
		"no such netdev":        {func(o *Options) { o.Ports = []dataplane.PortSpec{dataplane.XDPPort{Interface: "gradnic-none"}} }, "gradnic-none"},
		"ready line not sent":   {func(o *Options) { o.Ready = func(Status) error { return errors.New("no standard output") } }, "no standard output"},
	} {
		o := options(t)
		c.change(&o)
		err := Run(t.Context(), o)
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
		if _, err := os.Stat(o.API); err == nil && !strings.Contains(name, "directory") {
			t.Errorf("%s: the API's socket is left behind", name)
		}
	}
}

func TestSwitchMLAddress(t *testing.T) {
	for in, want := range map[string]string{
		"10.0.0.1": "10.0.0.1:50099", "10.0.0.1:7": "10.0.0.1:7", ":7": ":7", "::1": "[::1]:50099", "[::1]": "[::1]:50099", "[::1]:7": "[::1]:7", "host": "host:50099",
	} {
		if got, err := switchMLAddress(in); err != nil || got != want {
			t.Errorf("%s: %s, %v, want %s", in, got, err, want)
		}
	}
	for _, in := range []string{"10.0.0.1:x", "10.0.0.1:65536", "/run/x", "a b"} {
		if got, err := switchMLAddress(in); err == nil {
			t.Errorf("%s is %s", in, got)
		}
	}
}

// What no machine could do is said by Check, before anything starts.
func TestAddressesAreChecked(t *testing.T) {
	for says, change := range map[string]func(*Options){
		`metrics: address "127.0.0.1:99999": the port is not`: func(o *Options) { o.Metrics = "127.0.0.1:99999" },
		`TLS: address "127.0.0.1:-1": the port is not`:        func(o *Options) { o.TLS.Listen = "127.0.0.1:-1" },
		`address "10.1.0.1:50099" is there twice`:             func(o *Options) { o.SwitchML = "10.1.0.1,10.1.0.1:50099" },
		`address "unix:/a" is there twice`:                    func(o *Options) { o.SwitchML = "unix:/a,unix:/a" },
		"workers are named, and it is off": func(o *Options) {
			o.SwitchML, o.SwitchMLWorkers = "", []switchml.Worker{{MAC: inet.MAC{2}, IP: inet.Addr{10, 50, 0, 1}}}
		},
		"pprof: it is shown where the metrics are": func(o *Options) { o.Metrics, o.Pprof = "", true },
	} {
		o := options(t)
		change(&o)
		if err := Check(o); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
	o := options(t)
	o.SwitchML = "127.0.0.1:0,127.0.0.1:0,127.0.0.1:50099,127.0.0.2"
	if err := Check(o); err != nil {
		t.Error(err)
	}
}

// Sessions that no worker could begin are refused before anything is opened, by Check and by Run.
func TestSessionsInKernelAreChecked(t *testing.T) {
	netdevs := func(o *Options, names ...string) {
		o.Ports = nil
		for _, name := range names {
			o.Ports = append(o.Ports, dataplane.XDPPort{Interface: name})
		}
	}
	for says, change := range map[string]func(*Options){
		"port mem0 is of kind mem": func(*Options) {},
		"the controller is off":    func(o *Options) { o.SwitchML = "" },
		"all capabilities":         func(o *Options) { netdevs(o, "e0"); o.Drop = privilege.All },
		"no card's pace":           func(o *Options) { netdevs(o, "e0"); o.Limits.Pace = true },
		"name each as MAC,IP,PORT": func(o *Options) { netdevs(o, "e0", "e1") },
	} {
		o := options(t)
		o.SwitchMLInKernel = true
		change(&o)
		if err := Check(o); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
	o := options(t)
	o.SwitchMLInKernel = true
	if err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "port mem0 is of kind mem") {
		t.Errorf("Run: %v", err)
	}
	netdevs(&o, "e0")
	if err := Check(o); err != nil {
		t.Error(err)
	}
}
