package datagram

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"gradnic/wire/inet"
)

// Link carries whole Ethernet frames, without the frame check sequence: the wire end of a port in memory, for example.
//
// Send may drop a frame when the link is full, as a wire does, silently or with an error that is os.ErrDeadlineExceeded.
// Recv waits for one frame until the deadline, copies it to buf and returns its length; when none comes it returns an
// error that is os.ErrDeadlineExceeded.
type Link interface {
	Send(frame []byte) error
	Recv(buf []byte, deadline time.Time) (int, error)
}

// Frames is a Transport over a Link. It does itself what a kernel does for a socket: it takes only frames from the NIC's
// addresses to its own, or to a group.
type Frames struct {
	link        Link
	worker, nic Endpoint
	group       atomic.Pointer[Endpoint]
	room        int
	buf         []byte
	got         [][]byte
	woken       atomic.Bool
	pkt         inet.Packet
	foreign     atomic.Uint64
	sendFaults  atomic.Uint64
	last        atomic.Pointer[error]
}

// linkPoll bounds how long a Wake can take: a link has no way to end a Recv.
const linkPoll = time.Millisecond

// NewFrames makes a transport. room is the longest payload that may come.
func NewFrames(link Link, worker, nic Endpoint, room int) *Frames {
	room += inet.PayloadOffset + 1 // one byte more, so that a longer one is seen as such
	return &Frames{link: link, worker: worker, nic: nic, room: room, buf: make([]byte, Burst*room), got: make([][]byte, 0, Burst)}
}

// Listen takes frames to a group as well.
func (t *Frames) Listen(group Endpoint) { t.group.Store(&group) }

// Send implements Transport.
func (t *Frames) Send(frames [][]byte) error {
	for _, f := range frames {
		err := t.link.Send(f)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.sendFaults.Add(1) // the link is full: as good as lost, and so are those after it
			t.note(err)
			return nil
		}
		if err != nil {
			return fmt.Errorf("send on the frame link: %w", err)
		}
	}
	return nil
}

// Recv implements Transport.
func (t *Frames) Recv(until time.Time) ([][]byte, error) {
	t.got = t.got[:0]
	for tries := 0; len(t.got) < Burst && tries < 4*Burst; {
		if t.woken.Swap(false) {
			return t.got, nil
		}
		wait := longAgo // take what is there, wait for nothing
		if len(t.got) == 0 {
			if wait = time.Now().Add(linkPoll); wait.After(until) {
				wait = until
			}
		}
		b := t.buf[len(t.got)*t.room : (len(t.got)+1)*t.room]
		n, err := t.link.Recv(b, wait)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			if len(t.got) > 0 || !wait.Before(until) {
				return t.got, nil
			}
			continue
		case err != nil:
			return t.got, fmt.Errorf("receive on the frame link: %w", err)
		}
		tries++
		if p, ok := t.payload(b[:min(n, t.room)]); ok {
			t.got = append(t.got, p)
		} else {
			t.foreign.Add(1)
		}
	}
	return t.got, nil
}

func (t *Frames) payload(frame []byte) ([]byte, bool) {
	p := &t.pkt
	if inet.Parse(frame, p) != inet.OK || p.Proto != inet.ProtoUDP || p.Src != t.nic.MAC || p.SrcIP != t.nic.IP || p.SrcPort != t.nic.Port {
		return nil, false
	}
	to := Endpoint{p.Dst, p.DstIP, p.DstPort}
	if to == t.worker {
		return p.Payload, true
	}
	g := t.group.Load()
	return p.Payload, g != nil && to == *g
}

// Wake implements Transport.
func (t *Frames) Wake() { t.woken.Store(true) }

// Faults implements Transport.
func (t *Frames) Faults() Faults {
	f := Faults{Foreign: t.foreign.Load(), Socket: t.sendFaults.Load()}
	if e := t.last.Load(); e != nil {
		f.Last = *e
	}
	return f
}

// Close implements Transport; the link is its owner's.
func (t *Frames) Close() error { return nil }

// note keeps the last error. err escapes here, and not in every call that succeeds.
func (t *Frames) note(err error) { t.last.Store(&err) }
