package host

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"gradnic/host/shm"
)

// why is what a failure to connect to a path means for who wants a NIC there, to follow the error; "" when that says enough.
func why(path string, err error) string {
	st, statErr := os.Stat(path)
	switch {
	case len(path) > shm.MaxPath:
		return fmt.Sprintf(": a socket's path has %d bytes at most, this one %d", shm.MaxPath, len(path))
	case statErr == nil && st.Mode().Type() != os.ModeSocket, errors.Is(err, unix.EPROTOTYPE):
		return ": it is no NIC's socket"
	case errors.Is(err, os.ErrNotExist), errors.Is(err, unix.ECONNREFUSED):
		return ": no NIC listens there: is gradnic ring --host-socket running, with this path?"
	case errors.Is(err, os.ErrPermission):
		return ": a NIC's socket is for the user that started the NIC"
	}
	return ""
}

// RequestError says that the NIC could not do a request. Elements Lo to Hi of the operation are undefined, and all that
// follow were not summed.
type RequestError struct {
	Lo, Hi int
	Text   string // the NIC's
}

// Error implements error.
func (e *RequestError) Error() string {
	if e.Lo == e.Hi { // a barrier
		return "host: " + e.Text
	}
	return fmt.Sprintf("host: elements %d to %d: %s", e.Lo, e.Hi, e.Text)
}
