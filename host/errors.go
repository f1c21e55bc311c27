package host

import "fmt"

// RequestError says that the NIC could not do a request. Elements Lo to Hi of the operation are undefined, and all that
// follow were not summed.
type RequestError struct {
	Lo, Hi int
	Text   string // the NIC's
}

// Error implements error.
func (e *RequestError) Error() string {
	return fmt.Sprintf("host: elements %d to %d: %s", e.Lo, e.Hi, e.Text)
}
