package dataplane

import (
	"errors"
	"fmt"
)

// Errors that callers tell apart with errors.Is.
var (
	ErrNoJob     = errors.New("no such job")
	ErrJobExists = errors.New("job exists")
	ErrStopped   = errors.New("the NIC is stopped")
	// ErrInvalid is what no NIC like this one does: the request has to be another one.
	ErrInvalid = errors.New("not what this NIC does")
	// ErrConflict is what the NIC could do, were it not for something that is set: an impairment, a pace, a function, a job; or rights
	// that were given up.
	ErrConflict = errors.New("not beside what is set")
)

// refusal is an error of one of these kinds, whose text need not say the kind as well.
type refusal struct {
	error
	kind error
}

func (r refusal) Unwrap() []error { return []error{r.error, r.kind} }

func conflictf(format string, args ...any) error {
	return refusal{fmt.Errorf(format, args...), ErrConflict}
}

// invalid makes an error ErrInvalid, unless it says more.
func invalid(err error) error {
	for _, kind := range []error{ErrJobExists, ErrConflict} {
		if errors.Is(err, kind) {
			return err
		}
	}
	return refusal{err, ErrInvalid}
}
