package demo

import (
	"fmt"
	"log/slog"
	"strings"

	"gradnic/worker"
)

// Transport says how frames get to the NIC.
type Transport uint8

const (
	Auto Transport = iota // XDP as root, Mem otherwise
	XDP                   // AF_XDP on veth pairs between network namespaces; needs root
	Mem                   // ports in memory, inside the process
)

var transportNames = [...]string{"auto", "xdp", "mem"}

func (t Transport) String() string { return transportNames[t] }

// ParseTransport returns the transport of this name.
func ParseTransport(s string) (Transport, error) {
	for i, n := range transportNames {
		if s == n {
			return Transport(i), nil
		}
	}
	return 0, fmt.Errorf("transport %q: legal are %s", s, strings.Join(transportNames[:], ", "))
}

// MaxIterations bounds Options.Iterations.
const MaxIterations = 100000

// Options say what to run. The zero value is the demo as `gradnic demo` without flags runs it.
type Options struct {
	// Workers is 1 to 32; 0 means 8. There are real gradients of 8 workers: worker r above has those of worker r mod 8.
	Workers int
	// Elements a packet, 64 or 256; 0 means 256.
	Elements int
	Transport
	// Mode is where the XDP program is attached: "native" (in the driver) or "generic" (in the kernel's stack) and nothing
	// else, or "auto" for native where it can be had; "" means auto. Without meaning over Mem.
	Mode string
	// Iterations is how many all-reduces are timed and checked, after one that is only checked; 0 means 5.
	Iterations int
	// Loss is the probability, 0 up to 0.5, with which each NIC port loses a frame, in each direction. It is set after the
	// first all-reduce.
	Loss float64
	// Seed makes the losses reproducible as far as the order of frames is; 0 means 1.
	Seed uint64
	// Logger takes what the NIC and the controller report; nil discards.
	Logger *slog.Logger
	// Root says that the process may make network namespaces and open AF_XDP sockets; Auto goes by it.
	Root bool
}

func (o *Options) setDefaults() error {
	if o.Workers == 0 {
		o.Workers = 8
	}
	if o.Workers < 1 || o.Workers > worker.MaxWorkers {
		return fmt.Errorf("%d workers: legal are 1 to %d", o.Workers, worker.MaxWorkers)
	}
	if o.Elements == 0 {
		o.Elements = 256
	}
	if o.Elements != 64 && o.Elements != 256 {
		return fmt.Errorf("%d elements a packet: legal are 64 and 256", o.Elements)
	}
	if o.Mode == "" {
		o.Mode = "auto"
	}
	if o.Mode != "auto" && o.Mode != "native" && o.Mode != "generic" {
		return fmt.Errorf("mode %q: legal are auto, native, generic", o.Mode)
	}
	if o.Iterations == 0 {
		o.Iterations = 5
	}
	if o.Iterations < 1 || o.Iterations > MaxIterations {
		return fmt.Errorf("%d iterations: legal are 1 to %d", o.Iterations, MaxIterations)
	}
	if !(o.Loss >= 0 && o.Loss <= 0.5) {
		return fmt.Errorf("loss %v: legal are probabilities from 0 to 0.5", o.Loss)
	}
	if o.Seed == 0 {
		o.Seed = 1
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Transport == Auto {
		o.Transport = Mem
		if o.Root {
			o.Transport = XDP
		}
	}
	if o.Transport == XDP && !o.Root {
		return fmt.Errorf("transport xdp needs root, for network namespaces and AF_XDP: run as root, or take --transport mem")
	}
	if o.Transport == Mem && o.Mode != "auto" {
		return fmt.Errorf("mode %s: over memory there is no XDP program to attach: take --transport xdp", o.Mode)
	}
	return nil
}

// Check says whether Run would take the options.
func (o Options) Check() error { return o.setDefaults() }
