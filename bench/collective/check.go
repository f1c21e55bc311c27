package collective

import (
	"errors"
	"fmt"
	"time"

	"gradnic/internal/netlab"
	"gradnic/xdp"
)

// most is how far above its rate a link may let a raw sender come before its run is INVALID.
const most = 1.02

// tryLink sends from the centre to worker 0 as fast as AF_XDP can, for the duration, and returns what arrived over the
// link's rate.
func (s *star) tryLink(d time.Duration) (ratio float64, err error) {
	worker := s.workers[0]
	_, mac, err := worker.Interface(workerIface)
	if err != nil {
		return 0, err
	}
	frame := make([]byte, 1514)
	copy(frame, mac)
	copy(frame[6:], nicMAC[:])
	frame[12], frame[13] = 0x88, 0xb5 // an experimental ethertype: the worker's kernel counts and drops it

	before, err := received(worker)
	if err != nil {
		return 0, err
	}
	start := time.Now()
	if err := s.centre.Do(func() error { return floodFrom(s.centre, frame, d) }); err != nil {
		return 0, err
	}
	elapsed := time.Since(start)
	after, err := received(worker)
	if err != nil {
		return 0, err
	}
	return float64(after-before) * 8 / elapsed.Seconds() / float64(s.link.Rate), nil
}

// received reads the bytes of Ethernet frames that the worker's netdev took.
func received(ns *netlab.NS) (uint64, error) {
	l, err := ns.Netlink().LinkByName(workerIface)
	if err != nil {
		return 0, fmt.Errorf("counters of %s: %w", workerIface, err)
	}
	return l.Attrs().Statistics.RxBytes, nil
}

// floodFrom transmits copies of the frame on port 0 of the namespace, in which the calling thread is.
func floodFrom(ns *netlab.NS, frame []byte, d time.Duration) (err error) {
	index, _, err := ns.Interface(nicIface + "0")
	if err != nil {
		return err
	}
	const chunks = 256
	umem, err := xdp.NewUMEM(xdp.UMEMOptions{Chunks: chunks, ChunkSize: 2048})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, umem.Close()) }()
	sock, err := umem.Open(xdp.SocketOptions{IfIndex: index, RxSize: xdp.NoRing, TxSize: chunks, CompletionSize: chunks})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sock.Close()) }()
	descs := make([]xdp.Desc, 0, chunks)
	for i := range uint64(chunks) {
		copy(umem.Bytes()[i*2048:], frame)
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
