package switchml

import (
	"context"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/stats"
)

// connection is one client's transport. SwitchML's calls carry no identity that
// lasts, so its end is the only sign that a worker has died.
type connection struct {
	began   int64        // both in nanoseconds since the server was made
	endedAt atomic.Int64 // 0: alive
	door    string       // port or path that it came in by
	// session is the last value that a Broadcast gave it, 0 before: clients begin with one, whose value is the
	// session's id.
	session atomic.Uint64
}

// where is the door of a connection; nil, an unknown one, has none.
func (c *connection) where() string {
	if c == nil {
		return ""
	}
	return c.door
}

// in is the session that a connection belongs to, as far as it is known.
func (c *connection) in() uint64 {
	if c == nil {
		return 0
	}
	return c.session.Load()
}

// knows remembers the session that a connection belongs to.
func (c *connection) knows(session uint64) {
	if c != nil {
		c.session.Store(session)
	}
}

// doorOf is what tells two listeners apart: one that listens on all addresses has one port.
func doorOf(a net.Addr) string {
	if t, ok := a.(*net.TCPAddr); ok {
		return strconv.Itoa(t.Port)
	}
	if a == nil {
		return ""
	}
	return a.String()
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

func (w watchConnections) TagConn(ctx context.Context, info *stats.ConnTagInfo) context.Context {
	return context.WithValue(ctx, connectionKey{}, &connection{began: w.now(), door: doorOf(info.LocalAddr)})
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
