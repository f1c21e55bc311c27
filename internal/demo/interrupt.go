package demo

import (
	"context"
	"errors"
)

// interrupted is the error of a run that was ended from outside: that, and what went wrong beside it. What the workers
// were at when their context ended says nothing to the user.
func interrupted(err error) error {
	rest := besideContext(err)
	if rest == nil {
		return errors.New("interrupted; everything that was made is removed")
	}
	return errors.Join(errors.New("interrupted"), rest)
}

// besideContext is err without the parts that are the end of a context.
func besideContext(err error) error {
	if !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	var rest []error
	switch e := err.(type) {
	case interface{ Unwrap() []error }:
		for _, part := range e.Unwrap() {
			rest = append(rest, besideContext(part))
		}
	case interface{ Unwrap() error }:
		rest = append(rest, besideContext(e.Unwrap()))
	}
	return errors.Join(rest...)
}
