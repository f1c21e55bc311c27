package demo

import (
	"context"
	"errors"

	"gradnic/dataplane"
	"gradnic/worker/native"
)

// Session is the demo's NIC with its links and without a job, for those who have something to sum of their own.
type Session struct {
	// Transport is mem, xdp-native or xdp-generic.
	Transport string

	o    Options
	nic  *dataplane.NIC
	f    fabric
	stop func(*dataplane.Counters) error
}

// NewSession starts one; of Options, Elements and Iterations do not count. The session ends with Close.
func NewSession(ctx context.Context, o Options) (*Session, error) {
	if err := o.setDefaults(); err != nil {
		return nil, err
	}
	s := &Session{o: o, Transport: "mem"}
	var err error
	if s.nic, s.f, s.stop, err = startNIC(ctx, &o); err != nil {
		return nil, err
	}
	if first := s.nic.Snapshot().Ports[0]; first.Kind == "xdp" {
		s.Transport = "xdp-" + first.Mode
	}
	if err := impairAll(s.nic, &o); err != nil {
		var c dataplane.Counters
		return nil, errors.Join(err, s.stop(&c))
	}
	return s, nil
}

// Join installs a native job and brings its workers together. leave closes them and removes the job.
func (s *Session) Join(ctx context.Context, job dataplane.JobSpec) (ws []*native.Worker, leave func() error, err error) {
	job.Protocol, job.Workers = dataplane.ProtocolNative, s.o.Workers
	if err := s.nic.InstallJob(job); err != nil {
		return nil, nil, err
	}
	ws, closeAll, err := joinNative(ctx, &s.o, s.f, job)
	leave = func() error {
		var resent uint64
		return errors.Join(closeAll(&resent), s.nic.RemoveJob(job.Name))
	}
	if err != nil {
		return nil, nil, errors.Join(err, leave())
	}
	return ws, leave, nil
}

// Close ends the NIC and removes what was made for it. The error says also when its accounts do not add up.
func (s *Session) Close() (c dataplane.Counters, err error) {
	err = s.stop(&c)
	return c, err
}
