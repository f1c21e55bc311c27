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
}

// String returns "reflect", "forward to eth1" and the like.
func (f Function) String() string {
	switch f.Kind {
	case Forward:
		return "forward to " + f.To
	case Serve:
		return "serve " + f.To
	}
	return f.Kind.String()
}
