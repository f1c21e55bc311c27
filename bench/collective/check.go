package collective

import (
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"gradnic/bench/endpoint"
	"gradnic/internal/netlab"
	"gradnic/xdp"
)

// Most is how far above its rate a link may let a raw sender come before its run is INVALID.
const Most = 1.02

// tryLink sends between the centre and worker 0 as fast as AF_XDP can, one way and then the other, each for the duration,
// and returns the larger of what arrived over the link's rate.
func (s *star) tryLink(d time.Duration) (ratio float64, err error) {
	out, err := TryLink(s.centre, nicIface+"0", s.workers[0], workerIface, s.link.Rate, d)
	if err != nil {
		return 0, err
	}
	in, err := TryLink(s.workers[0], workerIface, s.centre, nicIface+"0", s.link.Rate, d)
	return max(out, in), err
}

// checkLink tries the star's link and returns "", or the note that a run over a link that lets too much through is INVALID.
func (s *star) checkLink(log io.Writer) (note string, err error) {
	ratio, err := s.tryLink(500 * time.Millisecond)
	if err != nil {
		return "", fmt.Errorf("try the link: %w", err)
	}
	fmt.Fprintf(log, "%v, MTU %d: a raw AF_XDP sender gets %.3f of the rate across\n", s.link, s.link.MTU, ratio)
	if ratio > Most {
		return fmt.Sprintf("INVALID: a raw sender got %.2f of the rate across", ratio), nil
	}
	return "", nil
}

const (
	startsWithin = 3 * time.Second       // until the first frame of a raw sender arrives
	settle       = 50 * time.Millisecond // more than what a link lets through at once when it was idle
)

// TryLink sends from one namespace's interface to another's as fast as AF_XDP can, for the duration, and returns what
// arrived over the rate in bit/s that the link between them should have. What is counted lies within the time of sending:
// neither what an idle link lets through at once nor the time that the sender takes to start and end is in it. A link that
// lets nothing through is an error.
func TryLink(from *netlab.NS, fromIface string, to *netlab.NS, toIface string, rate uint64, d time.Duration) (ratio float64, err error) {
	_, mac, err := to.Interface(toIface)
	if err != nil {
		return 0, err
	}
	frame := make([]byte, 1514)
	copy(frame, mac)
	copy(frame[6:], nicMAC[:])
	frame[12], frame[13] = 0x88, 0xb5 // an experimental ethertype: the receiver's kernel counts and drops it

	var stop atomic.Bool
	ended := make(chan error, 1)
	go func() {
		ended <- from.Do(func() error { return floodFrom(from, fromIface, frame, &stop) })
	}()
	ratio, err = arriving(to, toIface, rate, d, ended)
	stop.Store(true)
	return ratio, errors.Join(err, <-ended)
}

// arriving waits until a sender's frames come, then counts them for the duration. A sender that ends before is an error, which
// is put back into ended.
func arriving(ns *netlab.NS, iface string, rate uint64, d time.Duration, ended chan error) (ratio float64, err error) {
	idle, err := received(ns, iface)
	if err != nil {
		return 0, err
	}
	for begin := time.Now(); ; {
		now, err := received(ns, iface)
		if err != nil {
			return 0, err
		}
		if now > idle+1<<16 { // not just what a kernel says when a link is new
			break
		}
		if time.Since(begin) > startsWithin {
			return 0, fmt.Errorf("nothing of what a raw sender sends arrives at %s", iface)
		}
		select {
		case err := <-ended:
			ended <- err
			return 0, fmt.Errorf("the raw sender ended before anything arrived at %s", iface)
		case <-time.After(time.Millisecond):
		}
	}
	time.Sleep(settle)
	before, start, err := receivedAt(ns, iface, d/200)
	if err != nil {
		return 0, err
	}
	time.Sleep(d)
	after, end, err := receivedAt(ns, iface, d/200)
	if err != nil {
		return 0, err
	}
	return float64(after-before) * 8 / end.Sub(start).Seconds() / float64(rate), nil
}

// receivedAt is received with the time of the reading, for which it tries again when something came between the two.
func receivedAt(ns *netlab.NS, iface string, within time.Duration) (bytes uint64, at time.Time, err error) {
	for range 100 {
		at = time.Now()
		if bytes, err = received(ns, iface); err != nil || time.Since(at) <= within {
			break
		}
	}
	return bytes, at, err
}

// received reads the bytes of Ethernet frames that a netdev took.
func received(ns *netlab.NS, iface string) (uint64, error) {
	l, err := ns.Netlink().LinkByName(iface)
	if err != nil {
		return 0, fmt.Errorf("counters of %s: %w", iface, err)
	}
	return l.Attrs().Statistics.RxBytes, nil
}

// floodFrom transmits copies of the frame on an interface of the namespace, in which the calling thread is, until it is
// told to stop.
func floodFrom(ns *netlab.NS, iface string, frame []byte, stop *atomic.Bool) (err error) {
	index, _, err := ns.Interface(iface)
	if err != nil {
		return err
	}
	const chunks = 256
	e, err := endpoint.Open(endpoint.Options{
		Socket: xdp.SocketOptions{IfIndex: index, RxSize: xdp.NoRing, TxSize: chunks, CompletionSize: chunks}, Chunks: chunks,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	sock := e.Sockets[0]
	descs := make([]xdp.Desc, 0, chunks)
	for i := range uint64(chunks) {
		copy(e.UMEM.Bytes()[i*2048:], frame)
		descs = append(descs, xdp.Desc{Addr: i * 2048, Len: uint32(len(frame))})
	}
	done := make([]uint64, chunks)
	for !stop.Load() {
		descs = descs[sock.Transmit(descs):]
		if err := sock.Kick(); err != nil {
			return err
		}
		for _, a := range done[:sock.Complete(done)] {
			descs = append(descs, xdp.Desc{Addr: a, Len: uint32(len(frame))})
		}
	}
	return nil
}
