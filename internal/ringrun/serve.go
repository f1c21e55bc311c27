package ringrun

import (
	"context"
	"errors"

	"gradnic/host/nic"
	"gradnic/service/ring"
)

// serve lets host processes use the node until the context is done.
func (o *NodeOptions) serve(ctx context.Context, n *ring.Node) error {
	s, err := nic.Listen(o.HostSocket, n, nic.Options{Logger: o.Logger})
	if err != nil {
		return err
	}
	if o.Waiting != nil {
		o.Waiting("for host processes at " + o.HostSocket)
	}
	<-ctx.Done()
	return errors.Join(n.Close(), s.Close()) // in this order: a request that nobody finishes would keep the server
}
