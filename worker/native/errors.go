package native

import (
	"errors"
	"fmt"
)

// Errors that callers tell apart with errors.Is.
var (
	// ErrClosed means that the worker was closed.
	ErrClosed = errors.New("the worker is closed")
	// ErrAborted means that the job ended because of other workers; the error is an *Ended that names them.
	ErrAborted = errors.New("the job was aborted")
	// ErrOutOfStep means that workers do not go on together; the error is an *Ended that names them.
	ErrOutOfStep = errors.New("the workers are out of step")
	// ErrRefused means that another station has this worker's rank.
	ErrRefused = errors.New("the NIC refuses this worker: another station has its rank")
)

// Ended says why a job ended and because of which ranks. It wraps [ErrAborted] or [ErrOutOfStep].
type Ended struct {
	Why   error
	Ranks []int
}

// Error implements error.
func (e *Ended) Error() string {
	what := "left, or did not come within the job's deadline (gradnic install job --deadline)"
	if errors.Is(e.Why, ErrOutOfStep) {
		what = "started anew or stayed behind"
	}
	return fmt.Sprintf("%v: ranks %v %s", e.Why, e.Ranks, what)
}

// Unwrap gives the reason.
func (e *Ended) Unwrap() error { return e.Why }
