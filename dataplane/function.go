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
)

var functionNames = [...]string{"aggregate", "reflect", "sink", "forward"}

// String returns the name of the function.
func (k FunctionKind) String() string {
	if int(k) < len(functionNames) {
		return functionNames[k]
	}
	return fmt.Sprintf("function(%d)", uint8(k))
}

// ParseFunctionKind returns the function of this name.
func ParseFunctionKind(s string) (FunctionKind, error) {
	for i, n := range functionNames {
		if n == s {
			return FunctionKind(i), nil
		}
	}
	return 0, fmt.Errorf("function %q: legal are %v", s, functionNames)
}

// Function is what a port does; To names the port that Forward sends to.
type Function struct {
	Kind FunctionKind `json:"kind"`
	To   string       `json:"to,omitempty"`
}

// String returns "reflect", "forward to eth1" and the like.
func (f Function) String() string {
	if f.Kind == Forward {
		return "forward to " + f.To
	}
	return f.Kind.String()
}
