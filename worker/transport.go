package worker

import (
	"net"
	"sync/atomic"
	"time"

	"gradnic/wire/inet"
	"gradnic/wire/switchml"
	"gradnic/worker/datagram"
)

// burst is the most packets in one call to the kernel.
const burst = datagram.Burst

// longAgo as a deadline waits for nothing. It is not the zero time, which often means for ever.
var longAgo = time.Unix(1, 0)

// route is the way between one thread of a worker and the NIC.
type route struct {
	worker, nic switchml.Endpoint
	elements    int
}

// transport carries requests to the NIC and results back, for one thread.
// Its errors are final; what a resend may mend is counted.
type transport struct {
	tr       datagram.Transport
	elements int
	views    [burst]switchml.View
	stopped  atomic.Bool
	counted  datagram.Faults // those that are in a job's counts
}

// room is the longest payload that is a result.
func (r *route) room() int { return switchml.FrameLen(r.elements) - inet.PayloadOffset }

func newLinkTransport(link FrameLink, r route) *transport {
	return &transport{tr: datagram.NewFrames(link, datagram.Endpoint(r.worker), datagram.Endpoint(r.nic), r.room()), elements: r.elements}
}

func newUDPTransport(conn *net.UDPConn, r route) (*transport, error) {
	udp, err := datagram.NewUDP(conn, datagram.Endpoint(r.nic), r.room())
	if err != nil {
		return nil, err
	}
	return &transport{tr: udp, elements: r.elements}, nil
}

// send hands over whole request frames, in order. Frames may be lost.
func (t *transport) send(frames [][]byte, c *Counts) error {
	err := t.tr.Send(frames)
	t.count(c)
	return err
}

// recv waits until a result comes or the deadline passes, and returns how
// many came: 0 after the deadline or an interrupt. result(i) is then valid
// for i below that, until the next call.
func (t *transport) recv(until time.Time, c *Counts) (int, error) {
	if t.stopped.Load() {
		return 0, nil
	}
	got, err := t.tr.Recv(until)
	t.count(c)
	n := 0
	for _, b := range got {
		if v, fault := switchml.Validate(b); fault == switchml.OK && v.Elements() == t.elements {
			t.views[n] = v
			n++
		} else {
			c.Foreign++
		}
	}
	return n, err
}

// count adds what went wrong since the last call.
func (t *transport) count(c *Counts) {
	f := t.tr.Faults()
	c.Foreign += f.Foreign - t.counted.Foreign
	c.SocketErrors += f.Socket - t.counted.Socket
	t.counted = f
}

// result is a checked SwitchML message from the NIC to this worker.
func (t *transport) result(i int) switchml.View { return t.views[i] }

// interrupt makes a running recv return; the next ones return at once
// until resume. It may be called from any goroutine.
func (t *transport) interrupt() {
	t.stopped.Store(true)
	t.tr.Wake()
}

func (t *transport) resume() { t.stopped.Store(false) }

func (t *transport) close() error { return t.tr.Close() }

// fault is the last mendable error, for messages.
func (t *transport) fault() error { return t.counted.Last }
