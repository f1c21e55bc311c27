package collective

import (
	"errors"
	"fmt"
	"time"

	"gradnic/bench/endpoint"
	"gradnic/internal/netlab"
	"gradnic/xdp"
)

// Most is how far above its rate a link may let a raw sender come before its run is INVALID.
const Most = 1.02

// tryLink sends from the centre to worker 0 as fast as AF_XDP can, for the duration, and returns what arrived over the
// link's rate.
func (s *star) tryLink(d time.Duration) (ratio float64, err error) {
	return TryLink(s.centre, nicIface+"0", s.workers[0], workerIface, s.link.Rate, d)
}

// TryLink sends from one namespace's interface to another's as fast as AF_XDP can, for the duration, and returns what
// arrived over the rate in bit/s that the link between them should have.
func TryLink(from *netlab.NS, fromIface string, to *netlab.NS, toIface string, rate uint64, d time.Duration) (ratio float64, err error) {
	_, mac, err := to.Interface(toIface)
	if err != nil {
		return 0, err
	}
	frame := make([]byte, 1514)
	copy(frame, mac)
	copy(frame[6:], nicMAC[:])
	frame[12], frame[13] = 0x88, 0xb5 // an experimental ethertype: the receiver's kernel counts and drops it

	before, err := received(to, toIface)
	if err != nil {
		return 0, err
	}
	start := time.Now()
	if err := from.Do(func() error { return floodFrom(from, fromIface, frame, d) }); err != nil {
		return 0, err
	}
	elapsed := time.Since(start)
	after, err := received(to, toIface)
	if err != nil {
		return 0, err
	}
	return float64(after-before) * 8 / elapsed.Seconds() / float64(rate), nil
}

// received reads the bytes of Ethernet frames that a netdev took.
func received(ns *netlab.NS, iface string) (uint64, error) {
	l, err := ns.Netlink().LinkByName(iface)
	if err != nil {
		return 0, fmt.Errorf("counters of %s: %w", iface, err)
	}
	return l.Attrs().Statistics.RxBytes, nil
}

// floodFrom transmits copies of the frame on an interface of the namespace, in which the calling thread is.
func floodFrom(ns *netlab.NS, iface string, frame []byte, d time.Duration) (err error) {
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
	for end := time.Now().Add(d); time.Now().Before(end); {
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
