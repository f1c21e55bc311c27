package bump

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"gradnic/control"
	"gradnic/dataplane"
)

// StartOptions are what a program needs to run a bump between two netdevs.
type StartOptions struct {
	ServeOptions
	// Status is the path of a Unix socket that tells the status; empty: none does.
	Status string
	// Namespace runs a function in the network namespace of the netdevs; nil is the process's own.
	Namespace func(func() error) error
}

// Running is a bump with what belongs to it.
type Running struct {
	*Bump
	undo    []func() error
	serving sync.WaitGroup
}

// Start serves a bump on a NIC whose ports Host and Wire are netdevs of these names: it also makes them take frames to any
// address, takes frame lengths that are not given from their MTUs, and opens the status.
func Start(ctx context.Context, n *dataplane.NIC, o StartOptions) (_ *Running, err error) {
	r := &Running{}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Close())
		}
	}()
	in := o.Namespace
	if in == nil {
		in = func(f func() error) error { return f() }
	}
	err = in(func() error {
		for _, p := range []struct {
			name  string
			frame *int
		}{{o.Host, &o.Engine.HostFrame}, {o.Wire, &o.Engine.WireFrame}} {
			undo, err := Promiscuous(p.name)
			if err != nil {
				return err
			}
			r.undo = append(r.undo, undo)
			if *p.frame != 0 {
				continue
			}
			ifi, err := net.InterfaceByName(p.name)
			if err != nil {
				return fmt.Errorf("MTU of %s: %w", p.name, err)
			}
			*p.frame = ifi.MTU + 14
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if r.Bump, err = Serve(n, o.ServeOptions); err != nil {
		return nil, err
	}
	if o.Status == "" {
		return r, nil
	}
	l, err := control.Listen(ctx, "unix:"+o.Status)
	if err != nil {
		return nil, fmt.Errorf("status: %w", err)
	}
	r.undo = append(r.undo, l.Close)
	r.serving.Add(1)
	go func() {
		defer r.serving.Done()
		_ = r.ServeStatus(l) // ends with the listener
	}()
	return r, nil
}

// Close ends all of it: the far ends are told, and the netdevs are as they were. It is to be called before the NIC stops.
func (r *Running) Close() (err error) {
	if r.Bump != nil {
		err = r.Bump.Close()
	}
	for _, undo := range r.undo {
		err = errors.Join(err, undo())
	}
	r.undo = nil
	r.serving.Wait()
	return err
}
