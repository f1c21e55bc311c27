package control

import (
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"gradnic/dataplane"
	"gradnic/xdp"
)

// Kind says what sort of refusal an Error is.
type Kind uint8

// Kinds of refusals, each with its gRPC code.
const (
	Failed      Kind = iota // the data plane could not do it: Internal
	Invalid                 // a value out of its range: InvalidArgument
	Exists                  // the name or rank is used by something else: AlreadyExists
	NotFound                // there is none of that name: NotFound
	Exhausted               // there is no room: ResourceExhausted
	Unsupported             // a real thing that this NIC does not do: Unimplemented
	Stopped                 // the NIC is stopping: Unavailable
	Stale                   // the job has changed since the caller looked: Aborted
	Denied                  // not for this caller: PermissionDenied
	Conflict                // not beside something that is set on the NIC: FailedPrecondition
)

var kindCodes = [...]codes.Code{
	Failed:      codes.Internal,
	Invalid:     codes.InvalidArgument,
	Exists:      codes.AlreadyExists,
	NotFound:    codes.NotFound,
	Exhausted:   codes.ResourceExhausted,
	Unsupported: codes.Unimplemented,
	Stopped:     codes.Unavailable,
	Stale:       codes.Aborted,
	Denied:      codes.PermissionDenied,
	Conflict:    codes.FailedPrecondition,
}

// Error is a refusal by the control plane: of which kind, which field, and why.
type Error struct {
	Kind  Kind
	Field string // as in job.members[3].ipv4; empty: the whole request
	Why   string // what is wrong and what would be right
	err   error  // what the data plane said, if it was asked
}

// Error returns the field and the reason in one line.
func (e *Error) Error() string {
	s := e.Why
	if e.Field != "" {
		s = e.Field + ": " + s
	}
	switch {
	case e.err == nil, errors.Is(e.err, dataplane.ErrNoJob): // Why says it
		return s
	case strings.HasPrefix(e.err.Error(), s+":"):
		return e.err.Error()
	}
	return s + ": " + e.err.Error()
}

// Unwrap returns the data plane's error.
func (e *Error) Unwrap() error { return e.err }

// GRPCStatus makes status.FromError and gRPC's server give the right code.
func (e *Error) GRPCStatus() *status.Status {
	code := codes.Internal
	if int(e.Kind) < len(kindCodes) {
		code = kindCodes[e.Kind]
	}
	return status.New(code, e.Error())
}

func refuse(kind Kind, field, format string, args ...any) *Error {
	return &Error{Kind: kind, Field: field, Why: fmt.Sprintf(format, args...)}
}

// clip bounds what is repeated of what a caller sent.
func clip(s string) string {
	const most = 128
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}

// fromDataplane gives an error of the data plane its kind.
func fromDataplane(what string, err error) error {
	kind := Failed
	switch {
	case errors.Is(err, dataplane.ErrNoJob):
		kind, what = NotFound, clip(what)+": no such job: gradnic show jobs lists those that there are"
	case errors.Is(err, dataplane.ErrJobExists):
		kind = Exists
	case errors.Is(err, dataplane.ErrStopped):
		kind = Stopped
	case errors.Is(err, dataplane.ErrConflict):
		kind = Conflict
	case errors.Is(err, dataplane.ErrInvalid):
		kind = Invalid
	case errors.Is(err, xdp.ErrNoSumSlots):
		kind = Exhausted
	}
	return &Error{Kind: kind, Why: what, err: err}
}
