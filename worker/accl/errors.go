package accl

import (
	"errors"
	"fmt"

	wire "gradnic/wire/accl"
)

// Errors that callers tell apart with errors.Is. All but ErrRefused end the communicator: the wire has no way to come
// together again, so every rank must be made anew.
var (
	// ErrRefused means that the call was not begun, and that the communicator is as it was.
	ErrRefused = errors.New("refused")
	// ErrLost means that a datagram of a peer was lost, overtaken or damaged; the error is a *PeerError.
	ErrLost = errors.New("a datagram is missing")
	// ErrTimeout means that a peer sent nothing for the time that a call may wait; the error is a *PeerError.
	ErrTimeout = errors.New("no message in time")
	// ErrMismatch means that a peer's message is not one of this call; the error is a *PeerError.
	ErrMismatch = errors.New("the peer makes another call")
	// ErrEnded means that an earlier call failed, or was given up.
	ErrEnded = errors.New("the communicator has ended")
)

// PeerError says which peer a call failed by.
type PeerError struct {
	Collective Collective
	Rank, Peer int
	Seq        uint32 // of the message that was waited for
	Why        error  // ErrLost, ErrTimeout or ErrMismatch
	Fault      wire.Fault
	Detail     string
}

// Error implements error.
func (e *PeerError) Error() string {
	s := fmt.Sprintf("%v at rank %d: message %d from rank %d: %v", e.Collective, e.Rank, e.Seq, e.Peer, e.Why)
	if e.Fault != wire.OK {
		s += fmt.Sprintf(" (%v)", e.Fault)
	}
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	return s
}

// Unwrap gives the reason.
func (e *PeerError) Unwrap() error { return e.Why }
