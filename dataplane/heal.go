package dataplane

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	// healEvery is how often the netdevs are looked at.
	healEvery = 200 * time.Millisecond
	// healRetry is how long a rebuild that failed is left alone.
	healRetry = 500 * time.Millisecond
	// rebindTimeout bounds the wait for a queue that is being let go; then the rebuild has failed and is tried again.
	rebindTimeout = 500 * time.Millisecond
)

// PortState is how a port is.
type PortState string

// States of a port.
const (
	// StateUp receives and transmits. A reason that is shown nevertheless is a warning.
	StateUp PortState = "up"
	// StateDown has a netdev that is down, has no carrier, or does not exist. It works again once the netdev does.
	StateDown PortState = "down"
	// StateRebuilding is getting new sockets.
	StateRebuilding PortState = "rebuilding"
	// StateBroken cannot be rebuilt for a reason that is shown. It is tried again and again.
	StateBroken PortState = "broken"
)

// linkWatch looks at what a port stands on. It is used by the supervisor alone.
type linkWatch interface {
	look(was netdev) (facts, error)
	close() error
}

// netdev is what a port's sockets were opened on.
type netdev struct {
	index   int
	queues  int
	program func() uint32 // its id, 0: not known; nil: none
	room    int           // bytes of the longest frame that the sockets take
	needs   int           // and of the longest that a job has, 0: none
	needsIt string        // which job
}

// facts are what a linkWatch sees.
type facts struct {
	exists  bool
	why     string // why frames cannot pass at the moment; "" when they can
	note    string // what is not right although they can
	rebuild string // why the port's sockets are of no use any more; "" when they are fine
}

// watched is a port under supervision.
type watched struct {
	port  *port
	watch linkWatch
	retry time.Time // of a rebuild that failed
	since time.Time // when the port was retired, zero while it has sockets
	said  string    // the last error, so that it is said once
}

// supervisor rebuilds ports whose netdevs have changed underneath. It lives from Start to Stop.
type supervisor struct {
	nic    *NIC
	ports  []*watched
	cancel context.CancelFunc
	done   chan struct{}
}

// startSupervisor watches the ports that can be watched. n.mu is held.
func (n *NIC) startSupervisor() error {
	if n.cfg.NoHealing {
		return nil
	}
	s := &supervisor{nic: n, done: make(chan struct{})}
	for _, p := range n.ports {
		spec, ok := p.spec.(interface{ watch() (linkWatch, error) })
		if !ok {
			continue
		}
		w, err := spec.watch()
		if err != nil {
			return errors.Join(fmt.Errorf("port %s: watch: %w", p.name, err), s.close())
		}
		p.lastIndex = p.open.netdev.index
		s.ports = append(s.ports, &watched{port: p, watch: w})
	}
	if len(s.ports) == 0 {
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	n.supervisor = s
	go s.run(ctx)
	return nil
}

// firstLook says at the start whether frames can pass: a netdev that is down takes sockets and a program like any
// other. Without healing it is the only look. n.mu is held.
func (n *NIC) firstLook(p *port) {
	p.state, p.why = StateUp, ""
	spec, ok := p.spec.(interface{ watch() (linkWatch, error) })
	if !ok {
		return
	}
	w, err := spec.watch()
	if err != nil {
		n.cfg.Logger.Warn("port", "port", p.name, "err", err)
		return
	}
	f, err := w.look(p.open.netdev)
	if err := errors.Join(err, w.close()); err != nil {
		n.cfg.Logger.Warn("port", "port", p.name, "err", err)
		return
	}
	if f.why == "" {
		return
	}
	n.cfg.Logger.Warn("port down", "port", p.name, "why", f.why)
	if n.cfg.NoHealing { // nobody will see it come up
		p.why = "at the start: " + f.why
		return
	}
	p.state, p.why = StateDown, f.why
}

// stopSupervisor ends supervision. It is idempotent, and called without n.mu, which the supervisor takes.
func (n *NIC) stopSupervisor() {
	n.mu.Lock()
	s := n.supervisor
	n.mu.Unlock()
	if s != nil {
		s.cancel()
		<-s.done
	}
}

func (s *supervisor) close() error {
	var errs []error
	for _, w := range s.ports {
		errs = append(errs, w.watch.close())
	}
	return errors.Join(errs...)
}

func (s *supervisor) run(ctx context.Context) {
	defer close(s.done)
	defer func() {
		if err := s.close(); err != nil {
			s.nic.cfg.Logger.Warn("supervisor", "err", err)
		}
	}()
	tick := time.NewTicker(healEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, w := range s.ports {
			if ctx.Err() == nil {
				s.tend(w)
			}
		}
	}
}

func (s *supervisor) look(w *watched) (facts, error) {
	was := w.port.open.netdev
	was.needs, was.needsIt = s.nic.longestOn(w.port.index)
	return w.watch.look(was)
}

// tend looks at one port and does what is to be done.
func (s *supervisor) tend(w *watched) {
	f, err := s.look(w)
	if err != nil {
		s.complain(w, fmt.Errorf("look at the netdev: %w", err))
		return
	}
	if w.since.IsZero() {
		switch {
		case f.exists && f.rebuild == "" && f.why == "":
			s.set(w, StateUp, f.note)
			return
		case f.exists && f.rebuild == "":
			s.set(w, StateDown, f.why)
			return
		}
		state, why := StateRebuilding, f.rebuild
		if !f.exists {
			state, why = StateDown, f.why
		}
		s.retire(w, state, why)
	}
	if !f.exists {
		s.set(w, StateDown, f.why)
		return
	}
	if time.Now().Before(w.retry) {
		return
	}
	if err := s.nic.reopen(w.port); err != nil {
		w.retry = time.Now().Add(healRetry)
		s.set(w, StateBroken, err.Error())
		return
	}
	s.nic.cfg.Logger.Info("port rebuilt", "port", w.port.name, "after", time.Since(w.since).Round(time.Millisecond))
	w.since, w.retry = time.Time{}, time.Time{}
	// What was seen before was judged by sockets that were not there.
	if f, err = s.look(w); err != nil || !f.exists || f.rebuild != "" {
		return // it has changed again: the next tick says how
	}
	if f.why != "" {
		s.set(w, StateDown, f.why)
	} else {
		s.set(w, StateUp, f.note)
	}
}

// retire takes the port's sockets away, and records why: who sees the state sees no sockets either.
func (s *supervisor) retire(w *watched, state PortState, why string) {
	w.since, w.retry = time.Now(), time.Time{}
	s.nic.mu.Lock()
	same := w.port.become(state, why)
	err := s.nic.retire(w.port)
	w.port.rebuilds++
	s.nic.mu.Unlock()
	if !same {
		s.say(w.port, state, why)
	}
	if err != nil {
		s.complain(w, err)
	}
}

func (s *supervisor) complain(w *watched, err error) {
	if err.Error() != w.said {
		w.said = err.Error()
		s.nic.cfg.Logger.Warn("port", "port", w.port.name, "err", err)
	}
}

// set records a port's state, and says it when it is another one, in one line.
func (s *supervisor) set(w *watched, state PortState, why string) {
	s.nic.mu.Lock()
	same := w.port.become(state, why)
	s.nic.mu.Unlock()
	if !same {
		s.say(w.port, state, why)
	}
}

// become records a state, and returns true when it is the one that was. n.mu is held.
func (p *port) become(state PortState, why string) (same bool) {
	same = p.state == state && p.why == why
	p.state, p.why = state, why
	return same
}

func (s *supervisor) say(p *port, state PortState, why string) {
	log := s.nic.cfg.Logger
	switch state {
	case StateUp:
		if why != "" {
			log.Warn("port up", "port", p.name, "but", why)
			break
		}
		log.Info("port up", "port", p.name)
	case StateBroken:
		log.Error("port broken", "port", p.name, "err", why)
	default:
		log.Warn("port "+string(state), "port", p.name, "why", why)
	}
}
