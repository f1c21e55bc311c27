package peers

import (
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"
)

type udp struct {
	loop
	conn  net.PacketConn
	batch *ipv4.PacketConn
	msgs  []ipv4.Message
	on    Target
	sum   Counts
}

// startUDP starts a receiver on a UDP socket of the kernel, bound to the port, reading 64 datagrams a system call
// (recvmmsg) and, when it reflects, sending them back 64 a call (sendmmsg).
func startUDP(on Target) (Peer, error) {
	const port = 0xBEE0
	conn, err := net.ListenPacket("udp4", fmt.Sprintf(":%d", port))
	if err != nil {
		return nil, fmt.Errorf("udp: listen on port %d: %w", port, err)
	}
	if err := conn.(*net.UDPConn).SetReadBuffer(8 << 20); err != nil {
		conn.Close()
		return nil, fmt.Errorf("udp: set the receive buffer: %w", err)
	}
	p := &udp{conn: conn, batch: ipv4.NewPacketConn(conn), msgs: make([]ipv4.Message, 64), on: on}
	for i := range p.msgs {
		p.msgs[i].Buffers = [][]byte{make([]byte, 2048)}
	}
	p.start(on.CPU, p.step)
	return p, nil
}

func (p *udp) step() error {
	// A deadline instead of a wait for ever, so that Stop is seen.
	if err := p.conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		return fmt.Errorf("udp: set a deadline: %w", err)
	}
	n, err := p.batch.ReadBatch(p.msgs, 0)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("udp: receive: %w", err)
	}
	p.sum.Received += uint64(n)
	if p.on.Task != Reflect {
		return nil
	}
	for i := range p.msgs[:n] {
		p.msgs[i].Buffers[0] = p.msgs[i].Buffers[0][:p.msgs[i].N]
	}
	sent, err := p.batch.WriteBatch(p.msgs[:n], 0)
	if err != nil && !errors.Is(err, unix.ENOBUFS) {
		return fmt.Errorf("udp: send back: %w", err)
	}
	p.sum.Returned += uint64(max(sent, 0))
	p.sum.Lost += uint64(n - max(sent, 0))
	for i := range p.msgs[:n] {
		p.msgs[i].Buffers[0] = p.msgs[i].Buffers[0][:2048]
	}
	return nil
}

func (p *udp) Stop() (Counts, error) {
	err := errors.Join(p.end(), p.conn.Close())
	return p.sum, err
}
