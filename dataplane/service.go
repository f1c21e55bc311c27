package dataplane

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"

	"gradnic/wire/inet"
	"gradnic/wire/native"
	"gradnic/wire/switchml"
)

// MaxServices is the most services of a NIC.
const MaxServices = 64

// Service is what a NIC does beside aggregation, brought by another package: a ring between NICs, a bump in the wire, a
// rank of a card's own collectives. It lives on one lane. Its methods are called on that lane's goroutine only, a batch
// at a time; they must not block, and should not allocate. They may keep nothing that belongs to the lane: neither the
// Exchange nor an arrival's bytes.
type Service interface {
	// Receive is given frames that are the service's, in the order of their arrival, BatchSize at most with a few more
	// after impairments. Each should get a verdict from the Exchange: Drop, Send or Consume. Those that get none are
	// consumed.
	Receive(x *Exchange, in []Arrival)
	// Tick is called once after each round in which Receive was called, soon after ServiceHandle.Wake, and when the time
	// has come that it returned last: nanoseconds on the clock of Exchange.Now, 0 or less for never. A time in the past
	// makes the lane come again at once, without sleeping. The first call is when the service begins.
	Tick(x *Exchange) (next int64)
}

// Arrival is one frame that a service is given.
type Arrival struct {
	// Bytes is the whole frame from its Ethernet header on, contiguous also when it came in several chunks. It may be
	// changed in place before Exchange.Send.
	Bytes []byte
	// Packet is the frame as parsed; nil when the service takes whole ports, whose frames may be anything.
	Packet *inet.Packet
	// Port is the index of the port that it came in by.
	Port int
}

// ServiceSpec says what is a service's.
type ServiceSpec struct {
	// Name is for logs and what users see.
	Name string
	// Lane is the lane that the service lives on; frames that come in on other lanes are handed over.
	Lane int
	// Ports are the names of ports of which it takes every frame. A netdev's must be opened with WholePort.
	Ports []string
	// UDP are the UDP ports of the NIC's own address that it takes. They cannot be those of SwitchML or the native protocol.
	UDP []uint16
	// Service is the service.
	Service Service
}

// ServiceHandle is a service that was added to a NIC.
type ServiceHandle struct {
	nic  *NIC
	spec ServiceSpec
	lane *lane
	s    *laneService
}

// laneService is a service on its lane.
type laneService struct {
	name     string
	lane     int
	service  Service
	exchange Exchange
	due      int64 // of the next Tick
	received bool  // in this round
	woken    atomic.Bool
	n        int
	index    [batchRoom]uint16 // frames of the batch that are its own
}

// never is the time of a Tick that nobody asked for.
const never = math.MaxInt64

// AddService adds a service. It may be called before Start or while the NIC runs.
func (n *NIC) AddService(spec ServiceSpec) (*ServiceHandle, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.checkService(&spec); err != nil {
		return nil, fmt.Errorf("service %q: %w", spec.Name, err)
	}
	h := &ServiceHandle{nic: n, spec: spec, lane: n.lanes[spec.Lane]}
	h.s = &laneService{name: spec.Name, lane: spec.Lane, service: spec.Service}
	h.s.exchange.l, h.s.exchange.s = h.lane, h.s
	n.services = append(n.services, h)
	if err := n.applyServices(); err != nil {
		n.services = n.services[:len(n.services)-1]
		return nil, errors.Join(fmt.Errorf("service %q: %w", spec.Name, err), n.applyServices())
	}
	return h, nil
}

// checkService refuses what cannot be given to a service. n.mu is held.
func (n *NIC) checkService(spec *ServiceSpec) error {
	switch {
	case n.state == stopped:
		return ErrStopped
	case spec.Service == nil:
		return errors.New("there is nothing to run")
	case spec.Lane < 0 || spec.Lane >= len(n.lanes):
		return fmt.Errorf("lane %d: legal are 0 to %d", spec.Lane, len(n.lanes)-1)
	case len(n.services) == MaxServices:
		return fmt.Errorf("the NIC has %d services, no more are possible", MaxServices)
	case len(spec.Ports) == 0 && len(spec.UDP) == 0:
		return errors.New("it takes neither ports nor UDP ports")
	}
	for _, udp := range spec.UDP {
		if udp == 0 || udp == native.Port || switchml.IsPort(udp) {
			return fmt.Errorf("UDP port %d: it is another protocol's", udp)
		}
		if slices.Contains(n.layoutUDP(), udp) {
			return fmt.Errorf("UDP port %d: %w", udp, errLayoutPort)
		}
		for _, o := range n.services {
			if slices.Contains(o.spec.UDP, udp) {
				return fmt.Errorf("UDP port %d: service %q has it", udp, o.spec.Name)
			}
		}
	}
	for _, name := range spec.Ports {
		i, ok := n.PortIndex(name)
		if !ok {
			return fmt.Errorf("no port %s", name)
		}
		if x, ok := n.ports[i].spec.(XDPPort); ok && !x.WholePort {
			return fmt.Errorf("port %s: it is not opened as a whole (WholePort)", name)
		}
		if f := n.ports[i].function; f.InKernel {
			return conflictf("port %s: its frames come to no lane: its function is %v", name, f)
		}
		for _, o := range n.services {
			if slices.Contains(o.spec.Ports, name) {
				return fmt.Errorf("port %s: service %q has it", name, o.spec.Name)
			}
		}
	}
	return nil
}

// applyServices tells steering programs and lanes what is whose. n.mu is held.
func (n *NIC) applyServices() error {
	for _, p := range n.ports {
		if p.open == nil || p.open.serve == nil {
			continue
		}
		if err := p.open.serve(n.serviceUDP()); err != nil {
			return fmt.Errorf("port %s: %w", p.name, err)
		}
	}
	whole := make([]*laneService, len(n.ports))
	var byUDP *[1 << 16]*laneService
	for _, h := range n.services {
		for _, name := range h.spec.Ports {
			i, _ := n.PortIndex(name)
			whole[i] = h.s
		}
		if len(h.spec.UDP) > 0 && byUDP == nil {
			byUDP = new([1 << 16]*laneService)
		}
		for _, u := range h.spec.UDP {
			byUDP[u] = h.s
		}
	}
	for i, p := range n.ports {
		if whole[i] != nil {
			p.function = Function{Kind: Serve, To: whole[i].name}
		} else if p.function.Kind == Serve {
			p.function = Function{}
		}
	}
	if err := n.giveSums(); err != nil {
		return err
	}
	n.onLanes(func(l *lane) {
		l.services = nil
		for _, h := range n.services {
			if h.lane == l {
				l.services = append(l.services, h.s)
			}
		}
		l.serviceUDP, l.anyWhole = byUDP, false
		for i, s := range whole {
			l.ports[i].service = s
			l.ports[i].function = n.ports[i].function.Kind
			l.anyWhole = l.anyWhole || s != nil
		}
	})
	return nil
}

// serviceUDP is the UDP ports of all services and layouts. n.mu is held.
func (n *NIC) serviceUDP() (udp []uint16) {
	for _, h := range n.services {
		udp = append(udp, h.spec.UDP...)
	}
	return append(udp, n.layoutUDP()...)
}

// Wake makes the lane call Tick soon. Any goroutine may call it, after it has put down what the service is to find.
func (h *ServiceHandle) Wake() {
	h.s.woken.Store(true)
	h.lane.wake()
}

// Run runs f on the service's lane and returns when it is done; when the lane does not run, on the caller's goroutine.
// It must not be called from the service itself.
func (h *ServiceHandle) Run(f func()) {
	h.nic.mu.Lock()
	defer h.nic.mu.Unlock()
	h.nic.onLane(h.lane, func(*lane) { f() })
}

// Close takes the service out of the NIC: when it returns, no method of the service runs or will run. It is idempotent.
func (h *ServiceHandle) Close() error {
	n := h.nic
	n.mu.Lock()
	defer n.mu.Unlock()
	i := slices.Index(n.services, h)
	if i < 0 {
		return nil
	}
	n.services = slices.Delete(n.services, i, i+1)
	if n.state == stopped {
		return nil
	}
	return n.applyServices()
}

// serviceFrame gives frame i of the batch to a service, which may live on another lane.
func (l *lane) serviceFrame(s *laneService, i int) {
	if s.lane != l.id {
		l.giveTo(s.lane, i)
		return
	}
	s.index[s.n] = uint16(i)
	s.n++
}

// serveWhole gives all frames of a batch to the service that has their port.
func (l *lane) serveWhole(s *laneService) {
	for i := range l.batch.n {
		l.serviceFrame(s, i)
	}
	l.serve()
}

// serve gives the services of the lane their frames of the batch.
func (l *lane) serve() {
	for _, s := range l.services {
		if s.n > 0 {
			s.exchange.run(l, s)
		}
	}
}

// tick calls the services whose time has come and returns how many want to be called again at once.
func (l *lane) tick() (work int) {
	l.updateNow()
	for _, s := range l.services {
		woken := s.woken.Load() && s.woken.Swap(false)
		if !woken && !s.received && l.now < s.due {
			continue
		}
		s.received = false
		x := &s.exchange
		next := s.service.Tick(x)
		x.settle()
		if next <= 0 {
			next = never
		}
		if s.due = next; next <= l.now {
			work++
		}
	}
	return work
}

// nextTick is the earliest time that a service has asked for; 0 when one was woken.
func (l *lane) nextTick() (due int64) {
	due = never
	for _, s := range l.services {
		if s.woken.Load() {
			return 0
		}
		due = min(due, s.due)
	}
	return due
}
