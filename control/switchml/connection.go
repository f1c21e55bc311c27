package switchml

import (
	"context"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/stats"
)

// connection is one client's transport. SwitchML's calls carry no identity that
// lasts, so its end is the only sign that a worker has died.
type connection struct{ endedAt atomic.Int64 } // unix nanoseconds; 0: alive

// ended says whether the connection has ended, and when. Nil never ends.
func (c *connection) ended() (bool, time.Time) {
	if c == nil {
		return false, time.Time{}
	}
	at := c.endedAt.Load()
	return at != 0, time.Unix(0, at)
}

type connectionKey struct{}

func connectionOf(ctx context.Context) *connection {
	c, _ := ctx.Value(connectionKey{}).(*connection)
	return c
}

// watchConnections is a stats.Handler that only knows when connections end.
type watchConnections struct{}

var _ stats.Handler = watchConnections{}

func (watchConnections) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context {
	return context.WithValue(ctx, connectionKey{}, &connection{})
}

func (watchConnections) HandleConn(ctx context.Context, s stats.ConnStats) {
	if _, end := s.(*stats.ConnEnd); end {
		if c := connectionOf(ctx); c != nil {
			c.endedAt.Store(time.Now().UnixNano())
		}
	}
}

func (watchConnections) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

func (watchConnections) HandleRPC(context.Context, stats.RPCStats) {}
