package dataplane

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// A port whose netdev is gone, or has other queues than it had, is rebuilt while the lanes run:
//
//	detach     the control side: nothing new comes
//	quiesce    each lane: what has come is processed, what was made is sent; then the queues are swapped for gone ones
//	close      the control side: the sockets are closed, the kernel writes into their chunks no more
//	reclaim    the control side, while the lanes stand still: the chunks that the closed sockets held are free again
//	open       the control side, without the NIC's lock: new sockets on the same memory
//	adopt      each lane: new queues instead of the gone ones
//	attach     the control side: frames come
//
// Between quiesce and adopt the port takes nothing, and what should leave by it is dropped as port-broken.

// errGone is what a queue without a socket says.
var errGone = errors.New("the port has no socket")

// goneQueue stands in for a queue whose socket was closed.
type goneQueue struct{}

func (goneQueue) Fill([]uint64) int     { return 0 }
func (goneQueue) Receive([]Desc) int    { return 0 }
func (goneQueue) Transmit([]Desc) int   { return 0 }
func (goneQueue) Complete([]uint64) int { return 0 }
func (goneQueue) Kick() error           { return errGone }
func (goneQueue) TxPending() int        { return 0 }
func (goneQueue) WakeReceive() error    { return nil }
func (goneQueue) FD() int               { return -1 }
func (goneQueue) Pending() bool         { return false }

// quiesceTries bounds how often a queue that is given up is kicked for what is still in its ring.
const quiesceTries = 64

// quiesce processes what the port's queues have received, sends what they still have, and takes the queues out of use.
// It runs between two rounds.
func (l *lane) quiesce(port int) {
	for i := range l.queues {
		q := &l.queues[i]
		if q.port != port {
			continue
		}
		q.target = 0 // nothing new to the kernel
		for l.receive(q, true) > 0 {
		}
		l.forget(&q.chain)
	}
	l.flush()
	for i := range l.queues {
		q := &l.queues[i]
		if q.port != port {
			continue
		}
		for range quiesceTries {
			l.reap(q)
			if q.sending == 0 || q.failed {
				break
			}
			l.kick(q)
			yield()
		}
		q.queue, q.failed = goneQueue{}, true
	}
	l.setPoll()
}

// reclaim frees the chunks that the port's closed sockets held, and checks that they are as many as were given to them.
//
// Each chunk carries the mark of the port that it was last posted to, and is with the kernel unless it is in one of the
// places that a lane knows. Marks are not cleared when a chunk comes back, which would cost time for every frame;
// instead all lanes stand still for the some ten microseconds that this takes. n.mu is held.
func (n *NIC) reclaim(p *port) (err error) {
	n.parkLanes(func() {
		mark, shift := portMark(p.index), n.lanes[0].shift
		found, want := 0, 0
		for _, l := range n.lanes {
			for i := range l.queues {
				if q := &l.queues[i]; q.port == p.index && q.shared != nil {
					found += l.reclaimShared(q)
				}
			}
		}
		known := make([]bool, len(n.place))
		for _, l := range n.lanes {
			l.walkOwn(func(addr uint64) { known[addr>>shift] = true })
		}
		for c, m := range n.place {
			if m != mark || known[c] {
				continue
			}
			addr := uint64(c) << shift
			home := n.lanes[addr/n.lanes[0].share]
			home.free = append(home.free, addr)
			found++
		}
		for _, l := range n.lanes {
			for i := range l.queues {
				q := &l.queues[i]
				if q.port != p.index {
					continue
				}
				want += q.filled + q.sending
				l.counts[p.index][cFillPosted] -= uint64(q.filled)
				l.counts[p.index][cReclaimed] += uint64(q.sending)
				q.filled, q.sending = 0, 0
			}
			l.publish()
		}
		if found != want {
			err = fmt.Errorf("%d frames were with the kernel, %d are known", want, found)
		}
	})
	return err
}

// portMark is what place says of a chunk that was posted to a port. 0 is for chunks that never were.
func portMark(port int) uint16 { return uint16(port + 1) }

// walkOwn visits every chunk that the lane has in its hands or on the way to another lane. The lane stands still.
func (l *lane) walkOwn(visit func(addr uint64)) {
	for _, a := range l.free {
		visit(a)
	}
	for i := range l.peers {
		if i == l.id {
			continue
		}
		p := &l.peers[i]
		p.frames.walk(func(h handoff) { visit(h.Addr) })
		p.home.walk(visit)
		for _, h := range p.out[:p.nout] {
			visit(h.Addr)
		}
		for _, a := range p.outHome[:p.nhome] {
			visit(a)
		}
	}
	for i := range l.ports {
		p := &l.ports[i]
		for _, d := range p.tx.desc[:p.tx.n] {
			visit(d.Addr)
		}
		if p.impair != nil {
			for _, h := range p.impair.held {
				visit(h.desc.Addr)
				for _, d := range h.tail {
					visit(d.Addr)
				}
			}
		}
	}
	for i := range l.peers {
		in := &l.peers[i].in
		for _, d := range in.desc[:in.n] {
			visit(d.Addr)
		}
	}
	for i := range l.queues {
		c := &l.queues[i].chain
		for _, d := range c.desc[:c.n] {
			visit(d.Addr)
		}
	}
}

// parkLanes runs f while no lane runs. n.mu is held.
func (n *NIC) parkLanes(f func()) {
	parked, leave := make(chan struct{}, len(n.lanes)), make(chan struct{})
	waiting := 0
	for _, l := range n.lanes {
		if n.state != running || !l.mail.post(func(*lane) { parked <- struct{}{}; <-leave }) {
			continue
		}
		l.wake()
		waiting++
	}
	for range waiting {
		<-parked
	}
	f()
	close(leave)
}

// adopt replaces the port's queues by those of its new sockets.
func (l *lane) adopt(p *port, open *openPort) {
	var queues []laneQueue
	for i := range l.queues {
		if l.queues[i].port < p.index {
			queues = append(queues, l.queues[i])
		}
	}
	l.retireCounts(p.index)
	queues = append(queues, l.newQueues(p, open)...)
	for i := range l.queues {
		if l.queues[i].port > p.index {
			queues = append(queues, l.queues[i])
		}
	}
	l.setQueues(queues)
	for i := range l.queues {
		l.refill(&l.queues[i])
	}
	l.publish()
}

// newQueues makes the lane's queues of an open port: queue q belongs to lane q mod lanes.
func (l *lane) newQueues(p *port, open *openPort) (queues []laneQueue) {
	l.ports[p.index].copied = !open.zeroCopy
	depth := open.depth
	if depth == 0 {
		depth = l.cfg.FramesPerQueue
	}
	for q := l.id; q < len(open.queues); q += len(l.lanes) {
		queues = append(queues, laneQueue{queue: open.queues[q], port: p.index, number: q, counts: l.resumeCounts(p.index, q), mark: portMark(p.index), target: depth / 2, limit: depth / 2})
		if l.sharing != nil {
			queues[len(queues)-1].shared = make([]uint16, l.chunks)
		}
	}
	return queues
}

// setQueues installs the lane's queues, and finds each port's queue to send on, and what to poll.
func (l *lane) setQueues(queues []laneQueue) {
	l.queues = queues
	l.pub.renew(queues, l.pastQueues)
	for i := range l.ports {
		l.ports[i].egress = nil
	}
	for i := range queues {
		if p := &l.ports[queues[i].port]; p.egress == nil {
			p.egress = &queues[i]
		}
	}
	l.setPoll()
}

// setPoll collects what the lane polls when it sleeps.
func (l *lane) setPoll() {
	l.poll = append(l.poll[:0], unix.PollFd{Fd: int32(l.eventfd), Events: unix.POLLIN})
	for i := range l.queues {
		if fd := l.queues[i].FD(); fd >= 0 {
			l.poll = append(l.poll, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
		}
	}
}

// retire takes a port's sockets away and brings their frames home. n.mu is held.
func (n *NIC) retire(p *port) error {
	o := p.open
	var errs []error
	if o.detach != nil {
		errs = append(errs, o.detach())
	}
	n.onLanes(func(l *lane) { l.quiesce(p.index) })
	n.remember(p)
	errs = append(errs, o.close())
	errs = append(errs, n.reclaim(p))
	p.open = &openPort{}
	return errors.Join(errs...)
}

// remember keeps what a port's sockets and steering program have counted, before they are closed.
func (n *NIC) remember(p *port) {
	if f := p.open.statistics; f != nil {
		if k, err := f(); err == nil {
			p.pastKernel.Add(k)
		}
	}
	p.rememberSpent()
	if f := p.open.steering; f != nil {
		if c, err := f(); err == nil {
			for v := range c {
				p.pastSteering[v] += c[v]
			}
		}
	}
}

// prepareAgain sets up a netdev that is another one than before.
func (n *NIC) prepareAgain(p *port) error {
	if p.spec.(interface{ netdevIndex() int }).netdevIndex() == p.lastIndex {
		return nil
	}
	if p.setBack != nil {
		if err := p.setBack(); err != nil {
			return err
		}
		p.setBack = nil
	}
	return n.prepare(p)
}

// reopen makes new sockets for a retired port and sets it going. Called without n.mu, by the supervisor alone; opening
// may take a while.
func (n *NIC) reopen(p *port) error {
	// A netdev that was made again is to be set again; one that has changed has been set by somebody on purpose.
	if err := n.prepareAgain(p); err != nil {
		return err
	}
	env := n.environment(p)
	env.bindTimeout = rebindTimeout
	open, err := p.spec.open(env)
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.enoughQueues(p, len(open.queues)); err != nil {
		return errors.Join(err, open.close())
	}
	p.open = open
	p.lastIndex = open.netdev.index
	n.onLanes(func(l *lane) { l.adopt(p, open) })
	if err := errors.Join(n.giveBudgets(p), n.giveAnswer(p), n.givePortSums(p), open.attach()); err != nil {
		return errors.Join(err, n.retire(p))
	}
	return nil
}
