package datagram

import (
	"errors"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"gradnic/wire/inet"
)

// Burst is the most packets in one call to the kernel.
const Burst = 64

// Transport carries frames to the NIC and UDP payloads back. Send and Recv may be called by different goroutines, each
// by one at a time. Errors are final; what a resend may mend is counted in Faults.
type Transport interface {
	// Send hands over whole request frames, in order. Frames may be lost.
	Send(frames [][]byte) error
	// Recv waits until payloads come, the deadline passes or Wake is called; then it returns none. They are
	// valid until the next call.
	Recv(until time.Time) ([][]byte, error)
	// Wake makes a running Recv return, or the next one if none runs. Any goroutine may call it.
	Wake()
	// Faults are what went wrong so far and was mended. Any goroutine may call it.
	Faults() Faults
	Close() error
}

// Endpoint is one end of a packet's way.
type Endpoint struct {
	MAC  inet.MAC
	IP   inet.Addr
	Port uint16
}

// Faults are counts of what went wrong, and the last error.
type Faults struct {
	Foreign uint64 // received frames that were not for this worker
	Socket  uint64 // errors of the socket that a resend may mend
	Last    error
}

// longAgo as a deadline waits for nothing. It is not the zero time, which often means for ever.
var longAgo = time.Unix(1, 0)

// mendable reports whether a resend may succeed where this failed: the error is about the way to the NIC at the
// moment (or an earlier packet's fate, which ICMP reported), not about the packet or the socket.
func mendable(err error) bool {
	for _, e := range [...]syscall.Errno{
		unix.ECONNREFUSED, unix.EHOSTUNREACH, unix.ENETUNREACH, unix.EHOSTDOWN, unix.ENETDOWN,
		unix.ENOBUFS, unix.ENOMEM, unix.EPERM, unix.EINTR, unix.EAGAIN,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return errors.Is(err, os.ErrDeadlineExceeded)
}
