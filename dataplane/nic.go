package dataplane

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"sync"
	"time"

	"gradnic/wire/inet"
	"gradnic/wire/layout"
	"gradnic/xdp"
)

type state uint8

const (
	ready state = iota
	running
	stopped
)

// NIC is a set of ports and the lanes between them. Its methods may be called from several goroutines.
type NIC struct {
	cfg   Config
	epoch time.Time
	ports []*port
	lanes []*lane
	place []uint16 // by chunk, see reclaim
	// The longest frame in bytes, and whether frames may take several chunks.
	longest int
	multi   bool
	wg      sync.WaitGroup

	mu    sync.Mutex // the control side: everything below, and the lanes while they do not run
	state state
	jobs  map[string]*job
	// services are in the order in which they were added.
	services []*ServiceHandle
	umem     *xdp.UMEM
	sums     *xdp.Sums // of jobs that the kernel adds up; nil until there is one
	paced    bool      // SetPace
	last     Snapshot  // taken by Stop, after which the kernel cannot be asked

	budgets    *Budgets    // nil: none
	supervisor *supervisor // nil when there is nothing to watch
	watchers   []watcher   // captures and traces
	newEpoch   func() uint32
}

// New makes a NIC with these ports, whose index is their place in the list. Nothing is opened before Start.
func New(cfg Config, ports ...PortSpec) (*NIC, error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, err
	}
	if err := checkPorts(ports); err != nil {
		return nil, err
	}
	if err := checkLayouts(cfg.Layouts, ports); err != nil {
		return nil, err
	}
	for _, x := range cfg.Layouts {
		cfg.nativeLayouts = cfg.nativeLayouts || x.Rules == layout.Native
	}
	n := &NIC{cfg: cfg, longest: max(cfg.ChunkSize-xdp.KernelHeadroom, cfg.LongestFrame), epoch: time.Now(), jobs: map[string]*job{}, newEpoch: randomEpoch}
	for i, s := range ports {
		n.ports = append(n.ports, &port{index: i, spec: s, name: s.portName(), kind: s.portKind()})
	}
	for i := range cfg.Lanes {
		l := &lane{
			id: i, cpu: -1, cfg: &n.cfg, log: cfg.Logger, epoch: n.epoch, eventfd: -1,
			chunk: uint64(cfg.ChunkSize), shift: uint(bits.TrailingZeros(uint(cfg.ChunkSize))), ports: make([]lanePort, len(ports)), counts: make([]portCounts, len(ports)),
			pub: newPublished(len(ports)),
		}
		for p := range l.ports {
			l.ports[p].name = n.ports[p].name
		}
		if len(cfg.CPUs) > 0 {
			l.cpu = cfg.CPUs[i]
		}
		if cfg.Spin > 0 && spareCPU(cfg.Lanes) {
			l.spin = cfg.Spin
		}
		n.lanes = append(n.lanes, l)
	}
	for _, l := range n.lanes {
		l.lanes = n.lanes
	}
	n.applyTables()
	return n, nil
}

// Config returns the configuration with its defaults filled in.
func (n *NIC) Config() Config { return n.cfg }

// PortIndex returns the index of a port; ok is false when there is none of this name.
func (n *NIC) PortIndex(name string) (index int, ok bool) {
	for _, p := range n.ports {
		if p.name == name {
			return p.index, true
		}
	}
	return 0, false
}

// Start opens all ports and sets the lanes going. On an error everything that was opened is closed again, and the
// NIC cannot be started any more. The context bounds the start only.
func (n *NIC) Start(ctx context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch n.state {
	case running:
		return errors.New("the NIC is running")
	case stopped:
		return fmt.Errorf("start: %w", ErrStopped)
	}
	if err := n.openAll(ctx); err != nil {
		n.state = stopped
		return errors.Join(err, n.closeAll())
	}
	n.state = running
	for _, l := range n.lanes {
		n.wg.Add(1)
		go l.run(&n.wg)
	}
	for _, p := range n.ports {
		n.cfg.Logger.Info("port open", "port", p.name, "kind", p.kind, "mode", p.open.mode, "queues", len(p.open.queues))
		n.firstLook(p)
	}
	return nil
}

// openAll makes the memory, opens the ports and deals queues and chunks to the lanes.
func (n *NIC) openAll(ctx context.Context) error {
	if err := n.checkCPUs(); err != nil {
		return err
	}
	for _, p := range n.ports {
		if err := n.prepare(p); err != nil {
			return p.failed(err)
		}
	}
	perLane, err := n.countQueues()
	if err != nil {
		return err
	}
	if err := n.measure(); err != nil {
		return err
	}
	n.umem, err = xdp.NewUMEM(xdp.UMEMOptions{Chunks: perLane * len(n.lanes), ChunkSize: n.cfg.ChunkSize, HugePages: n.cfg.HugePages})
	if err != nil {
		return err
	}
	n.place = make([]uint16, n.umem.Chunks())
	if huge, why := n.umem.HugePages(); n.cfg.HugePages && !huge {
		n.cfg.Logger.Warn("no huge pages, ordinary ones are used", "err", why)
	}
	for _, p := range n.ports {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("start: %w", err)
		}
		if p.open, err = p.spec.open(n.environment(p)); err != nil {
			return p.failed(err)
		}
		if err = errors.Join(n.giveBudgets(p), n.giveAnswer(p), n.givePortSums(p)); err != nil {
			return err
		}
	}
	for _, l := range n.lanes {
		n.deal(l, perLane)
		if err := l.openEventfd(); err != nil {
			return err
		}
	}
	n.startSharing()
	// The rings are filled before ingress starts, so that the first frames find chunks.
	for _, l := range n.lanes {
		for i := range l.queues {
			l.refill(&l.queues[i])
		}
		l.publish()
	}
	for _, p := range n.ports {
		if p.open.attach == nil {
			continue
		}
		if err := p.open.attach(); err != nil {
			return p.failed(err)
		}
	}
	return n.startSupervisor()
}

// countQueues asks every port how many queues it will have and returns the chunks that a lane needs.
func (n *NIC) countQueues() (perLane int, err error) {
	most := 0
	for _, p := range n.ports {
		q, err := p.spec.queueCount(len(n.lanes))
		if err != nil {
			return 0, fmt.Errorf("port %s: %w", p.name, err)
		}
		if err := n.enoughQueues(p, q); err != nil {
			return 0, fmt.Errorf("port %s: %w", p.name, err)
		}
		a := (q + len(n.lanes) - 1) / len(n.lanes)
		p.budget = a * n.cfg.FramesPerQueue
		most += a
	}
	perLane = most*n.cfg.FramesPerQueue + 2*BatchSize + len(n.ports)*maxHeld
	if len(n.lanes) > 1 {
		perLane += n.handoffSize()
	}
	return perLane, nil
}

// prepare sets a port's netdev up, and remembers how it is set back.
func (n *NIC) prepare(p *port) (err error) {
	s, ok := p.spec.(interface {
		prepare(*Config) (setBack func() error, err error)
	})
	if ok {
		p.setBack, err = s.prepare(&n.cfg)
	}
	return err
}

// measure finds the longest frame, and whether it takes several chunks.
func (n *NIC) measure() error {
	room := n.cfg.ChunkSize - xdp.KernelHeadroom
	n.multi = n.longest > room || n.cfg.Replicate == ReplicateChain
	for _, p := range n.ports {
		s, ok := p.spec.(interface {
			frameSize() (frame int, multi bool, err error)
		})
		if !ok {
			continue
		}
		frame, multi, err := s.frameSize()
		if err != nil {
			return fmt.Errorf("port %s: %w", p.name, err)
		}
		if f := n.cfg.LongestFrame; f > 0 && frame > max(f, room) {
			return fmt.Errorf("port %s: its MTU makes frames of %d bytes, the longest is to be %d (ip link set %s mtu %d, or let longer ones be: --longest-frame)",
				p.name, frame, max(f, room), p.name, max(f, room)-inet.EthernetLen)
		}
		n.longest, n.multi = max(n.longest, frame), n.multi || multi || frame > room
	}
	if n.multi {
		for _, l := range n.lanes {
			l.chains = newChains(n.longest)
		}
	}
	return nil
}

// enoughQueues refuses a port with fewer queues than there are lanes.
func (n *NIC) enoughQueues(p *port, queues int) error {
	if queues < len(n.lanes) {
		return fmt.Errorf("%d queues for %d lanes: each lane needs a queue of every port (ethtool -l %s says what it can have; --queues %d, or fewer lanes)", queues, len(n.lanes), p.name, len(n.lanes))
	}
	return nil
}

// environment is what a port is opened in.
func (n *NIC) environment(p *port) *environment {
	return &environment{cfg: &n.cfg, umem: n.umem, budget: p.budget, longest: n.longest, multi: n.multi, serviceUDP: n.serviceUDP, wake: func(lane int) { n.lanes[lane].wake() }}
}

// handoffSize is the capacity of the ring from one lane to another.
func (n *NIC) handoffSize() int { return n.cfg.FramesPerQueue }

// deal gives a lane its chunks, its queues (queue q of each port to lane q mod lanes) and its rings.
func (n *NIC) deal(l *lane, perLane int) {
	l.area = n.umem.Bytes()
	l.chunks = perLane
	l.share = uint64(perLane) * l.chunk
	base := uint64(l.id) * l.share
	l.free = make([]uint64, 0, perLane)
	for i := perLane - 1; i >= 0; i-- {
		l.free = append(l.free, base+uint64(i)*l.chunk)
	}
	l.place = n.place
	var queues []laneQueue
	for _, p := range n.ports {
		queues = append(queues, l.newQueues(p, p.open)...)
	}
	l.setQueues(queues)
	if len(n.lanes) > 1 {
		l.peers = make([]peer, len(n.lanes))
		for i := range l.peers {
			if i != l.id {
				l.peers[i].frames = newSPSC[handoff](n.handoffSize())
				l.peers[i].home = newSPSC[uint64](perLane)
			}
		}
	}
}

// Stop ends ingress, lets the lanes finish what is in flight (for Config.Drain at most, or until the context is
// done), and closes everything; netdevs are left as they were found. It is idempotent.
func (n *NIC) Stop(ctx context.Context) error {
	n.stopSupervisor()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.state == stopped {
		return nil
	}
	wasRunning := n.state == running
	n.state = stopped
	if !wasRunning {
		return n.closeSums()
	}
	var errs []error
	for _, p := range n.ports {
		if p.open.detach != nil {
			if err := p.open.detach(); err != nil {
				errs = append(errs, fmt.Errorf("port %s: %w", p.name, err))
			}
		}
	}
	n.drain(ctx)
	n.last = n.snapshot()
	for _, l := range n.lanes {
		l.mail.post(func(l *lane) { l.quit = true })
		l.wake()
	}
	n.wg.Wait()
	n.endWatchers()
	n.last = n.snapshot()
	return errors.Join(append(errs, n.closeAll())...)
}

// drain waits until nothing moves: no frame in flight, all transmits completed, no new ones received.
func (n *NIC) drain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, n.cfg.Drain)
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	var before uint64
	for first := true; ; first = false {
		n.onLanes(func(l *lane) { l.publish() })
		s := n.snapshot()
		if !first && s.Total.Received == before && s.Total.InFlight == 0 && s.Frames.Handoff == 0 && s.Frames.Transmit == 0 {
			return
		}
		before = s.Total.Received
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// closeAll closes what Start has opened, in the reverse order.
func (n *NIC) closeAll() error {
	var errs []error
	for i := len(n.ports) - 1; i >= 0; i-- {
		p := n.ports[i]
		if p.open == nil {
			continue
		}
		for _, f := range []func() error{p.open.detach, p.open.close} {
			if f == nil {
				continue
			}
			if err := f(); err != nil {
				errs = append(errs, fmt.Errorf("port %s: %w", p.name, err))
			}
		}
	}
	for _, l := range n.lanes {
		if err := l.closeEventfd(); err != nil {
			errs = append(errs, err)
		}
		l.area = nil
	}
	errs = append(errs, n.closeSums())
	if n.umem != nil {
		if err := n.umem.Close(); err != nil {
			errs = append(errs, err)
		}
		n.umem = nil
	}
	for _, p := range n.ports { // drivers keep queues as long as they have sockets
		if p.setBack == nil {
			continue
		}
		if err := p.setBack(); err != nil {
			errs = append(errs, fmt.Errorf("port %s: %w", p.name, err))
		}
		p.setBack = nil
	}
	return errors.Join(errs...)
}

// onLanes runs f for each lane, on its thread while it runs, and returns when all are done. n.mu is held.
func (n *NIC) onLanes(f func(*lane)) {
	done := make(chan struct{}, len(n.lanes))
	g := func(l *lane) { f(l); done <- struct{}{} }
	for _, l := range n.lanes {
		if n.state == ready || !l.mail.post(g) {
			g(l) // it does not run yet, or no more
			continue
		}
		l.wake()
	}
	for range n.lanes {
		<-done
	}
}

// onLane runs f for one lane as onLanes does for all. n.mu is held.
func (n *NIC) onLane(l *lane, f func(*lane)) {
	done := make(chan struct{})
	if n.state == ready || !l.mail.post(func(l *lane) { f(l); close(done) }) {
		f(l)
		return
	}
	l.wake()
	<-done
}

// Impair sets a port's impairment; the zero value takes it away. Exact losses count from now.
func (n *NIC) Impair(portName string, im Impairment) error {
	if err := n.setImpair(portName, im); err != nil {
		return fmt.Errorf("impair port %s: %w", portName, err)
	}
	return nil
}

func (n *NIC) setImpair(portName string, im Impairment) error {
	if err := im.setDefaults(); err != nil {
		return invalid(err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	i, ok := n.PortIndex(portName)
	if !ok {
		return errors.New("there is none of this name")
	}
	if n.state == stopped {
		return ErrStopped
	}
	p := n.ports[i]
	if p.function.InKernel && !im.none() {
		return conflictf("its frames come to no lane that could: its function is %v", p.function)
	}
	if job := n.anySummed(); job != "" && !im.none() {
		return conflictf("the kernel adds up what the workers of job %s send, and it comes to no lane that could", job)
	}
	p.impair = nil
	if !im.none() {
		p.impair = &impairState{Impairment: im}
	}
	n.onLanes(func(l *lane) {
		if p.impair == nil {
			l.setImpairment(i, nil)
			return
		}
		l.setImpairment(i, newLaneImpair(p.impair, n.cfg.Seed, i, l.id))
	})
	return nil
}

// Impairment returns a port's impairment; the zero value is a perfect port.
func (n *NIC) Impairment(portName string) (Impairment, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	i, ok := n.PortIndex(portName)
	if !ok {
		return Impairment{}, fmt.Errorf("impairment of port %s: there is none of this name", portName)
	}
	if p := n.ports[i]; p.impair != nil {
		return p.impair.Impairment, nil
	}
	return Impairment{}, nil
}
