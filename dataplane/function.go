package dataplane

import "fmt"

// FunctionKind is what a port does with the frames it receives.
type FunctionKind uint8

// Functions of a port.
const (
	// Aggregate, the default, sums what workers send and answers ARP and ICMP echo requests.
	Aggregate FunctionKind = iota
	// Reflect swaps the MAC addresses and sends the frame out of the port it came in by.
	Reflect
	// Sink counts the frame and frees it.
	Sink
	// Forward sends the frame out of another port as it is.
	Forward
	// Serve gives the frame to the service that has the port. AddService sets it, and only that.
	Serve
)

var functionNames = [...]string{"aggregate", "reflect", "sink", "forward", "serve"}

// settable is the functions that users set.
var settable = functionNames[:Serve]

// String returns the name of the function.
func (k FunctionKind) String() string {
	if int(k) < len(functionNames) {
		return functionNames[k]
	}
	return fmt.Sprintf("function(%d)", uint8(k))
}

// ParseFunctionKind returns the function of this name.
func ParseFunctionKind(s string) (FunctionKind, error) {
	for i, n := range settable {
		if n == s {
			return FunctionKind(i), nil
		}
	}
	return 0, fmt.Errorf("function %q: legal are %v", s, settable)
}

// Function is what a port does; To names the port that Forward sends to, or the service of Serve.
type Function struct {
	Kind FunctionKind `json:"kind"`
	To   string       `json:"to,omitempty"`
	// Pktgen makes Reflect and Sink keep an account of the frames of the kernel's packet generator: lost, late, twice,
	// latency; NIC.Pktgen reads it. Setting the function begins a new one. It costs some 50 ns a frame.
	Pktgen bool `json:"pktgen,omitempty"`
	// InKernel lets the steering program carry Reflect or Sink out where a frame arrives (xdp.Answer): several times faster, with
	// an account of pktgen's frames too. Such frames come to no lane, so they are in no lane's counters, captures or
	// impairments; PortSnapshot.Steering counts them. On ports of netdevs only.
	InKernel bool `json:"in_kernel,omitempty"`
}

// String returns "reflect", "forward to eth1" and the like.
func (f Function) String() string {
	switch f.Kind {
	case Forward:
		return "forward to " + f.To
	case Serve:
		return "serve " + f.To
	}
	if f.InKernel {
		return f.Kind.String() + " in the kernel"
	}
	return f.Kind.String()
}

// SetFunction sets what a port does with the frames it receives from now on.
func (n *NIC) SetFunction(portName string, f Function) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	i, ok := n.PortIndex(portName)
	if !ok {
		return fmt.Errorf("no port %s", portName)
	}
	if int(f.Kind) >= len(settable) {
		return fmt.Errorf("port %s: %v: legal are %v", portName, f.Kind, settable)
	}
	if now := n.ports[i].function; now.Kind == Serve {
		return fmt.Errorf("port %s: service %q has it", portName, now.To)
	}
	to := i
	if f.Kind == Forward {
		if to, ok = n.PortIndex(f.To); !ok {
			return fmt.Errorf("port %s: forward to %q: no such port", portName, f.To)
		}
	} else {
		f.To = ""
	}
	if (f.Pktgen || f.InKernel) && f.Kind != Reflect && f.Kind != Sink {
		return fmt.Errorf("port %s: %v: pktgen's frames are accounted for, and the kernel can do it, when a port's function is reflect or sink", portName, f.Kind)
	}
	if n.state == stopped {
		return fmt.Errorf("function of port %s: %w", portName, ErrStopped)
	}
	if err := n.setKernelFunction(n.ports[i], f); err != nil {
		return err
	}
	n.onLanes(func(l *lane) {
		l.ports[i].function, l.ports[i].forward, l.ports[i].pktgen = f.Kind, to, nil
		if f.Pktgen && !f.InKernel { // else the steering program keeps it
			l.ports[i].pktgen = newPktgenAccount()
		}
	})
	return nil
}
