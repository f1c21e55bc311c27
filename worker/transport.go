package worker

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"gradnic/wire/inet"
	"gradnic/wire/switchml"
)

// burst is the most packets in one call to the kernel.
const burst = 64

// transport carries requests to the NIC and results back, for one thread.
// Its errors are final; what a resend may mend is counted in faults.
type transport interface {
	// send hands over whole request frames, in order. Frames may be lost.
	send(frames [][]byte, c *counts) error
	// recv waits until a result comes or the deadline passes, and returns how
	// many came: 0 after the deadline or an interrupt. result(i) is then valid
	// for i below that, until the next call.
	recv(until time.Time, c *counts) (int, error)
	// result is a checked SwitchML message from the NIC to this worker.
	result(i int) switchml.View
	// interrupt makes a running recv return; the next ones return at once
	// until resume. It may be called from any goroutine.
	interrupt()
	resume()
	close() error
	// fault is the last mendable error, for messages.
	fault() error
}

// route is the way between one thread of a worker and the NIC.
type route struct {
	worker, nic switchml.Endpoint
	elements    int
}

// linkTransport speaks over a FrameLink and does itself what a kernel does for a
// socket: it takes only frames from the NIC's addresses to its own.
type linkTransport struct {
	link    FrameLink
	route   route
	buf     []byte // burst frames
	n       int
	views   [burst]switchml.View
	stopped atomic.Bool
	pkt     inet.Packet
	last    error
}

// linkPoll bounds how long an interrupt of a FrameLink can take: a link has no
// way to end a Recv.
const linkPoll = 10 * time.Millisecond

// longAgo as a deadline waits for nothing. It is not the zero time, which often means for ever.
var longAgo = time.Unix(1, 0)

func newLinkTransport(link FrameLink, r route) *linkTransport {
	// One byte more than the frame, so that a longer one is seen as such.
	return &linkTransport{link: link, route: r, buf: make([]byte, burst*linkRoom(r.elements))}
}

func linkRoom(elements int) int { return switchml.FrameLen(elements) + 1 }

func (t *linkTransport) send(frames [][]byte, c *counts) error {
	for _, f := range frames {
		err := t.link.Send(f)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			// The link is full: as good as lost, and so are those after it.
			c.sockErrs++
			t.last = err
			return nil
		}
		if err != nil {
			return fmt.Errorf("send on the frame link: %w", err)
		}
	}
	return nil
}

func (t *linkTransport) recv(until time.Time, c *counts) (int, error) {
	t.n = 0
	room := linkRoom(t.route.elements)
	for tries := 0; t.n < burst && tries < 4*burst && !t.stopped.Load(); tries++ {
		wait := time.Now()
		if t.n > 0 {
			wait = longAgo // take what is there, wait for nothing
		} else if slice := wait.Add(linkPoll); slice.Before(until) {
			wait = slice
		} else {
			wait = until
		}
		b := t.buf[t.n*room : (t.n+1)*room]
		n, err := t.link.Recv(b, wait)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			if t.n > 0 || wait == until {
				return t.n, nil
			}
			continue
		case err != nil:
			return t.n, fmt.Errorf("receive on the frame link: %w", err)
		}
		if v, ok := t.check(b[:min(n, room)]); ok {
			t.views[t.n] = v
			t.n++
		} else {
			c.foreign++
		}
	}
	return t.n, nil
}

func (t *linkTransport) check(frame []byte) (switchml.View, bool) {
	p := &t.pkt
	if inet.Parse(frame, p) != inet.OK || p.Proto != inet.ProtoUDP ||
		p.Dst != t.route.worker.MAC || p.Src != t.route.nic.MAC ||
		p.DstIP != t.route.worker.IP || p.SrcIP != t.route.nic.IP ||
		p.DstPort != t.route.worker.Port || p.SrcPort != t.route.nic.Port {
		return nil, false
	}
	return checkPayload(p.Payload, t.route.elements)
}

// checkPayload takes a UDP payload that is a result of the right size.
func checkPayload(payload []byte, elements int) (switchml.View, bool) {
	v, fault := switchml.Validate(payload)
	if fault != switchml.OK || v.Elements() != elements {
		return nil, false
	}
	return v, true
}

func (t *linkTransport) result(i int) switchml.View { return t.views[i] }
func (t *linkTransport) interrupt()                 { t.stopped.Store(true) }
func (t *linkTransport) resume()                    { t.stopped.Store(false) }
func (t *linkTransport) close() error               { return nil } // the link is its owner's
func (t *linkTransport) fault() error               { return t.last }
