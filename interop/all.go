package interop

import (
	"context"
	"errors"
	"fmt"
	"io"

	"gradnic/wire/inet"
	"gradnic/wire/layout"
)

// SetCard sets the card's addresses from text.
func (o *Options) SetCard(mac, ip string) (err error) {
	if o.NIC.MAC, err = inet.ParseMAC(mac); err != nil {
		return err
	}
	o.NIC.IP, err = inet.ParseAddr(ip)
	return err
}

// RunAll runs suites against the target that a word names (see OpenTarget), once for each number of elements; each
// run opens the target anew. An error is about a target or a suite: then the reports so far are there as well. It is
// ErrUnknown, before anything runs, when a suite or a case is not there.
func RunAll(ctx context.Context, suites []string, target string, elements []int, o Options) (reports []*Report, err error) {
	loaded := make([]*Suite, len(suites))
	for i, name := range suites {
		if loaded[i], err = Load(name); err == nil {
			err = loaded[i].has(o.Only)
		}
		if err == nil && o.Layout != "" {
			var l *layout.Layout
			if l, err = layout.Load(o.Layout); err == nil {
				loaded[i], err = loaded[i].With(l)
			}
		}
		if err != nil {
			return nil, err
		}
	}
	for _, s := range loaded {
		for i, n := range elements {
			if i > 0 && s.OneSize {
				break
			}
			o.Elements = n
			r, err := runOne(ctx, s, target, o)
			if r != nil {
				reports = append(reports, r)
			}
			if err != nil {
				return reports, err
			}
		}
	}
	if len(reports) == 0 {
		return nil, errors.New("interop: no number of elements was given")
	}
	return reports, nil
}

func runOne(ctx context.Context, s *Suite, target string, o Options) (r *Report, err error) {
	if err := o.setDefaults(); err != nil {
		return nil, err
	}
	t, err := OpenTarget(ctx, target, &o, s)
	if err != nil {
		return nil, err
	}
	defer func() {
		if closeErr := t.Close(); err == nil {
			err = closeErr
		}
	}()
	return Run(ctx, s, t, target, o)
}

// Text writes the matrix, and below it what went wrong.
func Text(w io.Writer, reports ...*Report) error {
	if err := Matrix(w, reports...); err != nil {
		return err
	}
	for _, r := range reports {
		for i := range r.Results {
			x := &r.Results[i]
			if x.Verdict == Passed {
				continue
			}
			if _, err := fmt.Fprintf(w, "\n%s %v: %s\n  why: %s\n", r.path("/", x.Case), x.Verdict, x.Detail, x.Why); err != nil {
				return err
			}
			if x.Capture != "" {
				if _, err := fmt.Fprintf(w, "  capture: %s\n", x.Capture); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
