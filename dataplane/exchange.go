package dataplane

import "gradnic/wire/inet"

// Exchange is what a service does with its frames. It is good during one call of Receive or Tick.
type Exchange struct {
	l       *lane
	s       *laneService
	in      [batchRoom]Arrival
	decided [batchRoom]bool
	n       int
	// A frame longer than a chunk is made here and dealt to chunks when the service has filled it.
	flat   []byte
	open   int // bytes of flat that wait for that, 0 for none
	openTo int
}

// run gives a service its frames of the batch, and each of them a verdict.
func (x *Exchange) run(l *lane, s *laneService) {
	b := &l.batch
	n := 0
	for _, at := range s.index[:s.n] {
		i := int(at)
		a := &x.in[n]
		a.Port, a.Packet = int(b.port[i]), &b.pkt[i]
		whole := l.ports[a.Port].service == s
		if whole {
			a.Packet = nil
		}
		switch {
		case b.desc[i].Options == 0:
			a.Bytes = l.frame(b.desc[i])
		case !whole: // parse has joined it
			a.Bytes = b.flat[i]
		default:
			var ok bool
			if a.Bytes, ok = l.flatten(i); !ok {
				l.drop(i, Chained)
				continue
			}
		}
		s.index[n] = at
		x.decided[n] = false
		n++
	}
	x.n, s.n, s.received = n, 0, true
	if n == 0 {
		return
	}
	s.service.Receive(x, x.in[:n:n])
	x.settle()
	for k := range n {
		x.Consume(k)
	}
	x.n = 0
}

// undecided is true once for each arrival: a frame has one verdict.
func (x *Exchange) undecided(k int) bool {
	if k >= x.n || x.decided[k] {
		return false
	}
	x.decided[k] = true
	return true
}

// Drop drops arrival k and counts why.
func (x *Exchange) Drop(k int, r Reason) {
	if x.undecided(k) {
		x.l.drop(int(x.s.index[k]), r)
	}
}

// Consume ends arrival k: the service has taken from it what it wants. It counts as passed.
func (x *Exchange) Consume(k int) {
	if x.undecided(k) {
		i := int(x.s.index[k])
		x.l.counts[x.l.batch.port[i]][cPassed]++
		x.l.freeFrame(i)
	}
}

// Send sends the first length bytes of arrival k, as the service has changed them in place, out of a port. It counts as
// passed, or as dropped under the reason why it could not be sent.
func (x *Exchange) Send(k, port, length int) {
	if x.undecided(k) {
		x.settle()
		i := int(x.s.index[k])
		d, tail := x.l.outgoing(i, length)
		x.l.send(port, int(x.l.batch.port[i]), d, tail, sentPassed)
	}
}

// Emit makes a new frame of length bytes, from its Ethernet header on, that leaves by a port with the round's batch. The
// caller fills it before its next call of the Exchange. The bytes are not cleared. ok is false, and the frame is counted
// as a replica dropped for no-frame, when there is no chunk, or length is not within the NIC's longest frame.
func (x *Exchange) Emit(port, length int) (frame []byte, ok bool) {
	x.settle()
	l := x.l
	if length > x.Longest() || length < inet.EthernetLen {
		l.lostReplica(port, NoFrame)
		return nil, false
	}
	if length <= int(l.chunk) {
		addr, ok := l.take()
		if !ok {
			l.lostReplica(port, NoFrame)
			return nil, false
		}
		l.sendReplica(port, Desc{Addr: addr, Len: uint32(length)}, nil, sentReplica, nil)
		return l.area[addr : addr+uint64(length) : addr+uint64(length)], true
	}
	if x.flat == nil {
		x.flat = make([]byte, l.chains.stride) // once, and only where frames are that long
	}
	x.open, x.openTo = length, port
	return x.flat[:length], true
}

// settle sends a long frame that the service has filled.
func (x *Exchange) settle() {
	if x.open == 0 {
		return
	}
	l, port := x.l, x.openTo
	head, tail, ok := l.scatter(x.flat[:x.open])
	x.open = 0
	if !ok {
		l.lostReplica(port, NoFrame)
		return
	}
	l.sendReplica(port, head, tail, sentReplica, nil)
}

// Now is the lane's clock: nanoseconds, monotonic, from when the NIC was made, read once a round.
func (x *Exchange) Now() int64 { return x.l.now }

// Room is how many frames of one chunk can be emitted to a port now. Others that leave by the port share it.
func (x *Exchange) Room(port int) int {
	p := &x.l.ports[port]
	if p.egress == nil || p.egress.failed {
		return 0
	}
	return max(0, min(p.egress.limit-p.egress.sending-p.tx.n, len(x.l.free)-BatchSize))
}

// Longest is the longest frame that can be emitted, in bytes.
func (x *Exchange) Longest() int {
	if x.l.chains != nil {
		return x.l.chains.stride
	}
	return int(x.l.chunk)
}

// MAC and IP are the NIC's own address.
func (x *Exchange) MAC() inet.MAC { return x.l.cfg.MAC }

// IP is the NIC's own IPv4 address.
func (x *Exchange) IP() inet.Addr { return x.l.cfg.IP }
