package native

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"time"

	"gradnic/wire/inet"
	wire "gradnic/wire/native"
	"gradnic/worker/datagram"
)

// Worker is one worker of a job. Its methods and the functions that take it may be called from several goroutines; but
// all workers of a job must start the same collectives in the same order.
type Worker struct {
	e *engine
}

// room is the longest payload of a message: what a frame of MTU 9216 takes.
const room = 9216 + inet.EthernetLen - inet.PayloadOffset

// Join reports to the NIC and waits until all workers of the job have done so. The error names those that have not.
func Join(ctx context.Context, cfg Config) (*Worker, error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, fmt.Errorf("native worker: %w", err)
	}
	tr, err := cfg.transport()
	if err != nil {
		return nil, fmt.Errorf("native worker: %w", err)
	}
	return join(ctx, cfg, tr)
}

// ends are the worker and the NIC as the configuration knows them.
func (c *Config) ends() (from, nic wire.Endpoint) {
	return wire.Endpoint{MAC: c.MAC, IP: c.IP, Port: uint16(c.Port)}, wire.Endpoint{MAC: c.NICMAC, IP: c.NIC, Port: wire.Port}
}

// transport opens what packets go by.
func (c *Config) transport() (datagram.Transport, error) {
	from, nic := c.ends()
	if c.Link != nil {
		return datagram.NewFrames(c.Link, datagram.Endpoint(from), datagram.Endpoint(nic), room), nil
	}
	conn := c.Conn
	if conn == nil {
		var err error
		if conn, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.IP(c.IP[:]), Port: c.Port}); err != nil {
			return nil, fmt.Errorf("open UDP socket: %w", err)
		}
	}
	udp, err := datagram.NewUDP(conn, datagram.Endpoint(nic), room)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	if c.Segments {
		if _, err := udp.Segment(); err != nil {
			_ = udp.Close()
			return nil, err
		}
	}
	return udp, nil
}

// patience is how long Join waits before it says what for.
const patience = 2 * time.Second

// join is Join by a transport that is open, which it closes with the worker.
func join(ctx context.Context, cfg Config, tr datagram.Transport) (*Worker, error) {
	from, nic := cfg.ends()
	e := newEngine(cfg, tr, from, nic)
	var err error
	if e.tags, err = newTags(cfg.Key, cfg.Rank); err != nil {
		_ = tr.Close()
		return nil, err
	}
	w := &Worker{e: e}
	e.wg.Add(1)
	go e.run(tr, true)
	if cfg.Waiting != nil {
		said := make(chan struct{})
		say := time.AfterFunc(patience, func() {
			defer close(said)
			select {
			case <-e.joined: // just now
			default:
				cfg.Waiting(fmt.Sprintf("job %d at NIC %v%s", cfg.Job, cfg.NIC, cmp.Or(e.waitsFor(), ": the NIC answers")))
			}
		})
		defer func() {
			if !say.Stop() {
				<-said
			}
		}()
	}
	select {
	case <-e.joined:
	case <-e.failed:
	case <-ctx.Done():
		err := fmt.Errorf("join job %d at %v as rank %d: %w%s", cfg.Job, cfg.NIC, cfg.Rank, context.Cause(ctx), e.waitsFor())
		_ = w.Close()
		return nil, err
	}
	if err := e.listen(); err != nil {
		e.mu.Lock()
		e.giveUp(e.now(), err)
		e.mu.Unlock()
	}
	e.mu.Lock()
	err = e.err
	e.mu.Unlock()
	if err != nil {
		_ = w.Close()
		return nil, fmt.Errorf("join job %d at %v as rank %d: %w", cfg.Job, cfg.NIC, cfg.Rank, err)
	}
	return w, nil
}

// listen opens what multicast results come by.
func (e *engine) listen() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err != nil || e.job.group.IsZero() {
		return nil
	}
	g := datagram.Endpoint{MAC: wire.GroupMAC(e.job.group), IP: e.job.group, Port: e.job.groupPort}
	if f, ok := e.tr.(*datagram.Frames); ok {
		f.Listen(g)
		return nil
	}
	open := e.cfg.Group
	if open == nil {
		open = func(g datagram.Endpoint) (datagram.Transport, error) {
			ifc, err := datagram.InterfaceOf(e.cfg.IP)
			if err != nil {
				return nil, err
			}
			return datagram.ListenGroup(ifc, g, datagram.Endpoint(e.nic), room)
		}
	}
	tr, err := open(g)
	if err != nil {
		return err
	}
	e.group = tr
	e.wg.Add(1)
	go e.run(tr, false)
	return nil
}

// waitsFor tells whom the network waits for.
func (e *engine) waitsFor() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case len(e.missing) > 0:
		return fmt.Sprintf(": the NIC answers, and waits for ranks %v", e.missing)
	case e.epoch == 0:
		if f := e.tr.Faults(); f.Last != nil {
			return fmt.Sprintf(": no answer from the NIC (%v)", f.Last)
		}
		return ": no answer from the NIC, which answers only workers of a job that it has: look at the job's number and how many workers it has (gradnic show jobs), and whether the NIC answers a ping"
	}
	return ""
}

// Job is what the worker learned of its job.
func (w *Worker) Job() Job { return w.e.job }

// Rank is the worker's rank.
func (w *Worker) Rank() int { return w.e.cfg.Rank }

// Counts are what was sent and received since the worker joined.
func (w *Worker) Counts() Counts {
	w.e.mu.Lock()
	defer w.e.mu.Unlock()
	c := w.e.counts
	f := w.e.tr.Faults()
	c.Foreign += f.Foreign
	c.Socket = f.Socket
	return c
}

// Missing are the ranks that the NIC last said it waits for.
func (w *Worker) Missing() []int {
	w.e.mu.Lock()
	defer w.e.mu.Unlock()
	return slices.Clone(w.e.missing)
}

// Close ends the worker; calls that run get [ErrClosed], and the other workers are told that this one left. Results that
// another worker lacks are kept until then, so a worker that has finished before others should call [Barrier] first.
func (w *Worker) Close() error { return w.e.close() }

// Pending is a collective that runs.
type Pending struct {
	w *Worker
	c *call
}

// Stats is what one collective came to.
type Stats struct {
	Elements int           `json:"elements"`
	Packets  int           `json:"packets"`
	Elapsed  time.Duration `json:"elapsed"`
	// Flags tell what befell its values: saturated, non-finite, wrapped.
	Flags wire.Flags `json:"flags"`
}

// Wait returns when the collective is done. When ctx ends first the worker gives up: the others are told, all its calls
// fail, and it has to be closed. The error then names the ranks that the NIC waits for, if it said so.
func (p *Pending) Wait(ctx context.Context) (Stats, error) {
	select {
	case <-p.c.done:
	case <-ctx.Done():
		e := p.w.e
		why := e.waitsFor()
		e.mu.Lock()
		e.giveUp(e.now(), fmt.Errorf("call %d: %w%s", p.c.id, context.Cause(ctx), why))
		e.mu.Unlock()
		<-p.c.done
	}
	s := Stats{Elements: p.c.elements, Packets: p.c.chunks, Elapsed: p.c.elapsed, Flags: p.c.flags}
	return s, p.c.err
}

// progress is the number of chunks, over all calls, below which this worker has every result.
func (w *Worker) progress() uint64 {
	w.e.mu.Lock()
	defer w.e.mu.Unlock()
	return w.e.win.low
}
