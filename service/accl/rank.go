package accl

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"gradnic/dataplane"
	wire "gradnic/wire/accl"
	"gradnic/worker/accl"
)

// Config describes a rank in a NIC.
type Config struct {
	accl.Config // Ranks need their MAC, but for this one, whose address is the NIC's
	// Lane is the lane that the rank lives on.
	Lane int
	// Ports are the names of the NIC's ports that lead to the ranks, by rank, this one's unused; one name is for all.
	Ports []string
}

// Rank is a rank of a communicator in a NIC: an accl.Rank. Its methods may be called from any goroutine.
type Rank struct {
	handle *dataplane.ServiceHandle
	f      *function

	turn sync.Mutex // one call at a time
	gone atomic.Bool
}

var _ accl.Rank = (*Rank)(nil)

// request is a call on its way through the lane.
type request struct {
	call accl.Call
	stop atomic.Pointer[error] // why the call is to be given up
	err  error
	done chan struct{} // closed by the lane when err is there
}

// Attach gives the NIC a rank. The rank's address must be the NIC's. The NIC may run already.
func Attach(nic *dataplane.NIC, cfg Config) (*Rank, error) {
	nicConfig := nic.Config()
	e, err := accl.NewEngine(cfg.Config)
	if err != nil {
		return nil, err
	}
	cfg.Config = e.Config()
	own := cfg.Ranks[cfg.Rank]
	if own.IP != nicConfig.IP {
		return nil, fmt.Errorf("accl: rank %d has address %v, and the NIC has %v", cfg.Rank, own.IP, nicConfig.IP)
	}
	f := &function{e: e, own: wire.Endpoint{MAC: nicConfig.MAC, IP: own.IP, Port: own.Port}}
	for i, p := range cfg.Ranks {
		f.peers = append(f.peers, wire.Endpoint{MAC: p.MAC, IP: p.IP, Port: p.Port})
		if i == cfg.Rank {
			f.ports = append(f.ports, 0)
			continue
		}
		if p.MAC.IsZero() || p.MAC.IsMulticast() {
			return nil, fmt.Errorf("accl: rank %d at %v has MAC %v: the address of the station that leads there is needed", i, p.IP, p.MAC)
		}
		if len(cfg.Ports) != 1 && len(cfg.Ports) != len(cfg.Ranks) {
			return nil, fmt.Errorf("accl: %d ports for %d ranks: name one, or one for each", len(cfg.Ports), len(cfg.Ranks))
		}
		name := cfg.Ports[min(i, len(cfg.Ports)-1)]
		port, ok := nic.PortIndex(name)
		if !ok {
			return nil, fmt.Errorf("accl: the NIC has no port %s", name)
		}
		f.ports = append(f.ports, port)
	}
	h, err := nic.AddService(dataplane.ServiceSpec{
		Name: fmt.Sprintf("accl-%d", cfg.Rank), Lane: cfg.Lane, UDP: []uint16{own.Port}, Service: f,
	})
	if err != nil {
		return nil, fmt.Errorf("accl: %w", err)
	}
	return &Rank{handle: h, f: f}, nil
}

// Do implements accl.Rank.
func (r *Rank) Do(ctx context.Context, c accl.Call) error {
	r.turn.Lock()
	defer r.turn.Unlock()
	switch {
	case r.gone.Load():
		return fmt.Errorf("%v: %w: %w", c.Collective, accl.ErrEnded, net.ErrClosed)
	case ctx.Err() != nil:
		return fmt.Errorf("%v: %w: %w", c.Collective, accl.ErrRefused, context.Cause(ctx))
	}
	q := &request{call: c, done: make(chan struct{})}
	r.f.box.Store(q)
	r.handle.Wake()
	if r.gone.Load() {
		r.finish()
	}
	look := time.NewTicker(watch)
	defer look.Stop()
	stopped := ctx.Done()
	for {
		select {
		case <-q.done:
			return q.err
		case <-stopped:
			stopped = nil
			why := context.Cause(ctx)
			q.stop.Store(&why)
			r.handle.Wake()
		case <-look.C:
			r.handle.Run(r.f.watch)
			r.handle.Wake()
		}
	}
}

// watch is how often a caller looks whether the lane runs at all.
const watch = 250 * time.Millisecond

// Stats implements accl.Rank.
func (r *Rank) Stats() (s accl.Stats) {
	r.handle.Run(func() { s = r.f.e.Stats() })
	return s
}

// Close implements accl.Rank: it takes the rank out of the NIC, and ends a call that runs. It may be called again, and
// after the NIC was stopped.
func (r *Rank) Close() error {
	if r.gone.Swap(true) {
		return nil
	}
	err := r.handle.Close()
	r.finish()
	return err
}

// finish ends all calls of a rank that is closed: no lane calls the function any more.
func (r *Rank) finish() {
	r.handle.Run(func() { r.f.giveUp(net.ErrClosed) })
}
