package accl

import (
	"fmt"
	"slices"
	"time"

	wire "gradnic/wire/accl"
	"gradnic/wire/inet"
)

// Responder is one rank in memory, in lock-step: each frame that it is given, and each lapse of time, gives the frames
// that the rank sends because of it, at once and in order. It makes the calls that it was told one after the other. Tests
// and conformance suites hold it against another implementation, or against recorded packets, without a clock.
type Responder struct {
	e     *Engine
	calls []Call
	next  int
	now   int64
	errs  []error
}

// NewResponder makes a rank that will make these calls. Every rank of the configuration needs a MAC if frames are used.
// Results are in the calls' Dst slices. Nothing happens before Start.
func NewResponder(cfg Config, calls ...Call) (*Responder, error) {
	e, err := NewEngine(cfg)
	if err != nil {
		return nil, err
	}
	return &Responder{e: e, calls: slices.Clone(calls)}, nil
}

// Datagram is one UDP payload and the rank that it goes to.
type Datagram struct {
	To      int
	Payload []byte
}

// Start begins the first call, and returns what is sent before anything comes.
func (r *Responder) Start() []Datagram { return r.run() }

// Datagram takes the UDP payload of a peer. The fault is why it was dropped, if it was.
func (r *Responder) Datagram(from int, payload []byte) ([]Datagram, wire.Fault) {
	f := r.e.Receive(from, payload, r.now)
	return r.run(), f
}

// Pass lets time go by: a call may time out.
func (r *Responder) Pass(d time.Duration) []Datagram {
	r.now += int64(d)
	r.e.Tick(r.now)
	return r.run()
}

// run begins calls and collects what is sent, until the rank waits.
func (r *Responder) run() (out []Datagram) {
	for {
		for to, n, ok := r.e.Pending(); ok; to, n, ok = r.e.Pending() {
			b := make([]byte, n)
			r.e.Put(b, r.now)
			out = append(out, Datagram{to, b})
		}
		done, err := r.e.Done()
		if !done {
			return out
		}
		if r.next > len(r.errs) {
			r.errs = append(r.errs, err)
		}
		if r.next == len(r.calls) {
			return out
		}
		r.next++
		if err := r.e.Begin(r.calls[r.next-1], r.now); err != nil {
			r.errs = append(r.errs, err)
		}
	}
}

// Results are the calls that have ended: nil, or why each failed.
func (r *Responder) Results() []error { return r.errs }

// Done reports whether all calls have ended.
func (r *Responder) Done() bool { return len(r.errs) == len(r.calls) }

// Stats are the engine's counts.
func (r *Responder) Stats() Stats { return r.e.Stats() }

// Frames puts datagrams into Ethernet frames, as the rank sends them.
func (r *Responder) Frames(ds []Datagram) [][]byte {
	var out [][]byte
	own := r.endpoint(r.e.cfg.Rank)
	for _, d := range ds {
		to := r.endpoint(d.To)
		f := make([]byte, wire.PayloadOffset+len(d.Payload))
		wire.PutFrame(f, &own, &to, len(d.Payload))
		copy(f[wire.PayloadOffset:], d.Payload)
		out = append(out, f)
	}
	return out
}

func (r *Responder) endpoint(rank int) wire.Endpoint {
	p := r.e.cfg.Ranks[rank]
	return wire.Endpoint{MAC: p.MAC, IP: p.IP, Port: p.Port}
}

// Frame takes a whole Ethernet frame. ARP and echo requests for the rank's address are answered, as a card does;
// datagrams to its address and port are given to the engine. The error is why the frame was dropped.
func (r *Responder) Frame(frame []byte) ([][]byte, error) {
	own := r.endpoint(r.e.cfg.Rank)
	var p inet.Packet
	f := inet.Parse(frame, &p)
	if p.Dst != own.MAC && p.Dst != inet.Broadcast {
		return nil, fmt.Errorf("not for %v", own.MAC)
	}
	switch {
	case f == inet.NotIPv4 && p.EtherType == inet.EtherTypeARP:
		var a inet.ARP
		if f := inet.ParseARP(frame, &a); f != inet.OK {
			return nil, fmt.Errorf("%v", f)
		}
		if !a.Answerable(own.IP) {
			return nil, fmt.Errorf("ARP that is no question for %v", own.IP)
		}
		reply := append(slices.Clone(frame), make([]byte, max(0, inet.EthernetLen+inet.ARPLen-len(frame)))...)
		return [][]byte{reply[:inet.ReplyARP(reply, own.MAC, own.IP)]}, nil
	case f != inet.OK:
		return nil, fmt.Errorf("%v", f)
	case p.DstIP != own.IP:
		return nil, fmt.Errorf("not for %v", own.IP)
	case p.Proto == inet.ProtoICMP:
		var e inet.Echo
		if f := inet.ParseEcho(&p, &e); f != inet.OK {
			return nil, fmt.Errorf("%v", f)
		}
		reply := slices.Clone(frame)
		q := p
		return [][]byte{reply[:inet.ReplyEcho(reply, &q)]}, nil
	case p.Proto != inet.ProtoUDP || p.DstPort != own.Port:
		return nil, fmt.Errorf("protocol %d port %d: not UDP to port %d", p.Proto, p.DstPort, own.Port)
	}
	out, fault := r.Datagram(r.e.PeerAt(p.SrcIP, p.SrcPort), p.Payload)
	if fault != wire.OK {
		return r.Frames(out), fmt.Errorf("%v", fault)
	}
	return r.Frames(out), nil
}
