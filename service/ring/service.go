package ring

import (
	"errors"
	"fmt"

	"gradnic/dataplane"
	"gradnic/wire/inet"
	wire "gradnic/wire/ring"
)

// service is the node on a lane.
type service struct {
	n     *Node
	port  int
	begun bool // this turn
}

// Attach gives the node to a NIC, which must have the address that Config.Peers says: frames to UDP port 48881 are the
// node's from now on, and it sends by the given port of the NIC. A NIC has one node. lane is the lane that the ring's
// arithmetic runs on.
func (n *Node) Attach(nic *dataplane.NIC, lane int, port string) error {
	i, ok := nic.PortIndex(port)
	if !ok {
		return fmt.Errorf("ring: the NIC has no port %s", port)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.closed:
		return ErrClosed
	case n.handle != nil:
		return errors.New("ring: the node is attached already")
	}
	h, err := nic.AddService(dataplane.ServiceSpec{
		Name: fmt.Sprintf("ring-%d", n.cfg.Ring), Lane: lane, UDP: []uint16{wire.Port}, Service: &service{n: n, port: i},
	})
	if err != nil {
		return fmt.Errorf("ring: %w", err)
	}
	n.handle, n.wake, n.on = h, h.Wake, h.Run
	return nil
}

// Receive implements dataplane.Service.
func (s *service) Receive(x *dataplane.Exchange, in []dataplane.Arrival) {
	s.begin(x)
	for k := range in {
		p := in[k].Packet
		if p == nil {
			x.Drop(k, dataplane.RingReason(wire.Foreign))
			continue
		}
		if fault := s.take(p); fault != wire.OK {
			x.Drop(k, dataplane.RingReason(fault))
			continue
		}
		x.Consume(k)
	}
}

// take gives a datagram to the engine, if it comes from the node that it says it is from.
func (s *service) take(p *inet.Packet) wire.Fault {
	v, fault := wire.Validate(p.Payload)
	if fault != wire.OK {
		return fault
	}
	if a := s.n.address[v.Node()]; a == nil || p.Src != a.MAC || p.SrcIP != a.IP || p.SrcPort != wire.Port {
		return wire.Stranger
	}
	return s.n.eng.receive(v)
}

// Tick implements dataplane.Service.
func (s *service) Tick(x *dataplane.Exchange) (next int64) {
	s.begin(x)
	s.begun = false
	e := s.n.eng
	next = s.n.turn()
	for i := range e.out {
		m := &e.out[i]
		frame, ok := x.Emit(s.port, wire.PayloadOffset+len(m.payload))
		if !ok {
			continue // counted there; lost like on a wire
		}
		n := wire.PutFrame(frame, &s.n.self, s.n.address[m.to], wire.HeaderLen+len(m.payload))
		copy(frame[inet.PayloadOffset:n], m.header[:])
		copy(frame[wire.PayloadOffset:n], m.payload)
	}
	return next
}

// begin starts the engine's turn.
func (s *service) begin(x *dataplane.Exchange) {
	if s.begun {
		s.n.eng.now = x.Now()
		return
	}
	s.begun = true
	room := x.Room(s.port)
	if x.Longest() < 4096 && s.n.cfg.MTU > 4096 {
		room /= 1 + s.n.cfg.MTU/x.Longest()
	}
	s.n.eng.begin(x.Now(), room)
}
