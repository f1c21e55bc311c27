package switchml

import (
	"context"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/stats"
)

// connection is one client's transport. SwitchML's calls carry no identity that
// lasts, so its end is the only sign that a worker has died.
type connection struct {
	began   int64        // both in nanoseconds since the server was made
	endedAt atomic.Int64 // 0: alive
}

// ended says whether the connection has ended. Nil, an unknown one, never has.
func (c *connection) ended() bool { return c != nil && c.endedAt.Load() != 0 }

// beganAfter says whether c began when other had ended.
func (c *connection) beganAfter(other *connection) bool {
	return c != nil && other.ended() && c.began > other.endedAt.Load()
}

type connectionKey struct{}

func connectionOf(ctx context.Context) *connection {
	c, _ := ctx.Value(connectionKey{}).(*connection)
	return c
}

// watchConnections is a stats.Handler that only knows when connections begin and
// end, by a clock that nobody sets.
type watchConnections struct{ epoch time.Time }

var _ stats.Handler = watchConnections{}

func (w watchConnections) now() int64 { return int64(time.Since(w.epoch)) }

func (w watchConnections) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context {
	return context.WithValue(ctx, connectionKey{}, &connection{began: w.now()})
}

func (w watchConnections) HandleConn(ctx context.Context, s stats.ConnStats) {
	if _, end := s.(*stats.ConnEnd); end {
		if c := connectionOf(ctx); c != nil {
			c.endedAt.Store(max(1, w.now()))
		}
	}
}

func (watchConnections) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

func (watchConnections) HandleRPC(context.Context, stats.RPCStats) {}
