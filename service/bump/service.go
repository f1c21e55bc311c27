package bump

import (
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"gradnic/dataplane"
)

// ServeOptions say where a bump is.
type ServeOptions struct {
	// Host and Wire are the names of two ports of the NIC, which the bump takes as a whole.
	Host, Wire string
	// Lane is the lane that it lives on.
	Lane int
	// Engine are the engine's options; Emit and Event are filled in.
	Engine Options
	// Logger takes what happens to far ends; nil discards.
	Logger *slog.Logger
}

// Bump is a bump that runs on a NIC.
type Bump struct {
	engine     *Engine
	handle     *dataplane.ServiceHandle
	host, wire int
	x          *dataplane.Exchange // of the call under way
	leaving    atomic.Bool
	left       chan struct{} // the good-byes have been emitted
	gone       bool          // the lane's

	events    chan Event
	missed    atomic.Uint64
	logging   sync.WaitGroup
	closeOnce sync.Once
	closeErr  error
}

// byeTimeout bounds how long Close waits for the lane to say good-bye.
const byeTimeout = 250 * time.Millisecond

// Serve puts a bump between two ports of a NIC, running or not yet. Close it before the NIC is stopped, so that far ends
// are told.
func Serve(n *dataplane.NIC, o ServeOptions) (*Bump, error) {
	b := &Bump{left: make(chan struct{}), events: make(chan Event, 64)}
	var ok bool
	if b.host, ok = n.PortIndex(o.Host); !ok {
		return nil, fmt.Errorf("bump: host port: there is no port %s", o.Host)
	}
	if b.wire, ok = n.PortIndex(o.Wire); !ok {
		return nil, fmt.Errorf("bump: wire port: there is no port %s", o.Wire)
	}
	if b.host == b.wire {
		return nil, fmt.Errorf("bump: port %s is both the host's and the wire's", o.Host)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Engine.Emit, o.Engine.Event = b.emit, b.note
	var err error
	if b.engine, err = New(o.Engine); err != nil {
		return nil, err
	}
	b.logging.Add(1)
	go b.log(o.Logger.With("host", o.Host, "wire", o.Wire))
	b.handle, err = n.AddService(dataplane.ServiceSpec{
		Name: "bump " + o.Host + "-" + o.Wire, Lane: o.Lane, Ports: []string{o.Host, o.Wire}, Service: b,
	})
	if err != nil {
		close(b.events)
		b.logging.Wait()
		return nil, err
	}
	return b, nil
}

// clock is the engine's: above 0.
func clock(x *dataplane.Exchange) int64 { return x.Now() + 1 }

// Receive implements dataplane.Service.
func (b *Bump) Receive(x *dataplane.Exchange, in []dataplane.Arrival) {
	b.x = x
	now := clock(x)
	for i := range in {
		a := &in[i]
		if a.Port == b.host {
			if b.engine.FromHost(a.Bytes, now) == Pass {
				x.Send(i, b.wire, len(a.Bytes))
			} else {
				x.Consume(i)
			}
			continue
		}
		switch v, f := b.engine.FromWire(a.Bytes, now); v {
		case Pass:
			x.Send(i, b.host, len(a.Bytes))
		case Refuse:
			x.Drop(i, dataplane.BumpReason(f))
		default:
			x.Consume(i)
		}
	}
	b.engine.Flush(now)
	b.x = nil
}

// Tick implements dataplane.Service.
func (b *Bump) Tick(x *dataplane.Exchange) (next int64) {
	b.x = x
	defer func() { b.x = nil }()
	if b.leaving.Load() && !b.gone {
		b.gone = true
		b.engine.Close(clock(x))
		close(b.left)
	}
	return b.engine.Tick(clock(x))
}

// emit makes a frame for the engine.
func (b *Bump) emit(side Side, length int) []byte {
	port := b.host
	if side == Wire {
		port = b.wire
	}
	frame, ok := b.x.Emit(port, length)
	if !ok {
		return nil
	}
	return frame
}

// note hands an event to the log without waiting for it.
func (b *Bump) note(e Event) {
	select {
	case b.events <- e:
	default:
		b.missed.Add(1)
	}
}

func (b *Bump) log(l *slog.Logger) {
	defer b.logging.Done()
	for e := range b.events {
		at := []any{"local", e.Local, "remote", e.Remote}
		switch e.Kind {
		case PeerFound:
			l.Info("bump: a NIC answers at the far end: its flows go compressed", at...)
		case PeerMissing:
			l.Warn("bump: no NIC answers at the far end: its flows go raw", at...)
		case PeerLost:
			l.Warn("bump: the NIC at the far end does not answer any more: its flows go raw", at...)
		case PeerLeft:
			l.Warn("bump: the NIC at the far end goes away: its flows go raw", at...)
		case PeerRestarted:
			l.Info("bump: the NIC at the far end was started again", at...)
		}
		if n := b.missed.Swap(0); n > 0 {
			l.Warn("bump: more happened than was written here", "events", n)
		}
	}
}

// Status tells what it has done so far. Any goroutine may call it, but not the lane's.
func (b *Bump) Status() (s Status) {
	b.handle.Run(func() { s = b.engine.Status() })
	return s
}

// Close tells the far ends and takes the bump out of the NIC. It is idempotent.
func (b *Bump) Close() error {
	b.closeOnce.Do(func() {
		b.leaving.Store(true)
		b.handle.Wake()
		select {
		case <-b.left:
		case <-time.After(byeTimeout):
			// The lane does not run: there is nobody to tell.
		}
		b.closeErr = b.handle.Close()
		close(b.events)
		b.logging.Wait()
	})
	return b.closeErr
}

var _ dataplane.Service = (*Bump)(nil)
